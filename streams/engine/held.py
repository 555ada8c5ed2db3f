"""Retries that woke from their bucket with time left, kept in memory until they are due.

Bounded in bytes; what does not fit goes on to a further bucket (design §5).
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections.abc import Callable
from typing import Final

from streams.engine.lanes import Lane, Record, size_of
from streams.engine.ports import Time

OVERHEAD_BYTES: Final = 600
"""What a held record costs beside its own bytes (tracemalloc: 570 B for record, headers, heap entry)."""

SLICE: Final = 4
"""Records that are put by, or are due, one after the other before others have their turn."""


class Held:
    """A heap by due time and the one timer that empties it."""

    def __init__(self, time: Time) -> None:
        self._time = time
        self._heap: list[tuple[int, int, Lane, Record]] = []
        self._number = 0
        self._sooner = asyncio.Event()
        self._places: set[tuple[int, int]] = set()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._heap)

    def cost_of(self, record: Record) -> int:
        """Bytes that holding `record` takes."""
        return size_of(record) + OVERHEAD_BYTES

    def holds(self, lane: Lane, offset: int) -> bool:
        """Whether the lane's record at this offset waits here."""
        return (id(lane), offset) in self._places

    def hold(self, due_ms: int, lane: Lane, record: Record) -> None:
        """Keep `record` until `due_ms`, epoch milliseconds."""
        self._number += 1
        self.bytes += self.cost_of(record)
        heapq.heappush(self._heap, (due_ms, self._number, lane, record))
        self._places.add((id(lane), record.offset))
        if self._heap[0][1] == self._number:
            self._sooner.set()

    def drop(self, lanes: set[Lane]) -> None:
        """Forget the records of lanes that were taken away: their next owner reads them again."""
        kept = [entry for entry in self._heap if entry[2] not in lanes]
        self.bytes = sum(self.cost_of(entry[3]) for entry in kept)
        heapq.heapify(kept)
        self._heap = kept
        self._places = {(id(lane), record.offset) for _, _, lane, record in kept}
        self._sooner.set()

    async def run(self, fire: Callable[[Lane, Record], None]) -> None:
        """Hand what is due to `fire`, until cancelled."""
        fired = 0
        while True:
            now_ms = self._time.now_ms()
            while self._heap and self._heap[0][0] <= now_ms:
                _, _, lane, record = heapq.heappop(self._heap)
                self.bytes -= self.cost_of(record)
                self._places.discard((id(lane), record.offset))
                fire(lane, record)
                fired += 1
                if not fired % SLICE:
                    await asyncio.sleep(0)
                    now_ms = self._time.now_ms()
            self._sooner.clear()
            # At most a second: the wall clock may be set while we sleep by the monotonic one.
            left_s = (self._heap[0][0] - now_ms) / 1000 if self._heap else 1.0
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._sooner.wait(), timeout=min(left_s, 1.0))
