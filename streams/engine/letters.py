"""Dead letters: derived from the folded rows, one record per activity, fenced like the ledger.

At most one rewrite a second per activity. The owner reads its dead-letter partition back and writes
again where the last record is not what the ledger says: a frozen worker's old record, or one that
landed over a tombstone (ledger.md, rule 10).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import structlog

from streams.engine.partition import Partition
from streams.engine.ports import Time
from streams.model.ledger import ActivityRow, Row
from streams.model.receipt import DeadLetter
from streams.rules.triggers import letters_of
from streams.wire.codec import encode_dead_letter

log = structlog.get_logger(__name__)

REWRITE_S: Final = 1.0
"""The shortest time between two rewrites of one activity's dead letter (interface.md §3)."""

COMPLETE_S: Final = 5.0
COMPLETE_MAX_S: Final = 30.0
"""How often, and for how long, the one ERROR line waits for the activity's other deliveries to settle."""


class LetterLog(Protocol):
    """Appends to the dead-letter topic."""

    def append_letter(
        self, partition: int, key: bytes, value: bytes | None, ledger_offset: int
    ) -> asyncio.Future[int]:
        """Append a dead letter or its tombstone; done when durable."""


@dataclass(slots=True)
class _Writing:
    """One activity's dead letter as this worker writes it."""

    partition: Partition
    waiting: list[asyncio.Future[bool]] = field(default_factory=list)
    scheduled: bool = False
    last_at: float = 0.0
    last_value: bytes | None = None
    last_epoch: int = -1
    in_flight: int = 0
    told: bool = False
    first_dead_at: float = 0.0


class Letters:
    """Writes the dead letters of the partitions that this worker leads."""

    def __init__(
        self, log_: LetterLog, time: Time, *, on_dead: Callable[[DeadLetter], None]
    ) -> None:
        self._log = log_
        self._time = time
        self._on_dead = on_dead
        self._writing: dict[bytes, _Writing] = {}
        self._unwritten: Counter[int] = Counter()

    def has_written_all(self, partition: Partition) -> bool:
        """Whether nothing of a partition's waits to be written or is on its way.

        Only then may the place up to which its letters were read be kept: a correction that a crash
        takes must be found to be needed again.
        """
        return not self._unwritten[partition.index]

    async def write(self, partition: Partition, activity_key: bytes) -> None:
        """Write the activity's dead letter as its rows now say; done when durable.

        Waits while a stray OWNER is overruled: what is acknowledged without its dead letter has none.
        Where the assignment is over it is done as well; the next owner derives the letter anew.
        """
        assignment = partition.assignment
        while assignment and await partition.until_led(assignment):
            done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            self._schedule(partition, activity_key).waiting.append(done)
            if await done:
                return

    def _schedule(self, partition: Partition, key: bytes) -> _Writing:
        writing = self._writing.get(key)
        if writing is None or writing.partition is not partition:
            writing = self._writing[key] = _Writing(partition)
        if not writing.scheduled:
            writing.scheduled = True
            self._unwritten[partition.index] += 1
            due_s = max(0.0, writing.last_at + REWRITE_S - self._time.monotonic())
            asyncio.get_running_loop().call_later(due_s, self._flush, key, writing)
        return writing

    def _flush(self, key: bytes, writing: _Writing) -> None:
        writing.scheduled = False
        waiting, writing.waiting = writing.waiting, []
        partition = writing.partition
        activity = partition.activity(key)
        if not partition.leads or activity is None:
            # A command may name an activity that nobody knows: nothing is owed for it.
            self._unwritten[partition.index] -= 1
            _release(waiting, written=partition.leads)
            return
        rows = partition.deliveries(key)
        letter = letters_of(activity, rows)
        value = None if letter is None else encode_dead_letter(letter)
        writing.last_at, writing.last_value = self._time.monotonic(), value
        writing.last_epoch = partition.store.epoch
        writing.in_flight += 1
        written = self._log.append_letter(partition.index, key, value, partition.store.next)
        written.add_done_callback(lambda done: self._written(done, writing, waiting))
        if letter is None:
            writing.told, writing.first_dead_at = False, 0.0  # what dies again is told again
        elif not writing.told:
            writing.first_dead_at = writing.first_dead_at or self._time.monotonic()
            self._tell(key, writing, activity, rows, letter)
        asyncio.get_running_loop().call_later(COMPLETE_MAX_S * 2, self._forget, key, writing)

    def _written(
        self, done: asyncio.Future[int], writing: _Writing, waiting: list[asyncio.Future[bool]]
    ) -> None:
        writing.in_flight -= 1
        self._unwritten[writing.partition.index] -= 1
        error = None if done.cancelled() else done.exception()
        if error is None:
            _release(waiting, written=True)
            return
        for future in waiting:
            if not future.done():
                future.set_exception(error)

    def _tell(
        self,
        key: bytes,
        writing: _Writing,
        activity: ActivityRow,
        rows: list[Row],
        letter: DeadLetter,
    ) -> None:
        """One ERROR line per exhausted activity (O-020): when nothing of it is open any more, or soon."""
        settled = sum(1 for row in rows if row.phase.is_settled)
        waited_s = self._time.monotonic() - writing.first_dead_at
        if settled < activity.deliveries and waited_s < COMPLETE_MAX_S:
            asyncio.get_running_loop().call_later(COMPLETE_S, self._tell_again, key, writing)
            return
        writing.told = True
        self._on_dead(letter)

    def _tell_again(self, key: bytes, writing: _Writing) -> None:
        partition = writing.partition
        activity = partition.activity(key)
        if writing.told or not partition.leads or activity is None:
            return
        rows = partition.deliveries(key)
        letter = letters_of(activity, rows)
        if letter is not None:
            self._tell(key, writing, activity, rows, letter)

    def _forget(self, key: bytes, writing: _Writing) -> None:
        idle = not writing.scheduled and not writing.in_flight
        old = self._time.monotonic() - writing.last_at >= COMPLETE_MAX_S * 2
        if idle and old and self._writing.get(key) is writing:
            del self._writing[key]

    def read_back(
        self, partition: Partition, records: Sequence[tuple[bytes, bytes | None]]
    ) -> None:
        """Compare what the topic holds with what the ledger says (rule 10).

        Args:
            records: Key and value of records derived from the ledger, in topic order.
        """
        for key, value in dict(records).items():
            writing = self._writing.get(key)
            if writing is not None and writing.scheduled:
                continue  # what we write next lands after this one; what is on its way may not
            if writing is not None and _is_last(writing, value):
                continue
            activity = partition.activity(key)
            if activity is None:
                expected = None
            else:
                letter = letters_of(activity, partition.deliveries(key))
                expected = None if letter is None else encode_dead_letter(letter)
            if value != expected and activity is not None:
                log.warning("dead_letter.rewritten", partition=partition.index)
                self._schedule(partition, key)


def _is_last(writing: _Writing, value: bytes | None) -> bool:
    """Whether it is what we wrote last, and nobody led since: then the rows say so still."""
    return writing.last_epoch == writing.partition.store.epoch and writing.last_value == value


def _release(waiting: list[asyncio.Future[bool]], *, written: bool) -> None:
    for future in waiting:
        if not future.done():
            future.set_result(written)
