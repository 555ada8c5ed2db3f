"""Forgets what is over: tombstones for activities whose dedupe window has passed.

Entries of a time index in the store say when an activity is to be looked at. The index is not in the
log: a store that is rebuilt looks a window later than it might.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Final

import structlog

from streams.engine.partition import Partition
from streams.engine.ports import Time
from streams.rules.end_of_life import keep_until

log = structlog.get_logger(__name__)

SWEEP_S: Final = 60.0
"""How often partitions are looked through."""

READ_MAX: Final = 10_000
"""Due activities read from the index at once."""

SLICE: Final = 100
"""Activities looked at before others get their turn: some 5 ms."""

PAUSE_S: Final = 0.02
"""Between two slices: 5,000 activities a second, of which each is looked at twice."""


class EndOfLife:
    """Sweeps the partitions that this worker leads."""

    def __init__(
        self, partitions: Mapping[int, Partition], time: Time, *, dedupe_window_ms: int
    ) -> None:
        self._partitions = partitions
        self._time = time
        self._window_ms = dedupe_window_ms

    async def run(self) -> None:
        """Sweep until cancelled."""
        while True:
            await asyncio.sleep(SWEEP_S)
            for partition in list(self._partitions.values()):
                buried = 0
                for in_slice in self._slices(partition):
                    buried += in_slice
                    await asyncio.sleep(PAUSE_S)
                if buried:
                    log.info("activities.forgotten", partition=partition.index, activities=buried)

    def sweep(self, partition: Partition) -> int:
        """Look at all that is due in one partition, at once; say how many activities were buried."""
        return sum(self._slices(partition))

    def _slices(self, partition: Partition) -> Iterator[int]:
        """Look at all that is due by now, a slice at a time; give how many of each were buried.

        All of it: a bound below the rate at which activities come would let the ledger grow for ever.
        """
        now_ms, assignment = self._time.now_ms(), partition.assignment
        while partition.holds(assignment):
            due = partition.store.aged(now_ms - self._window_ms, READ_MAX)
            if not due:
                return
            for at in range(0, len(due), SLICE):
                if not partition.holds(assignment):
                    return
                yield self._look(partition, due[at : at + SLICE], now_ms)

    def _look(self, partition: Partition, due: list[tuple[int, bytes]], now_ms: int) -> int:
        buried = 0
        for at_ms, key in due:
            partition.store.looked_at(key, at_ms)
            activity, rows = partition.activity(key), partition.deliveries(key)
            if activity is None and not rows:
                continue
            kept_ms = keep_until(activity, rows, now_ms=now_ms, dedupe_window_ms=self._window_ms)
            if kept_ms is None:
                buried += partition.bury(key)
            # Looked at until nothing is left: of the tombstones some may be void, or lost in a crash.
            # `aged` counts from a beginning, `keep_until` names an end; neither lies in this sweep.
            again_ms = (now_ms if kept_ms is None else kept_ms) - self._window_ms
            partition.store.age(key, max(again_ms, at_ms + 1))
        partition.store.commit()
        return buried
