"""The deliveries themselves: what each costs, and how many a second one worker makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.bench.children import Worker
from tests.bench.clients import Loop, bare_loop
from tests.bench.preload import Record, activities
from tests.bench.proc import BenchError
from tests.bench.receivers import Place
from tests.bench.results import (
    CALIBRATION_REQUESTS,
    Bars,
    Calibration,
    Figure,
    Row,
    at_least,
    at_most,
    calibrate,
)
from tests.bench.stage import TARGET, World, in_flight
from tests.bench.suite import Suite
from tests.bench.watch import Watch, Window, between, middle, window

DELIVERIES = 20_000
RUNS = 5
WARM_UP = 0.1
"""Share of a run's deliveries that is not counted."""

WORK = (
    "{n:,} activities of 550 bytes (body; 706 and more with their envelope) to one registered target,"
    " signed by HMAC, preloaded; 1 worker with an empty disk, 8 partitions, 1 broker; a log line an attempt,"
    " receipts: all as by default. Counted from 10 % to 100 % of the receipts. {runs} interleaved runs."
)


@dataclass(slots=True, kw_only=True)
class Measured:
    """Everything that the rounds of deliveries gave, one entry a round."""

    deliveries: int
    receiver: str
    at_64: list[Window] = field(default_factory=list)
    at_256: list[Window] = field(default_factory=list)
    produced_us: list[dict[str, float]] = field(default_factory=list)
    """CPU per delivery while the activities were produced: the producer's and the broker's."""
    ours: list[Loop] = field(default_factory=list)
    aiohttp: list[Loop] = field(default_factory=list)
    calibrations: list[Calibration] = field(default_factory=list)


async def measured(suite: Suite) -> Measured:
    """The rounds of deliveries, made once a suite."""
    if suite.measured is not None:
        return suite.measured
    wanted = suite.wanted & {"cpu_per_delivery", "total_cpu_per_delivery", "deliveries_per_s"}
    count = suite.some(DELIVERIES, least=400)
    async with suite.receiver() as place:
        found = Measured(deliveries=count, receiver=place.kind)
        # One round is enough for `latency` alone, which only asks for the rate.
        for number in range(suite.runs(RUNS) if wanted else 1):
            suite.say(f"deliveries, round {number + 1}")
            await _round(suite, place, found, number)
    suite.measured = found
    return found


async def _round(suite: Suite, place: Place, found: Measured, number: int) -> None:
    url = place.url("/ok")
    found.calibrations.append(await calibrate(url))
    requests = max(found.deliveries, CALIBRATION_REQUESTS)
    found.ours.append(await bare_loop("ours", url, requests=requests))
    await _run(suite, place, found, f"a{number}", slots=64)
    if "cpu_per_delivery" in suite.wanted:
        found.aiohttp.append(await bare_loop("aiohttp", url, requests=requests))
    if "deliveries_per_s" in suite.wanted:
        await _run(suite, place, found, f"b{number}", slots=256)


async def _run(suite: Suite, place: Place, found: Measured, name: str, *, slots: int) -> None:
    """Preload, start a worker, watch the receipts come, stop it."""
    records = activities(name, found.deliveries, [TARGET])
    async with suite.stage.world(**in_flight(slots)) as world:
        await world.register(place.url("/ok"))
        async with Watch(world, {"receiver": [place.child]}) as before:
            began = before.cpu_now()
            producer_s = await world.preload(world.topics.outbox, records)
            broker_s = before.cpu_now()["broker"] - began["broker"]
        worker = world.start()
        async with Watch(world, {"worker": [worker], "receiver": [place.child]}) as watch:
            samples = await watch.until(found.deliveries)
        await check_sent(worker, found.deliveries)
    spent = window(samples, found.deliveries * WARM_UP, found.deliveries)
    if slots == 64:
        found.at_64.append(spent)
        each = {"producer": producer_s, "broker, producing": broker_s}
        found.produced_us.append({k: s / found.deliveries * 1e6 for k, s in each.items()})
    else:
        found.at_256.append(spent)


async def check_sent(worker: Worker, deliveries: int) -> None:
    """See that the worker made as many attempts as there were deliveries, and no more.

    Raises:
        BenchError: it did not: what was measured is not what it seems.
    """
    attempts = await worker.metric("outbox_attempts_total")
    if attempts != deliveries:
        raise BenchError(f"{worker.name} made {attempts:.0f} attempts for {deliveries} deliveries")


async def cpu_per_delivery(suite: Suite) -> Figure:
    """Worker CPU per delivery beside the bare loops on the same receiver."""
    found = await measured(suite)
    worker = [w.cpu_us["worker"] for w in found.at_64]
    ours = [x.cpu_us for x in found.ours]
    others = [x.cpu_us for x in found.aiohttp]
    return Figure(
        name="cpu_per_delivery",
        work=WORK.format(n=found.deliveries, runs=len(worker)) + " 64 in flight.",
        rows=(
            Row(
                name="cpu_per_delivery",
                unit="us",
                runs=tuple(worker),
                limit=at_most(250),
                note="worker CPU; 180 is the second goal",
            ),
            _ratio("cpu_per_delivery_to_aiohttp", worker, others, "aiohttp's bare loop", 1.0),
            _ratio("cpu_per_delivery_to_bare", worker, ours, "the bare loop, own transport"),
            Row(name="bare_loop_cpu", unit="us", runs=tuple(ours), note="floor: own transport"),
            Row(name="aiohttp_loop_cpu", unit="us", runs=tuple(others), note="floor: aiohttp"),
        ),
        plots=(
            Bars(
                unit="CPU us per delivery",
                groups={"worker": worker, "bare loop, ours": ours, "bare loop, aiohttp": others},
                limit=250,
            ),
        ),
        receiver=found.receiver,
        cpu_us={"64 in flight": middle(found.at_64)},
        calibrations=found.calibrations,
    )


def _ratio(
    name: str, runs: Sequence[float], floor: Sequence[float], beside: str, most: float | None = None
) -> Row:
    """Each run beside the floor of its own round."""
    return Row(
        name=name,
        unit="x",
        runs=tuple(a / b for a, b in zip(runs, floor, strict=True)),
        limit=None if most is None else at_most(most),
        note=f"beside {beside}, same round",
    )


async def total_cpu_per_delivery(suite: Suite) -> Figure:
    """Worker and broker, from producing to the receipt."""
    found = await measured(suite)
    totals = [
        spent.cpu_us["worker"] + spent.cpu_us["broker"] + sum(produced.values())
        for spent, produced in zip(found.at_64, found.produced_us, strict=True)
    ]
    parts = {name: [w.cpu_us[name] for w in found.at_64] for name in ("worker", "broker")}
    parts |= {name: [p[name] for p in found.produced_us] for name in found.produced_us[0]}
    return Figure(
        name="total_cpu_per_delivery",
        work=WORK.format(n=found.deliveries, runs=len(totals))
        + " 64 in flight. Worker + broker, and what producing the activities cost the producer (batched,"
        " values made beforehand) and the broker.",
        rows=(
            Row(
                name="total_cpu_per_delivery",
                unit="us",
                runs=tuple(totals),
                limit=at_most(400),
                note="worker + broker + producer",
            ),
            *(
                Row(
                    name=f"total_cpu_{name.replace(', ', '_')}",
                    unit="us",
                    runs=tuple(runs),
                    note="part",
                )
                for name, runs in parts.items()
            ),
        ),
        plots=(Bars(unit="CPU us per delivery", groups={"total": totals, **parts}, limit=400),),
        receiver=found.receiver,
        cpu_us={"64 in flight": middle(found.at_64)},
        calibrations=found.calibrations,
    )


async def deliveries_per_s(suite: Suite) -> Figure:
    """Deliveries a second of one worker, with 64 and with 256 in flight."""
    found = await measured(suite)
    at_64 = [w.per_s for w in found.at_64]
    at_256 = [w.per_s for w in found.at_256]
    bare = [x.per_s for x in found.ours]
    return Figure(
        name="deliveries_per_s",
        work=WORK.format(n=found.deliveries, runs=len(at_64)),
        rows=(
            Row(
                name="deliveries_per_s",
                unit="/s",
                runs=tuple(at_64),
                limit=at_least(4_000),
                note="64 in flight",
            ),
            Row(
                name="deliveries_per_s_256",
                unit="/s",
                runs=tuple(at_256),
                limit=at_least(4_000),
                note="256 in flight",
            ),
            Row(
                name="bare_loop_per_s",
                unit="/s",
                runs=tuple(bare),
                note="the bare loop, 64 in flight",
            ),
        ),
        plots=(
            Bars(
                unit="deliveries per second",
                groups={"64 in flight": at_64, "256 in flight": at_256, "bare loop": bare},
                limit=4_000,
            ),
        ),
        receiver=found.receiver,
        cpu_us={"64 in flight": middle(found.at_64), "256 in flight": middle(found.at_256)},
        calibrations=found.calibrations,
    )


async def live_block(watch: Watch, world: World, records: list[Record], deliveries: int) -> Window:
    """Produce to a worker that runs and waits; what it cost until the last receipt."""
    start = await watch.look()
    await world.preload(world.topics.outbox, records)
    samples = await watch.until(start.done + deliveries, per_s=50)
    return between(start, samples[-1])
