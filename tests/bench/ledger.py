"""The ledger grown large: how fast it is restored, and whether it makes deliveries dearer."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition

from tests.bench.deliveries import WARM_UP, check_sent
from tests.bench.preload import PARTITIONS, activities, known_rows
from tests.bench.proc import BenchError, cpu_s
from tests.bench.receivers import Place
from tests.bench.results import Bars, Calibration, Figure, Row, at_least, at_most, calibrate
from tests.bench.stage import TARGET, World, in_flight
from tests.bench.suite import Suite
from tests.bench.watch import Watch, Window, middle, window

RESTORES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """One reading of the whole ledger."""

    rows: int
    seconds: float
    cpu_us: float

    @property
    def per_s(self) -> float:
        """Rows per second."""
        return self.rows / self.seconds


async def restore(suite: Suite) -> Figure:
    """An empty disk and a million rows, beside reading the same topic with nothing done to it."""
    world = await suite.known_world()
    raw: list[Read] = []
    ours: list[Read] = []
    calibrations: list[Calibration] = []
    for number in range(suite.runs(RESTORES)):
        suite.say(f"restore, round {number + 1}")
        calibrations.append(await calibrate(None))
        raw.append(await read_raw(world))
        ours.append(await _restore(world))
    per_s = tuple(read.per_s for read in ours)
    beside = tuple(a.seconds / b.seconds for a, b in zip(ours, raw, strict=True))
    return Figure(
        name="restore",
        work=f"A ledger of {raw[0].rows:,} records ({suite.known_deliveries:,} deliveries and their"
        " activities, as compaction leaves them, written beforehand in the product's own forms), 8"
        " partitions; the worker's disk is empty. From `partitions.assigned` to `ledger.restored` in the"
        f" worker's log. {len(ours)} interleaved runs: each reads everything.",
        rows=(
            Row(
                name="restore",
                unit="rows/s",
                runs=per_s,
                limit=at_least(100_000),
                note="a worker, empty disk",
            ),
            Row(
                name="restore_to_raw",
                unit="x",
                runs=beside,
                limit=at_most(4),
                note="time, beside raw getmany",
            ),
            Row(
                name="restore_raw",
                unit="rows/s",
                runs=tuple(read.per_s for read in raw),
                note="floor: bare aiokafka getmany, same topic",
            ),
        ),
        plots=(
            Bars(
                unit="rows per second",
                groups={"worker": per_s, "raw getmany": [read.per_s for read in raw]},
                limit=100_000,
            ),
        ),
        cpu_us={
            "restoring": {"worker": median(read.cpu_us for read in ours)},
            "raw": {"client": median(read.cpu_us for read in raw)},
        },
        calibrations=calibrations,
    )


async def _restore(world: World) -> Read:
    """Start a worker on an empty disk; stop it once it has folded everything."""
    shutil.rmtree(world.folder / "kept", ignore_errors=True)
    worker = world.start(folder="kept")
    began = await worker.event("partitions.assigned")
    cpu = cpu_s([worker.pid])
    ended = await worker.event("ledger.restored", within_s=300)
    cpu = cpu_s([worker.pid]) - cpu
    await worker.ready()
    rows = int(await worker.metric("outbox_restored_total"))
    await worker.end()
    if not rows:
        raise BenchError("the worker restored nothing")
    return Read(rows=rows, seconds=when(ended) - when(began), cpu_us=cpu / rows * 1e6)


def when(event: dict[str, Any]) -> float:
    """Epoch seconds of a log line."""
    return datetime.fromisoformat(event["timestamp"]).timestamp()


async def read_raw(world: World) -> Read:
    """Read the topic as the restore does, and do nothing with it."""
    tps = [TopicPartition(world.topics.ledger, p) for p in range(PARTITIONS)]
    consumer: AIOKafkaConsumer[bytes, bytes] = AIOKafkaConsumer(
        **world.options,
        enable_auto_commit=False,
        isolation_level="read_committed",
        max_partition_fetch_bytes=4 * 1024 * 1024,
        fetch_max_bytes=32 * 1024 * 1024,
        max_poll_records=20_000,
    )
    await consumer.start()
    try:
        consumer.assign(tps)
        await consumer.seek_to_beginning(*tps)
        rows = sum((await consumer.end_offsets(tps)).values())
        left, began, cpu = rows, time.perf_counter(), time.process_time()
        while left > 0:
            fetched = await consumer.getmany(timeout_ms=5_000)
            left -= sum(map(len, fetched.values()))
            if not fetched:
                raise BenchError(f"{left} of {rows} rows of the ledger cannot be read")
        used, took = time.process_time() - cpu, time.perf_counter() - began
        return Read(rows=rows, seconds=took, cpu_us=used / rows * 1e6)
    finally:
        await consumer.stop()


# ── Growth ──────────────────────────────────────────────────────────────────────────────────────

DELIVERIES = 10_000
GROWTH_RUNS = 3
LEVELS = {"10k": 10_000, "100k": 100_000, "1M": 1_000_000}


async def growth(suite: Suite) -> Figure:
    """The same deliveries beside ten thousand, a hundred thousand and a million known ones."""
    levels = {name: suite.some(level, least=100) // 10 * 10 for name, level in LEVELS.items()}
    spent: dict[str, list[Window]] = {name: [] for name in levels}
    calibrations: list[Calibration] = []
    async with suite.receiver() as place:
        for number in range(suite.runs(GROWTH_RUNS)):
            calibrations.append(await calibrate(place.url("/ok")))
            for name, known in levels.items():
                suite.say(f"growth, round {number + 1}, {name} known")
                spent[name].append(await _beside(suite, place, known, f"g{number}{name}"))
    first, *others = levels
    largest = others[-1]
    costs = {name: [w.cpu_us["worker"] for w in windows] for name, windows in spent.items()}
    ratios = [
        Row(
            name="growth" if name == largest else f"growth_{name}",
            unit="x",
            runs=tuple(a / b for a, b in zip(costs[name], costs[first], strict=True)),
            limit=at_most(1.15),
            note=f"worker CPU with {name} known beside {first}, same round",
        )
        for name in reversed(others)
    ]
    each = [
        Row(name=f"growth_cpu_{name}", unit="us", runs=tuple(runs), note="worker CPU per delivery")
        for name, runs in costs.items()
    ]
    return Figure(
        name="growth",
        work=f"{suite.some(DELIVERIES, least=400):,} activities of 550 bytes preloaded, 64 in flight, one"
        f" worker whose ledger knows {', '.join(f'{n:,}' for n in levels.values())} deliveries (rows written"
        f" beforehand in the product's own forms). {len(calibrations)} interleaved runs; at the largest the"
        " same ledger serves all, so that each run adds its own deliveries to it.",
        rows=(*ratios, *each),
        plots=(Bars(unit="worker CPU us per delivery", groups=_named(costs)),),
        receiver=place.kind,
        cpu_us={f"{name} known": middle(windows) for name, windows in spent.items()},
        calibrations=calibrations,
    )


def _named(costs: dict[str, list[float]]) -> dict[str, Sequence[float]]:
    return {f"{name} known": runs for name, runs in costs.items()}


async def _beside(suite: Suite, place: Place, known: int, run: str) -> Window:
    """One run beside so many known deliveries."""
    if known == suite.known_deliveries:
        return await _deliver(suite, await suite.known_world(), place, run)
    async with suite.stage.world(**in_flight(64)) as world:
        await world.preload(world.topics.ledger, known_rows(known, int(time.time() * 1000)))
        return await _deliver(suite, world, place, run)


async def _deliver(suite: Suite, world: World, place: Place, run: str) -> Window:
    count = suite.some(DELIVERIES, least=400)
    await world.register(place.url("/ok"))
    await world.preload(world.topics.outbox, activities(run, count, [TARGET]))
    async with Watch(world, {}) as before:
        base = await before.count(world.topics.receipts)
    worker = world.start(folder="kept")
    # First of all a large ledger is restored: nothing moves until it led.
    await worker.event("ledger.restored", within_s=300)
    async with Watch(world, {"worker": [worker], "receiver": [place.child]}) as watch:
        samples = await watch.until(base + count)
    await check_sent(worker, count)
    await worker.end()
    return window(samples, base + count * WARM_UP, base + count)
