"""Feeds a view from Kafka, outside any group: in bulk to the present end, then as records come."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

import structlog
from aiokafka import ConsumerRecord
from aiokafka.admin import AIOKafkaAdminClient

from streams.api.rebuild import rebuild
from streams.api.tokens import AUDIT, TARGETS, Positions, ledger_name, letters_name
from streams.api.view import View
from streams.edge.clock import Clock
from streams.edge.cluster import PATIENCE_MS, explained
from streams.edge.log import Tail, read_all

log = structlog.get_logger(__name__)

Record: TypeAlias = ConsumerRecord[bytes, bytes]

AT_ONCE: Final = 250
"""Records taken in one turn of the loop: 10 ms and less, so that answers go out between."""

LOOK_S: Final = 0.25
"""How often the view is compared with the ends of the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The topics that a view is made of."""

    ledger: str
    letters: str
    audit: str
    targets: str


async def cluster_id(options: Mapping[str, Any]) -> str:
    """Names the cluster, so that a view of another one is not taken for its own.

    Raises:
        TopicsError: no Kafka answers.
    """
    with explained(options):
        admin = AIOKafkaAdminClient(request_timeout_ms=PATIENCE_MS, **options)
        try:
            await admin.start()
            described = await admin.describe_cluster()
        finally:
            await admin.close()
    return str(described.get("cluster_id") or "")


class Feed:
    """Keeps a view up to date and knows how far it is behind.

    Args:
        client_id: Names us to the brokers.
    """

    def __init__(
        self,
        view: View,
        sources: Sources,
        options: Mapping[str, Any],
        *,
        client_id: str,
        clock: Clock,
    ) -> None:
        self._view = view
        self._options = options
        self._tail = Tail(options, client_id=client_id)
        self._clock = clock
        self._queue: deque[tuple[Callable[[Sequence[Record]], None], Sequence[Record]]] = deque()
        self._filled = asyncio.Event()
        self._drained = asyncio.Event()
        self._drained.set()
        self._current_at: float | None = None
        self._ends = Positions({})
        self._looks = 0
        self._ledger = sources.ledger
        self._read = self._routes(sources)
        self.is_ready = view.db.is_complete
        """Whether the view may be asked: it has seen the log to its end once, now or before."""

    def _routes(
        self, sources: Sources
    ) -> dict[tuple[str, int], tuple[str, Callable[[Sequence[Record]], None]]]:
        """By topic and partition: its name in positions, and what takes its records."""
        view = self._view
        routes: dict[tuple[str, int], tuple[str, Callable[[Sequence[Record]], None]]] = {
            (sources.targets, 0): (TARGETS, view.take_targets),
            (sources.audit, 0): (AUDIT, view.take_audit),
        }
        for p in range(view.partitions):
            routes[sources.letters, p] = (
                letters_name(p),
                partial(view.take_letters, p),
            )
            routes[sources.ledger, p] = (
                ledger_name(p),
                partial(view.take_ledger, p),
            )
        return routes

    @property
    def behind_s(self) -> float | None:
        """Seconds since the view held all that the log held; None where it never did."""
        if self._current_at is not None:
            return max(0.0, self._clock.monotonic() - self._current_at)
        alive_ms = self._view.db.alive_ms
        return max(0.0, (self._clock.now_ms() - alive_ms) / 1_000) if alive_ms else None

    def looks(self) -> int:
        """See `asking.Freshness`."""
        return self._looks

    def is_beyond(self, wanted: Positions) -> bool:
        """See `asking.Freshness`."""
        return not self._ends.covers(wanted)

    async def run(self) -> None:
        """Feed the view until cancelled.

        Raises:
            StreamsError: the log cannot be read; the API must not go on showing an old view.
        """
        try:
            with explained(self._options):
                await self._tail.start()
            if not self._view.db.is_complete:
                await self._rebuild()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._take())
                await self._catch_up()
                group.create_task(self._tail.run())
                await self._look()
        finally:
            await self._tail.stop()

    async def _rebuild(self) -> None:
        with explained(self._options):
            ends = await self._tail.end_offsets(self._ledger, range(self._view.partitions))
            await rebuild(self._view, self._options, self._ledger, ends)

    async def _catch_up(self) -> None:
        """Read to the present ends in bulk; a log that is shorter than what we read is another one."""
        by_topic: dict[str, dict[int, int]] = {}
        for (topic, p), (name, _) in self._read.items():
            by_topic.setdefault(topic, {})[p] = self._view.position(name)
        ends: dict[tuple[str, int], int] = {}
        for topic, starts in by_topic.items():
            with explained(self._options):
                read = await read_all(
                    self._options,
                    topic,
                    starts,
                    partial(self._put, topic),
                    self._until_drained,
                )
            if any(end < starts[p] for p, end in read.items()):
                log.warning("view.dropped", topic=topic, action="the log is shorter: read anew")
                await self._drained.wait()
                self.is_ready = False
                await self._rebuild()
                await self._catch_up()
                return
            ends |= {(topic, p): end for p, end in read.items()}
        await self._drained.wait()
        for (topic, p), end in ends.items():
            self._tail.follow(topic, p, end, partial(self._put, topic, p))
        self._view.db.complete(self._clock.now_ms())
        self.is_ready = True
        self._view.wake()
        log.info("view.ready")

    async def _until_drained(self, _seen: int, _total: int) -> None:
        await self._drained.wait()

    def _put(self, topic: str, partition: int, records: Sequence[Record]) -> None:
        _, take = self._read[topic, partition]
        self._queue.append((take, records))
        self._drained.clear()
        self._filled.set()

    async def _take(self) -> None:
        """Take what was read, a little in each turn of the loop."""
        while True:
            await self._filled.wait()
            while self._queue:
                take, records = self._queue.popleft()
                for start in range(0, len(records), AT_ONCE):
                    take(records[start : start + AT_ONCE])
                    await asyncio.sleep(0)
            self._filled.clear()
            self._drained.set()

    async def _look(self) -> None:
        """Compare the view with the ends of the log, again and again."""
        by_topic: dict[str, list[int]] = {}
        for topic, p in self._read:
            by_topic.setdefault(topic, []).append(p)
        noted_at = self._clock.monotonic()
        while True:
            asked_at = self._clock.monotonic()
            ends = {
                (topic, p): end
                for topic, partitions in by_topic.items()
                for p, end in (await self._tail.end_offsets(topic, partitions)).items()
            }
            self._ends = Positions({self._read[at][0]: end for at, end in ends.items()})
            self._looks += 1
            self._view.wake()
            await self._until_read(ends)
            await self._drained.wait()
            self._current_at = asked_at
            if asked_at - noted_at > 60:
                noted_at = asked_at
                self._view.db.complete(self._clock.now_ms())
            await asyncio.sleep(LOOK_S)

    async def _until_read(self, ends: Mapping[tuple[str, int], int]) -> None:
        for (topic, p), end in ends.items():
            # The client tells of no position that it passes without a record, so it is asked.
            while await self._tail.read_position(topic, p) < end:  # noqa: ASYNC110
                await asyncio.sleep(LOOK_S / 5)
