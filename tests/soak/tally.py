"""Every delivery that was asked for, and the one verdict that it must come to."""

from __future__ import annotations

from collections import Counter

from aiokafka import ConsumerRecord

from streams.topics.catalogue import Topics
from tests.chaos.history import read_avro

FINAL = frozenset({"sent", "skipped"})
"""What an activity of a soak may end with: its dead letters are redriven until they are sent."""


class Tally:
    """Counts as records pass by; small, so that an hour of it fits."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._open: set[tuple[str, str]] = set()
        self._told: dict[tuple[str, str], tuple[str, int]] = {}
        """Settled delivery to its outcome and attempts."""
        self.doubled: list[tuple[str, str]] = []
        """Deliveries that two different final verdicts were told of."""
        self.verdicts: Counter[str] = Counter()
        self.tombstones = 0
        self.ledger_records = 0

    @property
    def open(self) -> int:
        """Deliveries that have no final verdict yet."""
        return len(self._open)

    @property
    def asked(self) -> int:
        """Deliveries that were asked for."""
        return len(self._open) + len(self._told)

    def expect(self, activity: str, target: str) -> None:
        """A delivery was asked for; called before it is produced."""
        self._open.add((activity, target))

    def saw(self, record: ConsumerRecord[bytes, bytes]) -> None:
        """A record of any topic."""
        if record.topic == self._topics.ledger:
            self.ledger_records += 1
            self.tombstones += record.value is None and record.key != b"\0owner"
        elif record.topic == self._topics.receipts:
            self._receipt(read_avro("receipt", record.value or b""))

    def _receipt(self, fields: dict[str, object]) -> None:
        verdict = str(fields["verdict"])
        self.verdicts[verdict] += 1
        if fields["delivery_id"] is None or verdict not in FINAL:
            return
        delivery = (str(fields["activity_id"]), str(fields["target"]))
        outcome = (verdict, int(str(fields["attempts"])))
        if self._told.setdefault(delivery, outcome) != outcome:
            self.doubled.append(delivery)
        self._open.discard(delivery)

    def some_open(self, count: int = 10) -> list[tuple[str, str]]:
        """Some of the deliveries without a verdict, to be named."""
        return sorted(self._open)[:count]
