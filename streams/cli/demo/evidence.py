"""What is seen of the demo: receipts, dead letters and claims on the topics, calls at the receiver."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from aiokafka import ConsumerRecord

from streams.engine.ledger_log import ledger_records
from streams.model.ledger import SEPARATOR, Kind, Phase
from streams.model.receipt import DeadLetter, Letter, Outcome, Receipt
from streams.rules.fold import fold
from streams.wire.codec import decode_dead_letter, decode_receipt, decode_row
from streams.wire.records import read_retry_headers

Records: TypeAlias = Sequence[ConsumerRecord[bytes, bytes]]

NO_CALL_KNOWN: Final = frozenset({"lease_lost", "not_called"})
"""Ends of a claim of which nobody saw a call: its worker died, or it came too late to be called."""

FRESH_S: Final = 1.5
"""A call that hangs is sure to be under way until then; the demo's calls end after 3 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One line of the receiver's log; `at_s` is epoch seconds."""

    at_s: float
    attempt: int
    sha256: str
    path: str


@dataclass(slots=True)
class Evidence:
    """What was seen so far; the same from a live tail and from a reading of everything.

    Attributes:
        receipts: By delivery id, in order.
        again: Receipts of whole activities, by tenant and activity ID.
        letters: The dead letters that stand, by record key.
        waiting: Claims so far of the deliveries that a retry record carries, by delivery id.
        calls: By delivery id.
        claims: Valid claims in the ledger, by delivery id.
        ends: How each claim ended, by delivery id and attempt.
    """

    receipts: dict[str, list[Receipt]] = field(default_factory=dict)
    again: dict[tuple[str, str], list[Outcome]] = field(default_factory=dict)
    letters: dict[bytes, DeadLetter] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)
    calls: dict[str, list[Call]] = field(default_factory=dict)
    claims: Counter[str] = field(default_factory=Counter)
    ends: dict[str, dict[int, str]] = field(default_factory=dict)
    _epochs: dict[int, _Epoch] = field(default_factory=dict)

    def take_receipts(self, records: Records) -> None:
        """Take records of `outbox.receipts`."""
        for record in records:
            receipt = decode_receipt(record.value or b"")
            if receipt.delivery_id is None:
                name = (receipt.tenant, receipt.activity_id)
                self.again.setdefault(name, []).append(receipt.verdict)
            else:
                self.receipts.setdefault(receipt.delivery_id, []).append(receipt)

    def take_letters(self, records: Records) -> None:
        """Take records of `outbox.dead-letters`."""
        for record in records:
            key = record.key or b""
            if record.value is None:
                self.letters.pop(key, None)
            else:
                self.letters[key] = decode_dead_letter(record.value)

    def take_retries(self, records: Records) -> None:
        """Take records of a delay topic."""
        for record in records:
            _, items = read_retry_headers(record.headers)
            for item in items:
                self.waiting[item.delivery_id] = item.attempt

    def take_ledger(self, partition: int, records: Records) -> None:
        """Take records of the ledger; those of a superseded owner do not count (ledger.md, rule 1)."""
        epoch = self._epochs.setdefault(partition, _Epoch())
        for record in ledger_records(records):
            is_valid = fold(epoch, record)
            is_delivery = SEPARATOR in record.key and record.kind in (Kind.CLAIM, Kind.REPORT)
            if not is_valid or not is_delivery or record.value is None:
                continue
            row = decode_row(record.value)
            if record.kind is Kind.CLAIM:
                self.claims[row.delivery_id] += 1
            elif row.attempts:
                code = row.cause if row.phase is Phase.DEAD else row.code
                self.ends.setdefault(row.delivery_id, {})[row.attempts] = code

    def take_calls(self, lines: Iterable[bytes]) -> None:
        """Take whole lines of the receiver's log."""
        for line in lines:
            told = json.loads(line)
            name = str(told["id"]).rpartition("-")[0]
            call = Call(
                at_s=told["t"],
                attempt=told["attempt"],
                sha256=told["sha256"],
                path=told["path"],
            )
            self.calls.setdefault(name, []).append(call)

    def is_hanging(self, now_s: float) -> bool:
        """Whether a call has just come that gets no answer: its claim stands for a while."""
        return any(
            calls[-1].path.startswith("/hang") and now_s - calls[-1].at_s < FRESH_S
            for calls in self.calls.values()
        )

    def dead(self) -> dict[str, tuple[DeadLetter, Letter]]:
        """Every delivery given up, by its id; of unreadable records, by an id of their own."""
        return {
            each.delivery_id: (letter, each)
            for letter in self.letters.values()
            for each in letter.deliveries
        }


@dataclass(slots=True)
class _Epoch:
    """A ledger partition's state as far as `fold` needs it to tell what is void."""

    epoch: int = -1
    next: int = 0

    def put(self, key: bytes, fence: int | None, value: bytes) -> None:
        """Rows are not kept."""

    def delete(self, key: bytes) -> None:
        """Rows are not kept."""

    def owe(self, key: bytes) -> None:
        """Debts are not kept."""

    def pay(self, key: bytes) -> None:
        """Debts are not kept."""
