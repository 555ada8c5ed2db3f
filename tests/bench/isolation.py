"""What a hundred healthy targets feel of one that hangs and one that is down (C-08)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiokafka.admin import AIOKafkaAdminClient

from tests.bench.openloop import calls_of, producing, send
from tests.bench.preload import activities
from tests.bench.proc import BenchError
from tests.bench.receivers import Place
from tests.bench.results import Bars, Calibration, Figure, Row, at_most, calibrate, percentile
from tests.bench.stage import World
from tests.bench.suite import Suite
from tests.bench.watch import Watch, Window, between, middle

SICK_EACH = 20_000
HEALTHY = 100
RATE = 100.0
WINDOW_S = 8.0
WINDOWS = 2
LATE_MS = 1_000.0
"""A healthy target's delivery that takes longer counts as late."""

TAKEN_IN_S = 120.0


async def isolation(suite: Suite) -> Figure:
    """Quiet windows; then 20,000 deliveries each to a hanging and to a dead target; then the same again."""
    quiet: list[list[float]] = []
    beside: list[list[float]] = []
    spent: list[Window] = []
    paced: list[float] = []
    calibrations: list[Calibration] = []
    seconds = max(2.0, WINDOW_S * min(1.0, suite.scale))
    async with suite.receiver(logs=True) as place, _sick() as urls, suite.stage.world() as world:
        calibrations.append(await calibrate(place.url("/ok")))
        worker = world.start()
        await worker.ready()
        async with (
            producing(world.options) as producer,
            Watch(world, {"worker": [worker], "receiver": [place.child]}) as watch,
        ):

            async def window(name: str) -> list[float]:
                records = activities(name, int(RATE * seconds), _healthy(place))
                sent = await send(producer, world.topics.outbox, records, RATE, paced)
                return await calls_of(place, records, sent)

            await window("warm")
            for number in range(suite.runs(WINDOWS)):
                suite.say(f"isolation, quiet window {number + 1}")
                quiet.append(await window(f"q{number}"))
            count = suite.some(SICK_EACH, least=200)
            suite.say(f"{2 * count:,} deliveries to a target that hangs and to one that is down")
            await world.preload(world.topics.outbox, activities("s", 2 * count, urls))
            await _until_taken_in(world, watch, suite)
            for number in range(suite.runs(WINDOWS)):
                suite.say(f"isolation, window {number + 1} beside them")
                before = await watch.look()
                beside.append(await window(f"b{number}"))
                spent.append(between(before, await watch.look()))
            aside = await worker.metric("outbox_put_aside_total")
        world.kill()  # a clean end would wait for the calls that hang
    return _figure(place, quiet, beside, spent, calibrations, aside)


def _healthy(place: Place) -> list[str]:
    return [place.url(f"/ok/{number}") for number in range(HEALTHY)]


@asynccontextmanager
async def _sick() -> AsyncIterator[list[str]]:
    """Two URLs: of a server that takes every request and answers none, and of nobody."""

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65_536):
            pass
        writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # held and never listened on: every connection is refused
        ports = [server.sockets[0].getsockname()[1], nobody.getsockname()[1]]
        async with server:
            yield [f"http://127.0.0.1:{port}/inbox" for port in ports]


async def _until_taken_in(world: World, watch: Watch, suite: Suite) -> None:
    """Wait until every record of the outbox is settled: each sick delivery waits in a delay topic.

    Raises:
        BenchError: it takes too long.
    """
    admin = AIOKafkaAdminClient(**world.options)
    await admin.start()
    try:
        ends = asyncio.get_running_loop().time() + TAKEN_IN_S
        while await _lag(admin, world, watch):
            if asyncio.get_running_loop().time() > ends:
                raise BenchError(f"the sick deliveries were not taken in within {TAKEN_IN_S:.0f} s")
            await asyncio.sleep(0.5)
    finally:
        await admin.close()
    suite.say("all of them wait")


async def _lag(admin: AIOKafkaAdminClient, world: World, watch: Watch) -> int:
    outbox = world.topics.outbox
    committed = await admin.list_consumer_group_offsets(world.topics.group)
    done = sum(at.offset for tp, at in committed.items() if tp.topic == outbox)
    return await watch.count(outbox) - done


def _figure(
    place: Place,
    quiet: list[list[float]],
    beside: list[list[float]],
    spent: list[Window],
    calibrations: list[Calibration],
    aside: float,
) -> Figure:
    p99 = [tuple(percentile(each, 0.99) for each in group) for group in (quiet, beside)]
    ratios = tuple(sick / calm for calm, sick in zip(*p99, strict=True))
    late = tuple(float(sum(ms > LATE_MS for ms in each)) for each in beside)
    return Figure(
        name="isolation",
        work=f"{RATE:.0f} activities/s in all to {HEALTHY} healthy targets, from the planned time to the"
        f" receiver's time of the call: alone; then while {SICK_EACH:,} deliveries to a target that takes"
        f" requests and answers none, and {SICK_EACH:,} to one that refuses connections, wait for it. One"
        f" worker, everything as by default. {len(beside)} windows of {len(beside[0]):,} each;"
        f" {aside:,.0f} times a sick delivery stepped aside.",
        rows=(
            Row(
                name="isolation_p99",
                unit="x",
                runs=ratios,
                limit=at_most(2),
                note="the healthy ones' p99 beside the sick, to that of a quiet window",
            ),
            Row(
                name="isolation_late",
                unit="",
                runs=late,
                limit=at_most(0),
                note=f"of the healthy ones, called more than {LATE_MS:,.0f} ms after their time",
            ),
            Row(name="isolation_quiet_p99", unit="ms", runs=p99[0], note="floor: no sick target"),
            Row(name="isolation_beside_p99", unit="ms", runs=p99[1], note="beside the sick ones"),
        ),
        plots=(
            Bars(
                unit="p99 ms, produce to call",
                groups={"quiet": list(p99[0]), "beside the sick": list(p99[1])},
            ),
        ),
        receiver=place.kind,
        cpu_us={"beside the sick": middle(spent)},
        calibrations=calibrations,
    )
