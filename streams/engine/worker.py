"""One worker: its partitions from assignment to loss, and a clean end.

faust says which partitions are ours; everything after that happens here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog
from aiokafka import ConsumerRecord
from faust.types import TP

from streams.edge.appender import Appender
from streams.edge.log import Tail
from streams.edge.store import Store
from streams.edge.telemetry import Metrics
from streams.engine.feeding import Feeder, Flow, Work
from streams.engine.held import Held
from streams.engine.lanes import Record
from streams.engine.ledger_log import KafkaLedger, ledger_records
from streams.engine.letters import Letters
from streams.engine.partition import Partition
from streams.engine.ports import Time
from streams.engine.restoring import Restorer
from streams.engine.work import Runner, Tasks
from streams.errors import FatalError
from streams.wire.records import read_ledger_offset

log = structlog.get_logger(__name__)


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
        self.assignment = 0
        """Counts assignments and losses of this process: what was fetched in another is void (rule 9)."""
        self.taking: frozenset[int] = frozenset()
        """The partitions of the assignment that stands, led or not."""
        self.feeder = Feeder(tasks, metrics)
        self.restorer = Restorer(
            topic=topics.ledger, options=options, tail=tail, time=time, metrics=metrics
        )
        self._topics = topics
        self._store = store
        self._appender = appender
        self._tail = tail
        self._letters_tail = letters_tail
        self._time = time
        self._tasks = tasks
        self._metrics = metrics
        self._fatal = fatal

    def connect(
        self,
        *,
        flow: Flow,
        work: Mapping[str, Work],
        held: Held,
        letters: Letters,
        runner: Runner,
        fair: Collection[str] = (),
    ) -> None:
        """Name the parts that were built around this one.

        Args:
            work: Topic to the agent that works through its records. A topic that is subscribed and not
                named here is held uncommitted until a version with its agent comes.
            fair: Topics in which tenants take turns.
        """
        self._flow = flow
        self._held = held
        self._letters = letters
        self._runner = runner
        self.feeder.connect(flow, work, fair)

    # -- assignment ---------------------------------------------------------------------------

    def lost(self, revoked: set[TP]) -> None:
        """Stop claiming at once. What is settled can still be committed until `let_go`."""
        self.assignment += 1
        self.taking = frozenset()
        self.feeder.stop()
        for partition in self.partitions.values():
            if partition.assignment:
                partition.revoke()
                self._tail.leave(self._topics.ledger, partition.index)
                self._letters_tail.leave(self._topics.dead_letters, partition.index)
        self._held.drop(set(self.feeder.lanes.values()))
        self._metrics.led.set(0)
        self._metrics.assigned.set(0)

    def let_go(self) -> None:
        """Forget the lanes of the assignment that is over (rule 9)."""
        self.feeder.let_go()

    async def gained(self, assigned: set[TP]) -> None:
        """Take the partitions; returns at once, restoring and leading go on behind."""
        self.let_go()
        self.assignment += 1
        indices = {tp.partition for tp in assigned if tp.topic in self._topics.subscribed}
        self._check_whole(assigned, indices)
        log.info("partitions.assigned", partitions=len(indices))
        self._metrics.assigned.set(len(indices))
        self.taking = frozenset(indices)
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
        partitions = [self._partition(index) for index in indices]
        await self.restorer.restore(partitions, lambda: self.assignment == assignment)
        if self.assignment != assignment:
            return
        committed = await self._flow.seek_to_committed()
        if committed is None or self.assignment != assignment:
            return
        self.feeder.start(committed)
        await self._flow.resume()
        for partition in partitions:
            partition.assign(assignment)
            self._tail.follow(
                self._topics.ledger,
                partition.index,
                partition.store.next,
                partial(self._fold, partition),
            )

    def _partition(self, index: int) -> Partition:
        if index not in self.partitions:
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
        return self.partitions[index]

    def _fold(self, partition: Partition, records: Sequence[ConsumerRecord[bytes, bytes]]) -> None:
        partition.fold(ledger_records(records))

    def _on_lead(self, partition: Partition) -> None:
        self._metrics.led.set(sum(1 for p in self.partitions.values() if p.leads))
        self.feeder.open(partition.index, partition.assignment)
        self._letters_tail.follow(
            self._topics.dead_letters,
            partition.index,
            partition.store.letters_next,
            partial(self._read_letters, partition),
        )

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

    async def feed(self, tp: TP, records: Sequence[Record], assignment: int) -> None:
        """Take a batch that was fetched in that assignment."""
        if assignment == self.assignment:
            await self.feeder.feed(tp, records)

    # -- state --------------------------------------------------------------------------------

    def measure(self) -> None:
        """Set the gauges; called when somebody asks for metrics."""
        m, lanes = self._metrics, self.feeder.lanes.values()
        m.in_flight.set(self._runner.in_flight)
        m.held.set(len(self._held))
        m.held_bytes.set(self._held.bytes + sum(lane.held_bytes for lane in lanes))
        m.led.set(sum(1 for p in self.partitions.values() if p.leads))
        m.debts.set(sum(len(p.store.owed) for p in self.partitions.values() if p.assignment))
        m.unsettled.set(sum(len(lane.acks) for lane in lanes))

    async def drain(self, timeout_s: float) -> int:
        """Start nothing new, wait for what runs; say how many deliveries were left."""
        self.feeder.stop()
        for partition in self.partitions.values():
            partition.close()
        return await self._runner.drain(timeout_s)
