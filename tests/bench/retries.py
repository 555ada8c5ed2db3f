"""Retries: how late they start, what waiting for them costs, and a million of them at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from aiokafka import AIOKafkaConsumer, TopicPartition

from streams.wire.records import read_retry_headers
from tests.bench.children import Worker
from tests.bench.preload import PARTITIONS, Record, activities, waiting_retries
from tests.bench.proc import BenchError, rss_bytes
from tests.bench.receivers import Received
from tests.bench.results import (
    Figure,
    Lines,
    Row,
    at_most,
    calibrate,
    percentile,
)
from tests.bench.stage import TARGET, World, in_flight
from tests.bench.suite import Suite
from tests.bench.watch import Sample, Watch

RETRIES = 10_000
FIRST_DELAY_MS = 30_000
JITTER_MS = 60_000
SETTLE_S: Final = 5.0
"""After the last first attempt: what a start leaves behind is over then (measured)."""
AHEAD_S: Final = 2.0
"""Before the first retry that can be due."""


async def retry_lateness(suite: Suite) -> Figure:
    """10,000 retries that the policy itself spreads over a minute; 503 first, then 200."""
    count = suite.some(RETRIES, least=200)
    share = min(1.0, max(0.1, suite.scale))
    delay_ms = max(12_000, int(FIRST_DELAY_MS * share))
    waits = {
        "policy_activity_first_delay_ms": delay_ms,
        "policy_activity_max_delay_ms": delay_ms,
        "policy_activity_jitter_ms": int(JITTER_MS * share),
    }
    async with (
        suite.receiver(logs=True) as place,
        suite.stage.world(**in_flight(64), **waits) as world,
    ):
        calibrations = [await calibrate(place.url("/ok"))]
        await world.register(place.url("/flaky/1"))
        records = activities("r", count, [TARGET])
        await world.preload(world.topics.outbox, records)
        worker = world.start()
        async with Watch(world, {"worker": [worker]}) as watch:
            calls = await place.until_called(count, within_s=180)
            first_due = min(call.t for call in calls) + delay_ms / 1000
            idle_share, idle_s = await _rest(watch, first_due)
            suite.say(f"waiting used {idle_share:.2%} of a core; now the retries")
            await watch.until(count, per_s=2)
        calls = await place.until_called(2 * count)
        lateness = _lateness(calls, await _due(world), place.resolution_s)
        calibrations.append(await calibrate(place.url("/ok")))
    if len(lateness) != count:
        raise BenchError(f"{len(lateness)} of {count} retries can be told apart")
    rows = (
        Row(
            name="retry_lateness",
            unit="ms",
            runs=(percentile(lateness, 0.99),),
            limit=at_most(250),
            note="p99 of call beyond due time, which has the jitter in it",
        ),
        Row(name="retry_lateness_p50", unit="ms", runs=(percentile(lateness, 0.5),)),
        Row(name="retry_lateness_max", unit="ms", runs=(max(lateness),)),
        Row(
            name="retry_lateness_min",
            unit="ms",
            runs=(min(lateness),),
            note="below 0 would be early",
        ),
        Row(
            name="retry_waiting_cpu",
            unit="%",
            runs=(idle_share * 100,),
            limit=at_most(1.0),
            note=f"of a core, worker, over {idle_s:.0f} s in which all wait and none is due",
        ),
    )
    return Figure(
        name="retry_lateness",
        work=f"{count:,} activities whose first call fails with 503; first delay {delay_ms / 1000:.0f} s,"
        f" jitter uniform in {waits['policy_activity_jitter_ms'] / 1000:.0f} s, so the retries spread over"
        " that time. Lateness: the receiver's time of the second call after the `due` of its retry record."
        " One run: its samples are the retries.",
        rows=rows,
        plots=(_distribution(lateness),),
        receiver=place.kind,
        calibrations=calibrations,
    )


async def _rest(watch: Watch, first_due: float) -> tuple[float, float]:
    """Wait from now, all first attempts made, until shortly before the first retry can be due.

    Nothing is asked of broker or worker meanwhile.

    Args:
        first_due: Epoch seconds.

    Returns:
        The worker's share of a core, and over how many seconds.
    """
    await asyncio.sleep(SETTLE_S)
    left_s = first_due - AHEAD_S - time.time()
    if left_s < 0.5:
        raise BenchError("the first attempts took so long that no time is left in which all wait")
    start = _now(watch)
    await asyncio.sleep(left_s)
    end = _now(watch)
    return (end.cpu_s["worker"] - start.cpu_s["worker"]) / (end.t - start.t), left_s


def _now(watch: Watch) -> Sample:
    return Sample(t=time.perf_counter(), done=0, cpu_s=watch.cpu_now())


async def _due(world: World) -> dict[tuple[str, int], float]:
    """Delivery id and attempts so far to the epoch seconds at which the next was due."""
    due: dict[tuple[str, int], float] = {}
    tps = [
        TopicPartition(topic, p)
        for topic in world.topics.outbox_retries.values()
        for p in range(PARTITIONS)
    ]
    consumer: AIOKafkaConsumer[bytes, bytes] = AIOKafkaConsumer(
        **world.options, enable_auto_commit=False
    )
    await consumer.start()
    try:
        consumer.assign(tps)
        await consumer.seek_to_beginning(*tps)
        left = sum((await consumer.end_offsets(tps)).values())
        while left > 0:
            for records in (await consumer.getmany(timeout_ms=1_000)).values():
                left -= len(records)
                for record in records:
                    due_ms, items = read_retry_headers(record.headers)
                    due |= {(item.delivery_id, item.attempt): due_ms / 1000 for item in items}
    finally:
        await consumer.stop()
    return due


def _lateness(
    calls: list[Received], due: dict[tuple[str, int], float], resolution_s: float
) -> list[float]:
    """Milliseconds between due time and call, of every call that was a retry."""
    return [
        (call.t + resolution_s - due[call.id.removesuffix("-1"), call.attempt - 1]) * 1e3
        for call in calls
        if call.attempt > 1
    ]


def _distribution(lateness: list[float]) -> Lines:
    shares = [n / 200 for n in range(201)]
    quick = [max(0.1, percentile(lateness, share)) for share in shares]
    return Lines(
        x="ms after due",
        y="share that is earlier",
        curves={"retries": (quick, shares)},
        limit=250,
        log_x=True,
    )


# ── A million that wait ─────────────────────────────────────────────────────────────────────────

MEASURED_S: Final = 75.0
WAKES_MS: Final = 110_000
SHARES: Final = (
    ("1h", 0.60, 6_800_000),
    ("10m", 0.30, 1_100_000),
    ("2m", 0.05, 550_000),
    ("30s", 0.05, WAKES_MS),
)
"""Bucket, share of the retries, and how long each is due: none within the time measured. Those of `30s`
wake meanwhile and go on waiting, in memory up to its bound and in the topic beyond it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Memory:
    """RSS of the worker, in megabytes, over the seconds since it was ready."""

    seconds: list[float]
    mb: list[float]


async def backlog(suite: Suite) -> Figure:
    """A worker that a million retries wait for: its memory, and whether it grows."""
    known = suite.known_deliveries
    world = await suite.known_world()
    calibrations = [await calibrate(None)]
    suite.say(f"writing {known:,} waiting retries")
    for bucket, records in _waiting(known):
        await world.preload(world.topics.outbox_retries[bucket], records)
    written = time.monotonic()
    worker = world.start(folder="kept")
    await worker.ready(within_s=180)
    measured_s = max(8.0, MEASURED_S * min(1.0, suite.scale))
    if time.monotonic() - written + measured_s > WAKES_MS / 1000 - 3:
        measured_s = WAKES_MS / 1000 - 3 - (time.monotonic() - written)
    if measured_s < 5:
        raise BenchError(
            "the worker was ready so late that retries are due: nothing waits any more"
        )
    async with Watch(world, {"worker": [worker]}) as watch:
        before = watch.cpu_now()
        memory = await _memory(worker, measured_s)
        after = watch.cpu_now()
    held = await worker.metric("outbox_held")
    await worker.end()
    calibrations.append(await calibrate(None))
    cpu_share = (after["worker"] - before["worker"]) / memory.seconds[-1]
    third = len(memory.mb) // 3
    rows = (
        Row(
            name="backlog",
            unit="MB",
            runs=(max(memory.mb),),
            limit=at_most(300),
            note="RSS of the worker, highest",
        ),
        Row(
            name="backlog_rss_drift",
            unit="%",
            runs=((max(memory.mb[-third:]) / max(memory.mb[:third]) - 1) * 100,),
            note="highest of the last third beside the first third",
        ),
        Row(
            name="backlog_cpu",
            unit="%",
            runs=(cpu_share * 100,),
            note="of a core, over the whole time",
        ),
        Row(name="backlog_held", unit="records", runs=(held,), note="held in memory at the end"),
    )
    return Figure(
        name="backlog",
        work=f"{known:,} waiting retries (records of 1,268 bytes and headers): ledger rows and retry"
        " records written beforehand in the product's own forms (`streams.wire`), ten recipients an"
        " activity; 60 % in the 1h bucket, 30 % 10m, 5 % 2m, 5 % 30s, of which the"
        " last wake within the time measured and wait on. One worker,"
        f" RSS each half second over {memory.seconds[-1]:.0f} s from readiness. One run.",
        rows=rows,
        plots=(
            Lines(
                x="seconds since ready",
                y="RSS, MB",
                curves={"worker": (memory.seconds, memory.mb)},
                limit_y=300,
            ),
        ),
        calibrations=calibrations,
    )


def _waiting(known: int) -> Iterator[tuple[str, Iterator[Record]]]:
    """Each bucket's records, the soonest last."""
    first = 0
    for bucket, share, wait_ms in SHARES:
        last = known if bucket == SHARES[-1][0] else first + int(known * share) // 10 * 10
        yield bucket, waiting_retries(first, last, wait_ms=wait_ms)
        first = last


async def _memory(worker: Worker, seconds: float) -> _Memory:
    began = time.monotonic()
    found = _Memory(seconds=[], mb=[])
    while (at := time.monotonic() - began) < seconds:
        worker.check()
        found.seconds.append(at)
        found.mb.append(rss_bytes(worker.pid) / 1e6)
        await asyncio.sleep(0.5)
    return found
