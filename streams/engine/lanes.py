"""A lane: the records of one topic partition in one assignment, worked through in order of arrival.

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


class Lane:
    """One topic partition's records, in order.

    `work` is called with each and returns when the next may be started; it settles them itself.
    """

    def __init__(
        self,
        assignment: int,
        work: Callable[[Lane, Record], Awaitable[None]],
        on_room: Callable[[bool], None],
    ) -> None:
        self.assignment = assignment
        self.acks = Acks(assignment)
        self._work = work
        self._on_room = on_room
        self._records: deque[Record] = deque()
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
            self._let_go([record])
            await self._work(self, record)

    def take_out(self, is_wanted: Callable[[Record], bool]) -> list[Record]:
        """Take records that wait here out of their turn; they are settled like any other."""
        taken = [record for record in self._records if is_wanted(record)]
        if taken:
            offsets = {record.offset for record in taken}
            self._records = deque(r for r in self._records if r.offset not in offsets)
            self._let_go(taken)
        return taken

    def _let_go(self, records: Sequence[Record]) -> None:
        self._bytes -= sum(map(size_of, records))
        half = len(self._records) < LANE_RECORDS // 2 and self._bytes < LANE_BYTES // 2
        if not self._has_room and half:
            self._has_room = True
            self._on_room(True)


def size_of(record: Record) -> int:
    """Bytes that a record holds in memory, its headers included."""
    size = len(record.value or b"") + len(record.key or b"")
    for name, value in record.headers:
        size += len(name) + len(value or b"")  # a header may have no value
    return size
