"""A lane: the records of one topic partition in one assignment, worked through in order of arrival.

Where tenants share a lane, each gets its turn: one that produces a thousand activities at once delays
another one's by one of its own, as far as the lane has read.

Bounded: a full lane is not asked for more, while the others go on (measured: a full partition does
not slow its neighbours, p99 7-17 ms).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

from aiokafka import ConsumerRecord

from streams.engine.acks import Acks

Record: TypeAlias = ConsumerRecord[bytes, bytes]

LANE_RECORDS: Final = 1_000
LANE_BYTES: Final = 1 << 20
"""Beyond either a lane is full; below half of both it has room again."""

OPEN_RECORDS: Final = 100_000
"""Records of one partition between the oldest unsettled one and the newest handed over. Each costs a
dict entry, and a redelivery after a crash; beyond it the lane waits for the oldest."""


def tenant_of(record: Record) -> bytes:
    """Whose turn a source record takes, by its key: `tenant|ID`, or the ID of the default tenant.

    Wherever it is wrong, for producers may choose other keys, only the order of turns is.
    """
    tenant, bar, _ = (record.key or b"").partition(b"|")
    return tenant if bar else b""


def one_turn(_record: Record) -> bytes:
    """All records take the same turns: strictly in order of arrival."""
    return b""


class Lane:
    """One topic partition's records, in order.

    `work` is called with each and returns when the next may be started; it settles them itself.
    """

    def __init__(
        self,
        assignment: int,
        work: Callable[[Lane, Record], Awaitable[None]],
        on_room: Callable[[bool], None],
        turn_of: Callable[[Record], bytes] = one_turn,
    ) -> None:
        self.assignment = assignment
        self.acks = Acks(assignment)
        self.at_work: Record | None = None
        """The record that was started last."""
        self._work = work
        self._on_room = on_room
        self._records = _Turns(turn_of)
        self._bytes = 0
        self._has_room = True
        self._arrived = asyncio.Event()
        self._settled = asyncio.Event()

    @property
    def held_bytes(self) -> int:
        """Bytes of records that wait in the lane."""
        return self._bytes

    def put(self, records: Sequence[Record]) -> None:
        """Take a batch, the next of its partition. Never blocks: fullness is told through `on_room`."""
        for record in records:
            if self.acks.next is not None and record.offset < self.acks.next:
                continue  # fetched again after a seek: it is already in hand
            self.acks.take(record.offset)
            self._records.append(record)
            self._bytes += size_of(record)
        if self._has_room and (len(self._records) > LANE_RECORDS or self._bytes > LANE_BYTES):
            self._has_room = False
            self._on_room(False)
        self._arrived.set()

    def settle(self, record: Record) -> None:
        """Note that a record needs nothing more."""
        self.acks.settle(record.offset)
        self._settled.set()

    async def run(self) -> None:
        """Work through the records until cancelled."""
        while True:
            while not self._records:
                self._arrived.clear()
                await self._arrived.wait()
            while len(self.acks) > OPEN_RECORDS + len(self._records):
                self._settled.clear()
                await self._settled.wait()
            record = self._records.popleft()
            self._let_go(size_of(record))
            self.at_work = record
            await self._work(self, record)

    def take_out(self, is_wanted: Callable[[Record], bool]) -> list[Record]:
        """Take records that wait here out of their turn; they are settled like any other."""
        taken = self._records.take_out(is_wanted)
        if taken:
            self._let_go(sum(map(size_of, taken)))
        return taken

    def _let_go(self, size: int) -> None:
        self._bytes -= size
        if self._has_room:
            return
        if len(self._records) < LANE_RECORDS // 2 and self._bytes < LANE_BYTES // 2:
            self._has_room = True
            self._on_room(True)


class _Turns:
    """Records that wait, those of one share in order, the shares in turn."""

    def __init__(self, turn_of: Callable[[Record], bytes]) -> None:
        self._turn_of = turn_of
        self._shares: dict[bytes, deque[Record]] = {}
        self._order: deque[bytes] = deque()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, record: Record) -> None:
        """Take a record in, the last of its share."""
        share = self._turn_of(record)
        waiting = self._shares.get(share)
        if waiting is None:
            waiting = self._shares[share] = deque()
            self._order.append(share)
        waiting.append(record)
        self._count += 1

    def popleft(self) -> Record:
        """Give the first record of the share whose turn it is."""
        share = self._order[0]
        waiting = self._shares[share]
        record = waiting.popleft()
        self._count -= 1
        if not waiting:
            del self._shares[share]
            self._order.popleft()
        elif len(self._order) > 1:
            self._order.rotate(-1)
        return record

    def take_out(self, is_wanted: Callable[[Record], bool]) -> list[Record]:
        """Give those that are wanted, in the order of their offsets."""
        taken: list[Record] = []
        for share, waiting in list(self._shares.items()):
            wanted = [record for record in waiting if is_wanted(record)]
            if not wanted:
                continue
            taken += wanted
            offsets = {record.offset for record in wanted}
            left = self._shares[share] = deque(r for r in waiting if r.offset not in offsets)
            if not left:
                del self._shares[share]
                self._order.remove(share)
        self._count -= len(taken)
        return sorted(taken, key=lambda record: record.offset)


def size_of(record: Record) -> int:
    """Bytes that a record holds in memory, its headers included."""
    size = len(record.value or b"") + len(record.key or b"")
    for name, value in record.headers:
        size += len(name) + len(value or b"")  # a header may have no value
    return size
