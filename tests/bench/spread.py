"""One activity to many, and one outbox over many workers."""

from __future__ import annotations

import asyncio
from statistics import median

from tests.bench.children import Worker
from tests.bench.deliveries import live_block
from tests.bench.preload import PARTITIONS, activities
from tests.bench.proc import BenchError
from tests.bench.receivers import Place
from tests.bench.results import Bars, Calibration, Figure, Row, at_least, at_most, calibrate
from tests.bench.stage import in_flight
from tests.bench.suite import Suite
from tests.bench.watch import Watch, Window, middle, window

RECIPIENTS = 1_000
FANNED_OUT = 5
"""Activities of a block: one alone would be too little for the kernel's clock of 10 ms."""
FAN_OUT_RUNS = 5


async def fan_out(suite: Suite) -> Figure:
    """Activities to 1,000 inboxes each, beside as many activities to one of the same inboxes each."""
    recipients = suite.some(RECIPIENTS, least=100)
    deliveries = FANNED_OUT * recipients
    together: list[Window] = []
    apart: list[Window] = []
    calibrations: list[Calibration] = []
    async with suite.receiver() as place, suite.stage.world(**in_flight(64)) as world:
        inboxes = [place.url(f"/ok/{n}") for n in range(recipients)]
        worker = world.start()
        await worker.ready()
        async with Watch(world, {"worker": [worker], "receiver": [place.child]}) as watch:

            async def one(name: str, each: int) -> Window:
                records = activities(name, deliveries // each, inboxes, each=each)
                return await live_block(watch, world, records, deliveries)

            await one("warm-1", 1)
            await one("warm-n", recipients)
            for number in range(suite.runs(FAN_OUT_RUNS)):
                suite.say(f"fan_out, round {number + 1}")
                calibrations.append(await calibrate(place.url("/ok")))
                together.append(await one(f"n{number}", recipients))
                apart.append(await one(f"1{number}", 1))
    fanned, single = ([w.cpu_us["worker"] for w in windows] for windows in (together, apart))
    whole = [_both(w) / _both(x) for w, x in zip(together, apart, strict=True)]
    return Figure(
        name="fan_out",
        work=f"{FANNED_OUT} activities to {recipients:,} inboxes each, beside {deliveries:,} activities to"
        " one of the same inboxes each; body 550 bytes; one warm worker, 64 in flight, produced while it"
        f" waits; a warm-up of both left out. {len(together)} interleaved runs.",
        rows=(
            Row(
                name="fan_out",
                unit="x",
                runs=tuple(a / b for a, b in zip(fanned, single, strict=True)),
                limit=at_most(0.8),
                note="worker CPU, beside activities of one recipient, same round",
            ),
            Row(
                name="fan_out_total", unit="x", runs=tuple(whole), note="the same, worker + broker"
            ),
            Row(name="fan_out_cpu", unit="us", runs=tuple(fanned), note="worker CPU per delivery"),
            Row(
                name="fan_out_single_cpu",
                unit="us",
                runs=tuple(single),
                note="floor: one recipient each",
            ),
        ),
        plots=(
            Bars(
                unit="worker CPU us per delivery",
                groups={f"1 to {recipients:,}": fanned, "1 to 1": single},
                limit=0.8 * median(single),
            ),
        ),
        receiver=place.kind,
        cpu_us={f"1 to {recipients:,}": middle(together), "1 to 1": middle(apart)},
        calibrations=calibrations,
    )


def _both(spent: Window) -> float:
    return spent.cpu_us["worker"] + spent.cpu_us["broker"]


# ── Scale ───────────────────────────────────────────────────────────────────────────────────────

WORKERS = (1, 2, 4)
SCALE_RUNS = 3
DELIVERIES = 8_000
SLOW_MS = 20
CONNECTIONS = 20
"""The default of a target; all of them are kept."""


async def scale(suite: Suite) -> Figure:
    """1, 2 and 4 workers over a receiver that takes 20 ms."""
    spent: dict[int, list[Window]] = {workers: [] for workers in WORKERS}
    calibrations: list[Calibration] = []
    async with suite.receiver(slow=True) as place:
        for number in range(suite.runs(SCALE_RUNS)):
            calibrations.append(await calibrate(place.url("/ok")))
            for workers in WORKERS:
                suite.say(f"scale, round {number + 1}, {workers} worker(s)")
                spent[workers].append(await _with_workers(suite, place, workers, f"s{number}"))
    rates = {workers: [w.per_s for w in windows] for workers, windows in spent.items()}
    cores = {n: [_cores(w) for w in windows] for n, windows in spent.items()}
    ratios = [
        Row(
            name="scale" if n == 2 else f"scale_{n}",
            unit="x",
            runs=tuple(a / b for a, b in zip(rates[n], rates[1], strict=True)),
            limit=at_least(1.8) if n == 2 else None,
            note=f"{n} workers: deliveries/s beside 1 worker, same round",
        )
        for n in WORKERS[1:]
    ]
    each = [
        Row(
            name=f"scale_{n}_per_s",
            unit="/s",
            runs=tuple(rates[n]),
            note=f"{median(cores[n]):.2f} cores in use: workers, broker and receiver",
        )
        for n in WORKERS
    ]
    return Figure(
        name="scale",
        work=f"{suite.some(DELIVERIES, least=600):,} activities of 550 bytes, produced once the workers share"
        f" the 8 partitions, to `/slow/{SLOW_MS}` of `outbox receiver` (nginx alone cannot wait);"
        f" {CONNECTIONS} connections a worker. Counted from 10 % to 80 % of the receipts."
        f" {len(calibrations)} interleaved runs.",
        rows=(*ratios, *each),
        plots=(
            Bars(unit="deliveries per second", groups={f"{n} workers": rates[n] for n in WORKERS}),
            Bars(unit="cores in use", groups={f"{n} workers": cores[n] for n in WORKERS}),
        ),
        receiver=place.kind,
        cpu_us={f"{n} workers": middle(windows) for n, windows in spent.items()},
        calibrations=calibrations,
    )


def _cores(spent: Window) -> float:
    """How many cores all processes together kept busy."""
    return sum(spent.cpu_us.values()) * spent.per_s / 1e6


async def _with_workers(suite: Suite, place: Place, count: int, run: str) -> Window:
    deliveries = suite.some(DELIVERIES, least=600)
    records = activities(f"{run}-{count}", deliveries, [place.url(f"/slow/{SLOW_MS}")])
    connections = {
        "policy_activity_max_connections": CONNECTIONS,
        "policy_activity_max_idle": CONNECTIONS,
    }
    async with suite.stage.world(**connections) as world:
        workers = [world.start(f"w{n}") for n in range(count)]
        await _shared(workers)
        async with Watch(world, {"worker": workers, "receiver": [place.child]}) as watch:
            writing = asyncio.create_task(world.preload(world.topics.outbox, records))
            samples = await watch.until(deliveries)
            await writing
        attempts = [await worker.metric("outbox_attempts_total") for worker in workers]
    if sum(attempts) != deliveries:
        raise BenchError(f"{attempts} attempts for {deliveries} deliveries")
    return window(samples, deliveries * 0.1, deliveries * 0.8)


async def _shared(workers: list[Worker]) -> None:
    """Wait until every worker leads its share of the partitions."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + 90
    share = PARTITIONS // len(workers)
    while True:
        for worker in workers:
            await worker.ready()
        led = [await worker.metric("outbox_partitions_led") for worker in workers]
        if led == [share] * len(workers):
            return
        if loop.time() > ends:
            raise BenchError(f"the workers do not share the partitions: they lead {led}")
        await asyncio.sleep(0.5)
