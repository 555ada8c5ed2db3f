"""A worker's store in memory, with the promises of the real one, and a log with those of a topic."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from struct import Struct
from typing import TypeAlias, TypeVar

from aiokafka import ConsumerRecord

from streams.edge.store import StoredRow
from streams.model.ledger import OWNER_KEY
from streams.rules.fold import LedgerRecord, fold

T = TypeVar("T")

_FENCE = Struct(">q")
_KEEP = -2

Record: TypeAlias = ConsumerRecord[bytes, bytes]


@dataclass
class State:
    """What one fold of a log prefix comes to: rows, debts, epoch and position."""

    rows: dict[bytes, bytes] = field(default_factory=dict)
    owed: dict[bytes, int] = field(default_factory=dict)
    epoch: int = -1
    next: int = 0
    incarnation: bytes = bytes(16)
    ages: frozenset[tuple[int, bytes]] = frozenset()
    """When which activity's end of life is to be looked at; the log does not say it."""

    def copy(self) -> State:
        """The same, not shared."""
        return replace(self, rows=dict(self.rows), owed=dict(self.owed))

    def facts(self) -> tuple[dict[bytes, bytes], set[bytes], int]:
        """What two readers of the same log must agree on."""
        return self.rows, set(self.owed), self.epoch


class MemoryStore:
    """`edge.store.PartitionStore` in memory: reads see what was written, `commit` keeps it all at once."""

    def __init__(self, kept: State | None = None, letters_next: int = 0) -> None:
        self.state = kept.copy() if kept is not None else State()
        self.kept = self.state.copy()
        """What a process that starts anew would find."""
        self.older = self.state.copy()
        """What it might find where the machine went down as well: an earlier commit."""
        self.letters_next = letters_next
        self.letters_before = letters_next
        """What goes with `older`."""
        self._dirty: set[bytes] = set()
        self._commits = 0

    @property
    def epoch(self) -> int:
        return self.state.epoch

    @epoch.setter
    def epoch(self, value: int) -> None:
        self.state.epoch = value

    @property
    def next(self) -> int:
        return self.state.next

    @next.setter  # noqa: A003  # the store's own name for it
    def next(self, value: int) -> None:
        self.state.next = value

    @property
    def incarnation(self) -> bytes:
        return self.state.incarnation

    @incarnation.setter
    def incarnation(self, value: bytes) -> None:
        self.state.incarnation = value

    def put(self, key: bytes, fence: int | None, value: bytes) -> None:
        self.state.rows[key] = _FENCE.pack(_KEEP if fence is None else fence) + value
        self._dirty.add(key)

    def delete(self, key: bytes) -> None:
        self.state.rows.pop(key, None)
        self._dirty.add(key)

    def age(self, key: bytes, at_ms: int) -> None:
        self.state.ages |= {(at_ms, key)}

    def aged(self, before_ms: int, limit: int) -> list[tuple[int, bytes]]:
        return sorted(entry for entry in self.kept.ages if entry[0] < before_ms)[:limit]

    def looked_at(self, key: bytes, at_ms: int) -> None:
        self.state.ages -= {(at_ms, key)}

    def owe(self, key: bytes) -> None:
        self.state.owed.setdefault(key, self.state.next - 1)
        self._dirty.add(key)

    def pay(self, key: bytes) -> None:
        self.state.owed.pop(key, None)
        self._dirty.add(key)

    @property
    def owed(self) -> frozenset[bytes]:
        return frozenset(self.state.owed)

    def get(self, key: bytes) -> StoredRow | None:
        raw = self.state.rows.get(key)
        return None if raw is None else StoredRow(raw)

    def under(self, prefix: bytes) -> list[tuple[bytes, StoredRow]]:
        rows = self.state.rows
        return [(key, StoredRow(rows[key])) for key in sorted(rows) if key.startswith(prefix)]

    def commit(self) -> None:
        kept, state = self.kept, self.state
        self._commits += 1
        if self._commits % 7 == 0:
            self.older, self.letters_before = kept.copy(), self.letters_next
        for key in self._dirty:
            _copy(state.rows, kept.rows, key)
            _copy(state.owed, kept.owed, key)
        kept.epoch, kept.next, kept.ages = state.epoch, state.next, state.ages
        kept.incarnation = state.incarnation
        self._dirty.clear()

    def letters_read(self, offset: int) -> None:
        self.letters_next = offset

    def forget(self) -> None:
        self.state, self.letters_next = State(), 0
        self.kept = self.state.copy()


def _copy(source: dict[bytes, T], target: dict[bytes, T], key: bytes) -> None:
    if key in source:
        target[key] = source[key]
    else:
        target.pop(key, None)


class Topic:
    """One partition of a topic: records at rising offsets, some of which compaction takes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.records: list[Record] = []
        self.end = 0

    def land(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes]],
        timestamp_ms: int,
    ) -> Record:
        """Append a record."""
        record: Record = ConsumerRecord(
            topic=self.name,
            partition=0,
            offset=self.end,
            timestamp=timestamp_ms,
            timestamp_type=0,
            key=key,
            value=value,
            checksum=None,
            serialized_key_size=-1,
            serialized_value_size=-1,
            headers=tuple(headers),
        )
        self.records.append(record)
        self.end += 1
        return record

    def read(self, position: int, limit: int = 1_000) -> list[Record]:
        """Up to `limit` records from `position` on."""
        at = bisect_left(self.records, position, key=lambda record: record.offset)
        return self.records[at : at + limit]

    def compact(self, boundary: int) -> int:
        """Keep, below `boundary`, the last record of each key; say how many went."""
        last = {r.key: r.offset for r in self.records if r.offset < boundary}
        before = len(self.records)
        self.records = [r for r in self.records if r.offset >= boundary or last[r.key] == r.offset]
        return before - len(self.records)


def replay(records: Sequence[LedgerRecord], start: State | None = None) -> State:
    """What folding `records` makes of `start`: the reader that all others are compared with."""
    store = MemoryStore(start)
    for record in records:
        if record.offset >= store.next:
            fold(store, record)
    return store.state


def without(records: Sequence[LedgerRecord], boundary: int) -> list[LedgerRecord]:
    """What compaction leaves of `records` when it reaches up to `boundary`."""
    last = {r.key: r.offset for r in records if r.offset < boundary}
    return [r for r in records if r.offset >= boundary or last[r.key] == r.offset]


def name(key: bytes) -> str:
    """A key for people."""
    return "OWNER" if key == OWNER_KEY else key.decode().replace("\x00", " > ")
