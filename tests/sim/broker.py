"""A broker in memory: appends that take a while or land late, tails, one consumer group."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass
from random import Random
from typing import Any

from faust.types import TP

from tests.sim.loop import Life, VirtualLoop
from tests.sim.memory import Record, Topic

BASE_MS = 1_767_225_600_000
INCARNATION = b"the only one ..."
APART_S = 1e-4
"""Appends of one worker to one topic land in order, so far apart at least."""


class Broker:
    """Topics of one partition each, and who owns them."""

    def __init__(self, loop: VirtualLoop, rng: Random, topics: Iterable[str]) -> None:
        self.loop = loop
        self.rng = rng
        self.world = Context()
        """The context of what no worker does."""
        self.topics = {name: Topic(name) for name in topics}
        self.on_land: list[Callable[[Record], None]] = []
        self.generation = 0
        self.owner = ""
        self.committed: dict[str, int] = {}
        self.accepts_any_generation = False
        self.on_commit: Callable[[str, Mapping[str, int]], None] = lambda _who, _offsets: None

    def soon(self, delay_s: float, call: Callable[..., Any], *args: Any) -> asyncio.TimerHandle:
        """Do something of the world's, not of a worker's."""
        return self.loop.call_later(delay_s, call, *args, context=self.world)

    def land(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes]] = (),
        timestamp_ms: int | None = None,
    ) -> Record:
        """Append a record now."""
        now_ms = BASE_MS + int(self.loop.time() * 1000)
        at_ms = now_ms if timestamp_ms is None else timestamp_ms
        record = self.topics[topic].land(key, value, headers, at_ms)
        for call in self.on_land:
            call(record)
        return record

    def commit(self, who: str, generation: int, offsets: Mapping[str, int]) -> bool:
        """Note a group's offsets; those of another generation are refused (rule 9)."""
        if generation != self.generation and not self.accepts_any_generation:
            return False
        self.committed.update(offsets)
        self.on_commit(who, offsets)
        return True


@dataclass(slots=True)
class _Pending:
    record: tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes]], int | None]
    done: asyncio.Future[int]
    timer: asyncio.TimerHandle | None = None


class SimAppender:
    """`edge.log.Appender`: in order per topic; what is on its way may land after its writer is gone."""

    def __init__(self, broker: Broker, life: Life, latency: Callable[[], float]) -> None:
        self._broker = broker
        self._life = life
        self._latency = latency
        self._lanes: dict[str, list[_Pending]] = {}
        self._last: dict[str, float] = {}
        self.held: set[str] = set()
        """Topics to which nothing lands until `release`."""

    def append(
        self,
        topic: str,
        partition: int,
        *,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes]] = (),
        timestamp_ms: int | None = None,
    ) -> asyncio.Future[int]:
        """See `Appender.append`."""
        assert partition == 0
        done: asyncio.Future[int] = self._broker.loop.create_future()
        if self._life.dead:
            done.cancel()
            return done
        pending = _Pending((key, value, tuple(headers), timestamp_ms), done)
        self._lanes.setdefault(topic, []).append(pending)
        if topic not in self.held:
            self._send(topic, pending, self._latency())
        return done

    def _send(self, topic: str, pending: _Pending, delay_s: float) -> None:
        now = self._broker.loop.time()
        at = max(self._last.get(topic, 0.0) + APART_S, now + delay_s)
        self._last[topic] = at
        pending.timer = self._broker.soon(at - now, self._land, topic, pending)

    def _land(self, topic: str, pending: _Pending) -> None:
        self._lanes[topic].remove(pending)
        record = self._broker.land(topic, *pending.record)
        self._broker.soon(self._broker.rng.uniform(0.001, 0.01), _resolve, pending, record.offset)

    def hold(self, topic: str, *, after: int = 0) -> None:
        """Let nothing land but the first `after` that are on their way."""
        self.held.add(topic)
        for pending in self._lanes.get(topic, [])[after:]:
            if pending.timer is not None:
                pending.timer.cancel()
                pending.timer = None

    def release(self, topic: str) -> None:
        """Let what was held land, in order."""
        self.held.discard(topic)
        for pending in self._lanes.get(topic, []):
            if pending.timer is None:
                self._send(topic, pending, self._latency())

    def freeze(self) -> None:
        """The process stops: of what it appended, some is with the broker and some is not."""
        for topic, lane in self._lanes.items():
            self.hold(topic, after=self._broker.rng.randint(0, len(lane)))

    def thaw(self) -> None:
        """The process goes on: so does what it appended."""
        for topic in list(self.held):
            self.release(topic)

    def die(self, landing: float) -> None:
        """The process is gone: of each topic's appends the first `landing` part lands, maybe late."""
        rng = self._broker.rng
        for topic, lane in self._lanes.items():
            lands = int(landing * len(lane) + 0.5)
            self.hold(topic)
            late_s = rng.choice((0.0, 0.0, rng.uniform(0, 6)))
            for pending in lane[:lands]:
                self._send(topic, pending, late_s + rng.uniform(0.001, 0.05))


def _resolve(pending: _Pending, offset: int) -> None:
    if not pending.done.done():
        pending.done.set_result(offset)


@dataclass(slots=True)
class _Follow:
    position: int
    sink: Callable[[Sequence[Record]], None]
    scheduled: bool = False


class SimTail:
    """`edge.log.Tail` of one life."""

    def __init__(
        self, broker: Broker, life: Life, context: Context, latency: Callable[[], float]
    ) -> None:
        self._broker = broker
        self._life = life
        self._context = context
        self._latency = latency
        self._follows: dict[str, _Follow] = {}
        self.held: set[str] = set()
        self.after: Callable[[str], None] = lambda _topic: None
        """Told after each batch that was handed on."""
        broker.on_land.append(self._landed)

    def _landed(self, record: Record) -> None:
        follow = self._follows.get(record.topic)
        if follow is not None:
            self._schedule(record.topic, follow)

    def _schedule(self, topic: str, follow: _Follow) -> None:
        if not follow.scheduled and not self._life.dead and topic not in self.held:
            follow.scheduled = True
            self._broker.loop.call_later(
                self._latency(), self._pump, topic, follow, context=self._context
            )

    def _pump(self, topic: str, follow: _Follow) -> None:
        follow.scheduled = False
        if self._life.dead or self._follows.get(topic) is not follow or topic in self.held:
            return
        limit = self._broker.rng.choice((1, 3, 1_000))
        records = self._broker.topics[topic].read(follow.position, limit)
        if len(records) == limit:
            follow.position = records[-1].offset + 1
            self._schedule(topic, follow)
        else:
            follow.position = self._broker.topics[topic].end
        if records:
            follow.sink(records)
            self.after(topic)

    def follow(
        self, topic: str, partition: int, position: int, sink: Callable[[Sequence[Record]], None]
    ) -> None:
        """See `Tail.follow`."""
        follow = self._follows[topic] = _Follow(position, sink)
        self._schedule(topic, follow)

    def leave(self, topic: str, partition: int) -> None:
        """See `Tail.leave`."""
        self._follows.pop(topic, None)

    def hold(self, topic: str) -> None:
        """Hand nothing on until `release`."""
        self.held.add(topic)

    def release(self, topic: str) -> None:
        """Hand on what came meanwhile."""
        self.held.discard(topic)
        if topic in self._follows:
            self._schedule(topic, self._follows[topic])

    async def end_offset(self, topic: str, partition: int) -> int:
        """See `Tail.end_offset`."""
        await asyncio.sleep(self._latency())
        end = self._broker.topics[topic].end
        await asyncio.sleep(self._latency())
        return end

    async def end_offsets(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """See `Tail.end_offsets`."""
        end = await self.end_offset(topic, 0)
        return dict.fromkeys(partitions, end)

    async def read_position(self, topic: str, partition: int) -> int:
        """See `Tail.read_position`."""
        follow = self._follows.get(topic)
        return -1 if follow is None else follow.position

    async def incarnation(self, topic: str) -> bytes:
        """See `Tail`: nobody makes a topic anew here."""
        return INCARNATION

    async def read_all(
        self, topic: str, starts: Mapping[int, int], sink: Callable[[int, Sequence[Record]], None]
    ) -> dict[int, int]:
        """`edge.log.read_all`: in bulk, to the end that stood when it was asked for."""
        ends = await self.end_offsets(topic, starts)
        for index, start in starts.items():
            position = start
            while position < ends[index]:
                await asyncio.sleep(self._latency())
                batch = [
                    record
                    for record in self._broker.topics[topic].read(position, 20)
                    if record.offset < ends[index]
                ]
                position = batch[-1].offset + 1 if batch else ends[index]
                if batch:
                    sink(index, batch)
        return ends


class SimFlow:
    """`engine.feeding.Flow`: faust's consumer of one life."""

    def __init__(
        self,
        broker: Broker,
        life: Life,
        topics: Sequence[str],
        wanted: set[TP],
        latency: Callable[[], float],
    ) -> None:
        self._broker = broker
        self._life = life
        self._topics = topics
        self._latency = latency
        self.wanted = wanted
        self.feed: Callable[[TP, Sequence[Record]], Any]
        self.active = False
        self.held: set[str] = set()
        self._positions: dict[str, int] = {}
        self._more = asyncio.Event()
        broker.on_land.append(self._landed)

    def _landed(self, record: Record) -> None:
        if self.active and record.topic in self._topics:
            self._more.set()

    async def seek_to_committed(self) -> dict[TP, int | None]:
        """See `Flow`."""
        await asyncio.sleep(self._latency())
        committed = self._broker.committed
        self._positions = {topic: committed.get(topic, 0) for topic in self._topics}
        return {TP(topic, 0): committed.get(topic) for topic in self._topics}

    async def resume(self) -> None:
        """See `Flow`."""
        self.active = True
        self._more.set()

    async def seek(self, tp: TP, offset: int) -> None:
        """See `Flow`."""
        self._positions[tp.topic] = offset
        self._more.set()

    def room(self) -> None:
        """See `Flow`."""
        self._more.set()

    def hold(self, topic: str) -> None:
        """Fetch nothing of it until `release`."""
        self.held.add(topic)

    def release(self, topic: str) -> None:
        """Fetch it again."""
        self.held.discard(topic)
        self._more.set()

    async def run(self) -> None:
        """Fetch until cancelled."""
        while True:
            await self._more.wait()
            self._more.clear()
            await asyncio.sleep(self._latency())
            for topic in self._topics:
                tp = TP(topic, 0)
                has_more = self._broker.topics[topic].end > self._positions.get(topic, 0)
                if not has_more or tp not in self.wanted or topic in self.held:
                    continue
                if not self.active:
                    break
                limit = self._broker.rng.choice((1, 2, 50))
                batch = self._broker.topics[topic].read(self._positions[topic], limit)
                if batch:
                    self._positions[topic] = batch[-1].offset + 1
                    self._more.set()
                    await self.feed(tp, batch)
