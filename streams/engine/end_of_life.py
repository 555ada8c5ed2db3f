"""Forgets what is over: tombstones for activities whose dedupe window has passed.

Entries of a time index in the store say when an activity is to be looked at. The index is not in the
log: a store that is rebuilt looks a window later than it might.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

import structlog

from streams.engine.partition import Partition
from streams.engine.ports import Time
from streams.rules.end_of_life import keep_until

log = structlog.get_logger(__name__)

SWEEP_S: Final = 60.0
"""How often partitions are looked through."""

SWEEP_MAX: Final = 1_000
"""Activities looked at per partition and sweep: 16 a second, more than a partition settles for long."""


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
                if partition.leads:
                    self.sweep(partition)
                    await asyncio.sleep(0)

    def sweep(self, partition: Partition) -> int:
        """Look at what is due in one partition; say how many activities were buried."""
        now_ms = self._time.now_ms()
        buried = 0
        for at_ms, key in partition.store.aged(now_ms - self._window_ms, SWEEP_MAX):
            partition.store.looked_at(key, at_ms)
            activity, rows = partition.activity(key), partition.deliveries(key)
            if activity is None and not rows:
                continue
            kept_ms = keep_until(activity, rows, now_ms=now_ms, dedupe_window_ms=self._window_ms)
            if kept_ms is None:
                buried += partition.bury(key)
            # Looked at until nothing is left: of the tombstones some may be void, or lost in a crash.
            # `aged` counts from a beginning, `keep_until` names an end.
            again_ms = (now_ms if kept_ms is None else kept_ms) - self._window_ms
            partition.store.age(key, max(again_ms, at_ms + 1))
        partition.store.commit()
        if buried:
            log.info("activities.forgotten", partition=partition.index, activities=buried)
        return buried
