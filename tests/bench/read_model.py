"""The operator API over a ledger grown large: how fast it is built, how soon it answers, how soon again."""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Final

import httpx

from tests.bench.children import Api
from tests.bench.ledger import Read, read_raw
from tests.bench.proc import BenchError, cpu_s
from tests.bench.results import (
    Bars,
    Calibration,
    Figure,
    Row,
    at_least,
    at_most,
    calibrate,
    percentile,
)
from tests.bench.stage import World
from tests.bench.suite import Suite

BUILDS = 3
RATE_PER_S = 50
ASKED_S = 60
BASE: Final = "/api/v2/notifications/deliveries"

_TOKEN: Final = "bench-token"
_TOKENS: Final = json.dumps(
    [
        {
            "token": _TOKEN,
            "subject": "bench",
            "tenants": ["default"],
            "scopes": ["notification:read"],
        }
    ]
)
_AUTH: Final = {"authorization": f"Bearer {_TOKEN}"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """Milliseconds from the planned time of each request to its whole answer."""

    lists: list[float]
    shows: list[float]
    floor: list[float]

    @property
    def count(self) -> int:
        """Of all three kinds."""
        return len(self.lists) + len(self.shows) + len(self.floor)


async def read_model(suite: Suite) -> Figure:
    """Empty files and a million rows, beside reading the same topic; then what answers and starts cost."""
    world = await suite.known_world()
    raw: list[Read] = []
    built: list[Read] = []
    calibrations: list[Calibration] = []
    for number in range(suite.runs(BUILDS)):
        suite.say(f"read_model, round {number + 1}")
        calibrations.append(await calibrate(None))
        raw.append(await read_raw(world))
        api, took = await _build(world, raw[-1].rows)
        built.append(took)
        if number + 1 < suite.runs(BUILDS):
            await api.end()
    suite.say(f"read_model, {RATE_PER_S} requests a second")
    asked = await _ask(api, suite.some(ASKED_S, least=2) * RATE_PER_S)
    await api.end()
    suite.say("read_model, restarts")
    restarts: list[float] = []
    imports: list[float] = []
    for _ in range(suite.runs(BUILDS)):
        imports.append(await _import())
        restarts.append(await _restart(world))
    beside = tuple(a.seconds / b.seconds for a, b in zip(built, raw, strict=True))
    per_s = tuple(read.per_s for read in built)
    return Figure(
        name="read_model",
        work=f"The {raw[0].rows:,} ledger records of `restore`. {len(built)} interleaved runs of an `outbox"
        " api` with empty files, from the first fetch to files that can be asked (`view.built` in its"
        f" log). Then {asked.count:,} requests, lists of 50, single deliveries and /healthz in turn, at"
        f" {RATE_PER_S} a second, from their planned time to the whole answer, over one kept connection."
        " Then starts of a process with these files, from `exec` to 200 of `/readyz`; a process that only"
        " imports the same beside each.",
        rows=(
            Row(
                name="read_model",
                unit="rows/s",
                runs=per_s,
                limit=at_least(100_000),
                note="an API, empty files",
            ),
            Row(
                name="read_model_to_raw",
                unit="x",
                runs=beside,
                limit=at_most(4),
                note="time, beside raw getmany",
            ),
            Row(
                name="read_model_raw",
                unit="rows/s",
                runs=tuple(read.per_s for read in raw),
                note="floor: bare aiokafka getmany, same topic",
            ),
            _p99("read_model_list", asked.lists, "GET /deliveries?limit=50"),
            _p99("read_model_show", asked.shows, "GET /deliveries/{id}"),
            Row(
                name="read_model_floor_p99",
                unit="ms",
                runs=(percentile(asked.floor, 0.99),),
                note="GET /healthz in the same loop, which reads nothing; median"
                f" {percentile(asked.floor, 0.5):.1f} ms",
            ),
            Row(
                name="read_model_restart",
                unit="s",
                runs=tuple(restarts),
                limit=at_most(2),
                note="Python's imports and the connecting included",
            ),
            Row(
                name="read_model_imports",
                unit="s",
                runs=tuple(imports),
                note="floor: a process that imports what the API does, and ends",
            ),
        ),
        plots=(
            Bars(
                unit="rows per second",
                groups={"API": per_s, "raw getmany": [read.per_s for read in raw]},
                limit=100_000,
            ),
            Bars(unit="ms", groups={"list": asked.lists, "show": asked.shows}, limit=20),
        ),
        cpu_us={
            "building": {"API": median(read.cpu_us for read in built)},
            "raw": {"client": median(read.cpu_us for read in raw)},
        },
        calibrations=calibrations,
    )


def _p99(name: str, took_ms: list[float], note: str) -> Row:
    return Row(
        name=f"{name}_p99",
        unit="ms",
        runs=(percentile(took_ms, 0.99),),
        limit=at_most(20),
        note=f"{note}; median {percentile(took_ms, 0.5):.1f} ms",
    )


def _start(world: World) -> Api:
    return world.start_api("api", folder="api", api_tokens=_TOKENS)


async def _build(world: World, rows: int) -> tuple[Api, Read]:
    """Start an API on empty files; it is given back once it answers."""
    shutil.rmtree(world.folder / "api", ignore_errors=True)
    api = _start(world)
    await api.event("api.listening")
    cpu = cpu_s([api.pid])
    built = await api.event("view.built", within_s=300)
    cpu = cpu_s([api.pid]) - cpu
    await _until_ready(api)
    return api, Read(rows=rows, seconds=built["seconds"], cpu_us=cpu / rows * 1e6)


async def _until_ready(api: Api) -> None:
    async with httpx.AsyncClient(base_url=await api.address(), headers=_AUTH) as client:
        while (await client.get("/readyz")).status_code != 200:
            api.check()
            await asyncio.sleep(0.01)


async def _import() -> float:
    began = time.perf_counter()
    imported = "import streams.__main__, streams.cli.api, streams.cli.api_service"
    command = [sys.executable, "-c", imported]
    process = await asyncio.create_subprocess_exec(*command)
    if await process.wait():
        raise BenchError("what the API imports cannot be imported")
    return time.perf_counter() - began


async def _restart(world: World) -> float:
    began = time.perf_counter()
    api = _start(world)
    await _until_ready(api)
    took = time.perf_counter() - began
    await api.end()
    return took


async def _ask(api: Api, count: int) -> _Asked:
    """An open loop: a request that is late is late for whoever asked."""
    asked = _Asked(lists=[], shows=[], floor=[])
    async with httpx.AsyncClient(base_url=await api.address(), headers=_AUTH) as client:
        ids = await _some_ids(client)
        began = time.perf_counter()
        waiting = []
        for number in range(count):
            planned = began + number / RATE_PER_S
            await asyncio.sleep(max(0.0, planned - time.perf_counter()))
            path, took = (
                (f"{BASE}?limit=50", asked.lists),
                (f"{BASE}/{next(ids)}", asked.shows),
                ("/healthz", asked.floor),
            )[number % 3]
            waiting.append(asyncio.ensure_future(_one(client, path, planned, took)))
        await asyncio.gather(*waiting)
    return asked


async def _one(client: httpx.AsyncClient, path: str, planned: float, took_ms: list[float]) -> None:
    answer = await client.get(path)
    if answer.status_code != 200:
        raise BenchError(f"{path} was answered {answer.status_code}")
    took_ms.append((time.perf_counter() - planned) * 1_000)


async def _some_ids(client: httpx.AsyncClient) -> Iterator[str]:
    """Ids of several pages, over and over."""
    ids: list[str] = []
    after = {"limit": "200"}
    while len(ids) < 2_000:
        page = (await client.get(BASE, params=after)).json()
        ids += [each["delivery_id"] for each in page["items"]]
        if page["next_cursor"] is None:
            break
        after["cursor"] = page["next_cursor"]
    if not ids:
        raise BenchError("the API shows no delivery")
    return itertools.cycle(ids)
