"""One worker: its partitions from assignment to loss, their lanes, the tail, and a clean end.

faust says which partitions are ours; everything after that happens here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

import structlog
from aiokafka import ConsumerRecord
from faust.types import TP

from streams.edge.appender import Appender
from streams.edge.log import Tail, read_all
from streams.edge.store import Store
from streams.edge.telemetry import Metrics
from streams.engine.consumer import Wanted
from streams.engine.held import Held
from streams.engine.lanes import Lane, Record
from streams.engine.ledger_log import KafkaLedger, ledger_records
from streams.engine.letters import Letters
from streams.engine.partition import Partition
from streams.engine.ports import Time
from streams.engine.work import Runner, Tasks
from streams.errors import FatalError
from streams.wire.records import read_ledger_offset

log = structlog.get_logger(__name__)

RESTORE_LOG_S: Final = 2.0
"""How often a long restore says how far it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTopics:
    """Full names of what the worker itself reads.

    Attributes:
        subscribed: Every topic that is consumed by group, `ledger` not among them.
    """

    ledger: str
    commands: str
    dead_letters: str
    subscribed: frozenset[str]


class Flow(Protocol):
    """What the worker asks of faust's consumer."""

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


Work = Callable[[Lane, Record], Awaitable[None]]


class Worker:
    """The engine of one process."""

    def __init__(
        self,
        *,
        topics: WorkerTopics,
        options: Mapping[str, Any],
        store: Store,
        appender: Appender,
        tail: Tail,
        letters_tail: Tail,
        time: Time,
        tasks: Tasks,
        metrics: Metrics,
        fatal: Callable[[BaseException], None],
    ) -> None:
        self.partitions: dict[int, Partition] = {}
        """Every partition that was ever ours in this process; those that are have an assignment."""
        self.wanted = Wanted()
        """The topic partitions whose lane has room; shared with the consumer."""
        self._topics = topics
        self._options = options
        self._store = store
        self._appender = appender
        self._tail = tail
        self._letters_tail = letters_tail
        self._time = time
        self._tasks = tasks
        self._metrics = metrics
        self._fatal = fatal
        self.assignment = 0
        """Counts assignments and losses of this process: what was fetched in another is void (rule 9)."""
        self._lanes: dict[TP, Lane] = {}
        self._running: list[asyncio.Task[None]] = []
        self._committed_at_start: Mapping[TP, int | None] = {}
        self._gaps: dict[TP, int] = {}

    def connect(
        self,
        *,
        flow: Flow,
        work: Mapping[str, Work],
        held: Held,
        letters: Letters,
        runner: Runner,
    ) -> None:
        """Name the parts that were built around this one.

        Args:
            work: Topic to the agent that works through its records. A topic that is subscribed and not
                named here is held uncommitted until a version with its agent comes.
        """
        self._flow = flow
        self._work = work
        self._held = held
        self._letters = letters
        self._runner = runner

    # -- assignment ---------------------------------------------------------------------------

    def lost(self, revoked: set[TP]) -> None:
        """Stop claiming at once. What is settled can still be committed until `let_go`."""
        self.assignment += 1
        for task in self._running:
            task.cancel()
        self._running.clear()
        self.wanted.clear()
        for partition in self.partitions.values():
            if partition.assignment:
                partition.revoke()
                self._tail.leave(self._topics.ledger, partition.index)
                self._letters_tail.leave(self._topics.dead_letters, partition.index)
        self._held.drop(set(self._lanes.values()))
        self._metrics.led.set(0)
        self._metrics.assigned.set(0)

    def let_go(self) -> None:
        """Forget the lanes of the assignment that is over (rule 9)."""
        self._lanes.clear()
        self._gaps.clear()

    async def gained(self, assigned: set[TP]) -> None:
        """Take the partitions; returns at once, restoring and leading go on behind."""
        self.let_go()
        self.assignment += 1
        indices = {tp.partition for tp in assigned if tp.topic in self._topics.subscribed}
        self._check_whole(assigned, indices)
        log.info("partitions.assigned", partitions=len(indices))
        self._metrics.assigned.set(len(indices))
        self._tasks.spawn(self._take(sorted(indices), self.assignment))

    def _check_whole(self, assigned: set[TP], indices: set[int]) -> None:
        """One worker must own partition p of every topic, or two would lead one ledger partition."""
        for topic in self._topics.subscribed:
            own = {tp.partition for tp in assigned if tp.topic == topic}
            if own != indices:
                self._fatal(
                    FatalError(
                        f"partitions of {topic} and of the other topics are owned apart: their counts "
                        "differ, or workers of another version are in the group; see "
                        "`outbox topics check`"
                    )
                )
                return

    async def _take(self, indices: list[int], assignment: int) -> None:
        """Restore in bulk, then seek, then resume, then own: in that order."""
        for index in indices:
            self._ensure(index)
        await self._restore(indices, assignment)
        if self.assignment != assignment:
            return
        committed = await self._flow.seek_to_committed()
        if committed is None or self.assignment != assignment:
            return
        self._committed_at_start = committed
        await self._flow.resume()
        for index in indices:
            partition = self.partitions[index]
            partition.assign(assignment)
            self._tail.follow(
                self._topics.ledger,
                index,
                partition.store.next,
                partial(self._fold, partition),
            )

    def _ensure(self, index: int) -> None:
        if index in self.partitions:
            return
        ledger = KafkaLedger(
            topic=self._topics.ledger,
            commands=self._topics.commands,
            partition=index,
            appender=self._appender,
            tail=self._tail,
        )
        partition = Partition(
            index, self._store.partition(index), ledger, self._time, self._tasks.spawn
        )
        partition.on_lead = partial(self._on_lead, partition)
        self.partitions[index] = partition

    def _fold(self, partition: Partition, records: Sequence[ConsumerRecord[bytes, bytes]]) -> None:
        partition.fold(ledger_records(records))

    async def _restore(self, indices: list[int], assignment: int) -> None:
        """Fold what the log has and the store has not, while the assignment stands."""
        await self._drop_foreign(indices, assignment)
        said = self._time.monotonic()

        async def progress(seen: int, total: int) -> None:
            nonlocal said
            if self._time.monotonic() - said >= RESTORE_LOG_S:
                said = self._time.monotonic()
                log.info("ledger.restoring", records=seen, of=total)

        def sink(index: int, records: Sequence[ConsumerRecord[bytes, bytes]]) -> None:
            if self.assignment != assignment:
                return  # the next assignment reads for itself: two readers would turn rows back
            self._fold(self.partitions[index], records)
            self._metrics.restored.inc(len(records))

        starts = {index: self.partitions[index].store.next for index in indices}
        ends = await read_all(self._options, self._topics.ledger, starts, sink, progress)
        if self.assignment != assignment:
            return
        for index, end in ends.items():
            # Compaction may have taken the last records: there is nothing to fold, and it was read.
            store = self.partitions[index].store
            if store.next < end:
                store.next = end
                store.commit()
        log.info("ledger.restored", partitions=len(indices))

    async def _drop_foreign(self, indices: list[int], assignment: int) -> None:
        """A store that is ahead of the log was folded from another log: fold anew."""
        ends = await self._tail.end_offsets(self._topics.ledger, indices)
        if self.assignment != assignment:
            return
        for index in indices:
            store = self.partitions[index].store
            if store.next > ends[index]:
                log.error("store.ahead_of_log", partition=index, action="rebuilt from the topic")
                self.partitions[index].forget()

    # -- lanes --------------------------------------------------------------------------------

    def _on_lead(self, partition: Partition) -> None:
        """Open the lanes of a partition that we came to lead, once per assignment."""
        assignment = partition.assignment
        self._metrics.led.set(sum(1 for p in self.partitions.values() if p.leads))
        for topic, work in self._work.items():
            tp = TP(topic, partition.index)
            if tp in self._lanes:
                continue
            lane = Lane(assignment, work, partial(self._on_room, tp))
            self._lanes[tp] = lane
            self._running.append(self._tasks.spawn(lane.run()))
            self.wanted.add(tp)
        self._letters_tail.follow(
            self._topics.dead_letters,
            partition.index,
            partition.store.letters_next,
            partial(self._read_letters, partition),
        )
        self._flow.room()

    def _read_letters(
        self, partition: Partition, records: Sequence[ConsumerRecord[bytes, bytes]]
    ) -> None:
        derived = [
            (record.key or b"", record.value)
            for record in records
            if read_ledger_offset(record.headers) is not None
        ]
        if not partition.leads:
            return  # read again from where we stood, once we lead
        self._letters.read_back(partition, derived)
        if self._letters.has_written_all(partition):
            partition.store.letters_read(records[-1].offset + 1)

    def _on_room(self, tp: TP, has_room: bool) -> None:
        if has_room:
            self.wanted.add(tp)
            self._flow.room()
        else:
            self.wanted.discard(tp)

    async def feed(self, tp: TP, records: Sequence[Record], assignment: int) -> None:
        """Take a batch of one partition; one that is not led any more is read again by its next owner."""
        lane = self._lanes.get(tp)
        if lane is None or assignment != self.assignment:
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
        if self._gaps.get(tp) == expected:
            return False
        self._gaps[tp] = expected
        return True

    # -- commits ------------------------------------------------------------------------------

    def committable(self) -> dict[TP, int]:
        """The contiguous prefix of what is settled, per topic partition."""
        found = {}
        for tp, lane in self._lanes.items():
            offset = lane.acks.committable()
            if offset is not None:
                found[tp] = offset
        return found

    def committed(self, offsets: Mapping[TP, int]) -> None:
        """Note what was committed."""
        for tp, offset in offsets.items():
            if tp in self._lanes:
                self._lanes[tp].acks.committed = offset

    # -- state --------------------------------------------------------------------------------

    def measure(self) -> None:
        """Set the gauges; called when somebody asks for metrics."""
        m = self._metrics
        m.in_flight.set(self._runner.in_flight)
        m.held.set(len(self._held))
        m.held_bytes.set(self._held.bytes + sum(lane.held_bytes for lane in self._lanes.values()))
        m.led.set(sum(1 for p in self.partitions.values() if p.leads))
        m.debts.set(sum(len(p.store.owed) for p in self.partitions.values() if p.assignment))
        m.unsettled.set(sum(len(lane.acks) for lane in self._lanes.values()))

    def unready(self) -> list[str]:
        """Why the worker is not ready: one line per reason, empty when it is."""
        assigned = [p for p in self.partitions.values() if p.assignment]
        if not assigned:
            return ["no partition is assigned yet"]
        waiting = [p.index for p in assigned if not p.leads]
        return [f"partition {index} is not led yet" for index in waiting]

    async def drain(self, timeout_s: float) -> int:
        """Start nothing new, wait for what runs; say how many deliveries were left."""
        for task in self._running:
            task.cancel()
        self._running.clear()
        self.wanted.clear()
        for partition in self.partitions.values():
            partition.close()
        return await self._runner.drain(timeout_s)
