"""From producing an activity to its call, under an open loop that does not wait for anybody."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition

from tests.bench.deliveries import measured
from tests.bench.openloop import calls_of, producing, send
from tests.bench.preload import PARTITIONS, activities
from tests.bench.receivers import Place
from tests.bench.results import (
    Calibration,
    Figure,
    Limit,
    Lines,
    Row,
    at_most,
    calibrate,
    percentile,
)
from tests.bench.stage import TARGET, World, in_flight
from tests.bench.suite import Suite
from tests.bench.watch import Watch, Window, between, middle

WINDOWS = 5
WINDOW_S = 8.0
FLOOR_S = 4.0


@dataclass(slots=True, kw_only=True)
class _Rounds:
    """Latencies in ms of each window, and what it cost."""

    product: list[list[float]] = field(default_factory=list)
    floor: list[list[float]] = field(default_factory=list)
    costs: list[Window] = field(default_factory=list)
    calibrations: list[Calibration] = field(default_factory=list)
    paced: list[float] = field(default_factory=list)
    """How late this process itself was at handing records to its producer, ms; part of all the others."""


async def latency(suite: Suite) -> Figure:
    """Open loop at half the rate that one worker reached; produce to call."""
    rate = median(w.per_s for w in (await measured(suite)).at_64) / 2
    rounds = _Rounds()
    async with suite.receiver(logs=True) as place, suite.stage.world(**in_flight(64)) as world:
        await world.register(place.url("/ok"))
        worker = world.start()
        await worker.ready()
        async with (
            producing(world.options) as producer,
            Watch(world, {"worker": [worker], "receiver": [place.child]}) as watch,
        ):
            sender = _Sender(world, producer, place, watch)
            seconds = max(1.0, WINDOW_S * min(1.0, suite.scale))
            await sender.window("warm", rate, min(3.0, seconds), _Rounds())
            for number in range(suite.runs(WINDOWS)):
                suite.say(f"latency, window {number + 1} at {rate:.0f}/s")
                rounds.calibrations.append(await calibrate(place.url("/ok")))
                await sender.floor(f"f{number}", rate, seconds * FLOOR_S / WINDOW_S, rounds)
                await sender.window(f"w{number}", rate, seconds, rounds)
    return _figure(rate, rounds, place)


@dataclass(slots=True)
class _Sender:
    """The open loop, and its two ends: the receiver's call, or a bare consumer."""

    world: World
    producer: Any
    place: Place
    watch: Watch

    async def window(self, name: str, rate: float, seconds: float, rounds: _Rounds) -> None:
        """One window through the product."""
        records = activities(name, int(rate * seconds), [TARGET])
        before = await self.watch.look()
        topic = self.world.topics.outbox
        sent = await send(self.producer, topic, records, rate, rounds.paced)
        samples = await self.watch.until(before.done + len(records))
        rounds.product.append(await calls_of(self.place, records, sent))
        rounds.costs.append(between(before, samples[-1]))

    async def floor(self, name: str, rate: float, seconds: float, rounds: _Rounds) -> None:
        """The same records at the same rate into a topic that nobody but a bare consumer reads."""
        topic = self.world.topics.observations
        records = activities(name, int(rate * seconds), [TARGET])
        consumer: AIOKafkaConsumer[bytes, bytes] = AIOKafkaConsumer(
            **self.world.options, enable_auto_commit=False
        )
        await consumer.start()
        tps = [TopicPartition(topic, p) for p in range(PARTITIONS)]
        consumer.assign(tps)
        await consumer.seek_to_end(*tps)
        reading = asyncio.create_task(_read(consumer, len(records)))
        try:
            sent = await send(self.producer, topic, records, rate, rounds.paced)
            at = await asyncio.wait_for(reading, 30.0)
            late = [(at[r.key] - t) * 1e3 for r, t in zip(records, sent, strict=True)]
            rounds.floor.append(late)
        finally:
            reading.cancel()
            await asyncio.wait({reading})
            await consumer.stop()


async def _read(consumer: Any, count: int) -> dict[bytes, float]:
    at: dict[bytes, float] = {}
    while len(at) < count:
        fetched = await consumer.getmany(timeout_ms=200)
        now = time.time()
        for records in fetched.values():
            at |= {record.key: now for record in records}
    return at


def _figure(rate: float, rounds: _Rounds, place: Place) -> Figure:
    def row(
        name: str, windows: Sequence[Sequence[float]], share: float, limit: Limit | None
    ) -> Row:
        runs = tuple(percentile(window, share) for window in windows)
        beside = "bare aiokafka, produce to consume" if limit is None else "from its planned time"
        return Row(name=name, unit="ms", runs=runs, limit=limit, note=beside)

    pacing = Row(
        name="latency_pacing_p99",
        unit="ms",
        runs=(percentile(rounds.paced, 0.99),),
        note="the bench's own lateness, inside all of the above",
    )
    return Figure(
        name="latency",
        work=f"Open loop at {rate:.0f}/s, half of what one worker reached with 64 in flight: from the time"
        " at which an activity was planned to be produced to the receiver's own time of its call"
        f" (its clock's {place.resolution_s * 1e3:.0f} ms added). One warm worker, a warm-up window left"
        f" out; {len(rounds.product)} windows of {len(rounds.product[0]):,}, floor windows between them.",
        rows=(
            row("latency_p50", rounds.product, 0.5, at_most(15)),
            row("latency_p99", rounds.product, 0.99, at_most(60)),
            row("latency_floor_p50", rounds.floor, 0.5, None),
            row("latency_floor_p99", rounds.floor, 0.99, None),
            pacing,
        ),
        plots=(_curves(rounds),),
        receiver=place.kind,
        cpu_us={"at that rate": middle(rounds.costs)},
        calibrations=rounds.calibrations,
    )


def _curves(rounds: _Rounds) -> Lines:
    curves = {
        "produce to call": _distribution(rounds.product),
        "bare aiokafka": _distribution(rounds.floor),
    }
    return Lines(x="ms", y="share that is quicker", curves=curves, limit=60, log_x=True)


def _distribution(windows: Sequence[Sequence[float]]) -> tuple[list[float], list[float]]:
    """200 points of the distribution of all windows together."""
    ordered = sorted(value for window in windows for value in window)
    shares = [n / 200 for n in range(201)]
    return [max(0.1, percentile(ordered, share)) for share in shares], shares
