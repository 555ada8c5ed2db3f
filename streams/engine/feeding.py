"""What was fetched on its way to the lanes of the present assignment, and what may be committed of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Protocol

import structlog
from faust.types import TP

from streams.edge.telemetry import Metrics
from streams.engine.consumer import Wanted
from streams.engine.lanes import Lane, Record, one_turn, tenant_of
from streams.engine.work import Tasks

log = structlog.get_logger(__name__)

Work = Callable[[Lane, Record], Awaitable[None]]


class Flow(Protocol):
    """What the engine asks of faust's consumer."""

    async def seek_to_committed(self) -> Mapping[TP, int | None] | None:
        """Stand at what is committed, with no poll under way; the flow stays stopped.

        Returns:
            Topic partition to committed offset; None when the group was rebalanced meanwhile: the next
            assignment is about to be told.
        """

    async def resume(self) -> None:
        """Let records come."""

    async def seek(self, tp: TP, offset: int) -> None:
        """Read one partition again from `offset`, unless it is not ours any more."""

    def room(self) -> None:
        """A lane has room again."""


class Feeder:
    """The lanes of one assignment after the other."""

    def __init__(self, tasks: Tasks, metrics: Metrics) -> None:
        self.wanted = Wanted()
        """The topic partitions whose lane has room; shared with the consumer."""
        self.lanes: dict[TP, Lane] = {}
        self.gaps: Counter[int] = Counter()
        """Holes in what was handed over, by partition, in this assignment."""
        self._tasks = tasks
        self._metrics = metrics
        self._running: list[asyncio.Task[None]] = []
        self._committed_at_start: Mapping[TP, int | None] = {}
        self._seen_gaps: dict[TP, int] = {}

    def connect(self, flow: Flow, work: Mapping[str, Work], fair: Collection[str] = ()) -> None:
        """Name the parts that were built around this one.

        Args:
            work: Topic to its agent.
            fair: Topics in which tenants take turns; in all others records are worked on in order.
        """
        self._flow = flow
        self._work = work
        self._fair = frozenset(fair)

    def reads(self, topic: str) -> bool:
        """Whether an agent works through the records of a topic."""
        return topic in self._work

    # -- an assignment --------------------------------------------------------------------------

    def start(self, committed: Mapping[TP, int | None]) -> None:
        """An assignment begins, with the offsets at which its records do."""
        self._committed_at_start = committed

    def open(self, partition: int, assignment: int) -> None:
        """Open the lanes of a partition that is led, once per assignment."""
        for topic, work in self._work.items():
            tp = TP(topic, partition)
            if tp in self.lanes:
                continue
            turn_of = tenant_of if topic in self._fair else one_turn
            lane = Lane(assignment, work, partial(self._on_room, tp), turn_of)
            self.lanes[tp] = lane
            self._running.append(self._tasks.spawn(lane.run()))
            self.wanted.add(tp)
        self._flow.room()

    def stop(self) -> None:
        """Start nothing more. What is settled can still be committed until `let_go`."""
        for task in self._running:
            task.cancel()
        self._running.clear()
        self.wanted.clear()

    def let_go(self) -> None:
        """Forget the lanes of the assignment that is over (rule 9)."""
        self.lanes.clear()
        self.gaps.clear()
        self._seen_gaps.clear()

    def _on_room(self, tp: TP, has_room: bool) -> None:
        if has_room:
            self.wanted.add(tp)
            self._flow.room()
        else:
            self.wanted.discard(tp)

    # -- records --------------------------------------------------------------------------------

    async def feed(self, tp: TP, records: Sequence[Record]) -> None:
        """Take a batch of one partition; one that is not led any more is read again by its next owner."""
        lane = self.lanes.get(tp)
        if lane is None:
            return
        expected = lane.acks.next
        if expected is None:
            expected = self._committed_at_start.get(tp)
        if expected is not None and records[0].offset > expected and self._is_new_gap(tp, expected):
            # Control records and compaction leave gaps for good; a hand-over that lost records does
            # not: the second read finds them (upstream #596).
            at, to = expected, records[0].offset
            log.warning("partition.gap", topic=tp.topic, partition=tp.partition, at=at, to=to)
            await self._flow.seek(tp, expected)
            return
        lane.put(records)

    def _is_new_gap(self, tp: TP, expected: int) -> bool:
        if self._seen_gaps.get(tp) == expected:
            return False
        self._seen_gaps[tp] = expected
        self.gaps[tp.partition] += 1
        self._metrics.gaps.inc()
        return True

    # -- commits --------------------------------------------------------------------------------

    def committable(self) -> dict[TP, int]:
        """The contiguous prefix of what is settled, per topic partition."""
        found = {}
        for tp, lane in self.lanes.items():
            offset = lane.acks.committable()
            if offset is not None:
                found[tp] = offset
        return found

    def committed(self, offsets: Mapping[TP, int]) -> None:
        """Note what was committed."""
        for tp, offset in offsets.items():
            if tp in self.lanes:
                self.lanes[tp].acks.committed = offset
