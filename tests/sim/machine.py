"""A worker of the simulation: the real engine, its ports held by a broker and targets in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import Context
from random import Random
from typing import Any, cast

from faust.types import TP

from streams.agents.commands import CommandAgent
from streams.agents.outbox import Limits, OutboxAgent
from streams.agents.retries import RetryAgent
from streams.engine.delivery import Deliverer
from streams.engine.end_of_life import EndOfLife
from streams.engine.gate import Gate
from streams.engine.held import Held
from streams.engine.letters import Letters
from streams.engine.outputs import FollowUps, KafkaOutputs, OutputTopics
from streams.engine.retry_writer import RetryWriter
from streams.engine.work import Runner, Tasks
from streams.engine.worker import Worker, WorkerTopics
from streams.rules.buckets import BUCKETS
from tests.sim.bounds import WEEK_MS
from tests.sim.broker import BASE_MS, Broker, SimAppender, SimFlow, SimTail
from tests.sim.loop import LIFE, Life
from tests.sim.memory import MemoryStore
from tests.sim.target import Script, SimCaller, SimTargets

RETRIES = {name: f"outbox.retry.{name}" for name, _ in BUCKETS}
CONSUMED = ("outbox", "outbox.commands", *RETRIES.values())
TOPICS = (*CONSUMED, "ledger", "outbox.dead-letters", "outbox.receipts", "outbox.quarantine")
TPS = {TP(topic, 0) for topic in CONSUMED}
COMMIT_S = 0.5


class Quiet:
    """Stands in for metrics, a teller, a death mark: takes everything, says nothing, is false."""

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *args: object, **more: object) -> Any:
        return self

    def __bool__(self) -> bool:
        return False


class SimTime:
    """`ports.Time` of one machine: the loop's time, a wall clock that may be wrong, seeded chance."""

    def __init__(self, loop: asyncio.AbstractEventLoop, rng: Random) -> None:
        self._loop = loop
        self._rng = rng
        self.skew_ms = 0

    def now_ms(self) -> int:
        return BASE_MS + self.skew_ms + int(self._loop.time() * 1000)

    def monotonic(self) -> float:
        return self._loop.time()

    def jitter(self) -> float:
        return self._rng.random()

    def token(self) -> bytes:
        return self._rng.randbytes(16)


class Stores:
    """`edge.store.Store`: the one partition's store."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store

    def partition(self, index: int) -> MemoryStore:
        assert index == 0
        return self.store


class Machine:
    """A machine on which a worker lives, dies, and lives again."""

    def __init__(
        self,
        name: str,
        broker: Broker,
        rng: Random,
        *,
        targets: SimTargets,
        script: Script,
        window_ms: int = WEEK_MS,
    ) -> None:
        self.name = name
        self.window_ms = window_ms
        self.broker = broker
        self.rng = rng
        self.targets = targets
        self.script = script
        self.time = SimTime(broker.loop, rng)
        self.store = MemoryStore()
        self.slow_until = 0.0
        self.generation = -1
        self.is_assigned = False
        """Whether it believes to own the partition."""
        self.errors: list[str] = []
        self.slip: BaseException | None = None
        """What no schedule can bring about: a name, an attribute or arguments that the code has not."""
        self.life = Life(name)
        self.life.dead = True

    def latency(self) -> float:
        """How long one step to the broker or from it takes."""
        if self.broker.loop.time() < self.slow_until:
            return self.rng.uniform(0.05, 2.5)
        return self.rng.uniform(0.001, 0.02)

    # -- life ---------------------------------------------------------------------------------

    def start(self) -> None:
        """A process starts, with the store as it lies there."""
        assert self.life.dead
        self.life = Life(self.name)
        self.context = Context()
        self.context.run(LIFE.set, self.life)
        self._mine: list[asyncio.Task[None]] = []
        self.context.run(self._build)
        for work in (self.flow.run(), self.held.run(self.retries.fire_held), self._commits()):
            self._mine.append(self._task(work))

    def _task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self.broker.loop.create_task(work, context=self.context)

    def crash(self, *, store: str = "kept", landing: float = 0.5) -> None:
        """The process is gone, in the middle of whatever it did; some of its appends still land.

        Args:
            store: `kept`, `older` (the machine went down as well) or `lost`.
            landing: Which part of what is on its way lands.
        """
        if self.life.dead:
            return
        self.life.dead = True
        if self.life.frozen:
            self.broker.loop.thaw(self.life)
        self.appender.die(landing)
        self.flow.active = self.is_assigned = False
        letters = self.store.letters_next
        match store:
            case "kept":
                self.store = MemoryStore(self.store.kept, letters)
            case "older":
                self.store = MemoryStore(self.store.older, min(letters, self.store.letters_before))
            case _:
                self.store = MemoryStore()
        self.tasks.cancel()
        for task in self._mine:
            task.cancel()

    def freeze(self) -> None:
        """The process stops where it is (SIGSTOP, a long pause)."""
        if not self.life.dead and not self.life.frozen:
            self.life.frozen = True
            self.appender.freeze()

    def thaw(self) -> None:
        """It goes on, and does not know that time has passed."""
        if self.life.frozen:
            self.broker.loop.thaw(self.life)
            self.appender.thaw()

    def sweep(self) -> None:
        """Let it look for what may be forgotten, as it does once a minute."""
        if not self.life.dead:
            self.broker.loop.call_soon(self._sweep, context=self.context)

    def _sweep(self) -> None:
        for partition in self.worker.partitions.values():
            if partition.leads and not self.life.dead:
                self.end_of_life.sweep(partition)

    def release(self, target: str) -> None:
        """It reads in the registry that a target is enabled again."""
        if not self.life.dead:
            self.broker.loop.call_soon(self.retries.release, target, context=self.context)

    # -- ownership ----------------------------------------------------------------------------

    def gain(self) -> None:
        """The group says: the partition is yours."""
        self.is_assigned = True
        self._task(self._gained(self.broker.generation))

    async def _gained(self, generation: int) -> None:
        self.generation = generation  # only now: a frozen process goes on with what it knew
        await self.worker.gained(set(TPS))

    def lose(self, *, commit: bool) -> None:
        """The group says: it is not yours any more; `commit` where the generation still stands."""
        if self.is_assigned and not self.life.dead:
            self.is_assigned = False
            self.broker.loop.call_soon(self._lost, commit, context=self.context)

    def _lost(self, commit: bool) -> None:
        self.flow.active = False
        self.worker.lost(set(TPS))
        if commit:
            self._commit(self.generation, self.worker.feeder.committable())
        self.worker.let_go()

    async def _commits(self) -> None:
        while True:
            await asyncio.sleep(COMMIT_S)
            offsets, generation = self.worker.feeder.committable(), self.generation
            if offsets and self.flow.active:
                await asyncio.sleep(self.latency())
                if self.flow.active:  # one commit at a time: the last one overtakes none
                    self._commit(generation, offsets)

    def _commit(self, generation: int, offsets: dict[TP, int]) -> None:
        plain = {tp.topic: offset for tp, offset in offsets.items()}
        if not self.life.dead and self.broker.commit(self.name, generation, plain):
            self.worker.feeder.committed(offsets)

    # -- the engine ---------------------------------------------------------------------------

    def _build(self) -> None:
        any_: Any = Quiet()
        broker, time = self.broker, self.time
        appender = self.appender = SimAppender(broker, self.life, self.latency)
        self.tail = SimTail(broker, self.life, self.context, self.latency)
        self.letters_tail = SimTail(broker, self.life, self.context, self.latency)
        self.tasks = Tasks(self._fatal)
        worker = self.worker = Worker(
            topics=WorkerTopics(
                ledger="ledger",
                commands="outbox.commands",
                dead_letters="outbox.dead-letters",
                subscribed=frozenset(CONSUMED),
            ),
            options={"tail": self.tail},
            store=cast("Any", Stores(self.store)),
            appender=cast("Any", appender),
            tail=cast("Any", self.tail),
            letters_tail=cast("Any", self.letters_tail),
            time=time,
            tasks=self.tasks,
            metrics=any_,
            fatal=self._fatal,
        )
        self.flow = SimFlow(broker, self.life, CONSUMED, worker.feeder.wanted, self.latency)
        self.flow.feed = lambda tp, records: worker.feed(tp, records, worker.assignment)
        kafka = KafkaOutputs(
            cast("Any", appender),
            OutputTopics(
                retries=RETRIES,
                dead_letters="outbox.dead-letters",
                receipts="outbox.receipts",
                quarantine="outbox.quarantine",
            ),
        )
        letters = Letters(kafka, time, on_dead=any_)
        follow_ups = FollowUps(kafka, RetryWriter(kafka, time), letters, time)
        deliverer = Deliverer(
            targets=self.targets,
            gate=Gate(time),
            caller=SimCaller(self),
            outputs=follow_ups,
            telling=any_,
            time=time,
        )
        self.runner = Runner(deliverer, self.tasks, 100)
        shared: dict[str, Any] = {"tasks": self.tasks, "teller": any_, "time": time}
        outbox = OutboxAgent(
            topic="outbox",
            partitions=worker.partitions,
            limits=Limits(
                max_bytes=10_000, max_depth=8, partitions=1, dedupe_window_ms=self.window_ms
            ),
            runner=self.runner,
            deathmark=any_,
            appender=cast("Any", appender),
            follow_ups=follow_ups,
            **shared,
        )
        self.end_of_life = EndOfLife(worker.partitions, time, dedupe_window_ms=self.window_ms)
        self.held = Held(time)
        self.retries = RetryAgent(
            buckets={topic: name for name, topic in RETRIES.items()},
            partitions=worker.partitions,
            held=self.held,
            max_held_bytes=1 << 20,
            max_bytes=10_000,
            max_depth=8,
            runner=self.runner,
            kafka=kafka,
            follow_ups=follow_ups,
            **shared,
        )
        commands = CommandAgent(
            partitions=worker.partitions,
            targets=self.targets,
            letters=letters,
            receipts=follow_ups,
            **shared,
        )
        worker.connect(
            flow=self.flow,
            work={
                "outbox": outbox.work,
                "outbox.commands": commands.work,
                **dict.fromkeys(RETRIES.values(), self.retries.work),
            },
            held=self.held,
            letters=letters,
            runner=self.runner,
            fair={"outbox"},
        )

    def _fatal(self, error: BaseException) -> None:
        if not self.life.dead:
            self.errors.append(f"{self.name}: {type(error).__name__}: {error}")
            if isinstance(error, AttributeError | NameError | TypeError):
                self.slip = error
