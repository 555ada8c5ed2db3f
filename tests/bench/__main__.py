"""The benchmark suite: `make bench`, or `.venv/bin/python -m tests.bench`.

Every figure of the table is measured in this run or said not to be. The exit code says whether it ran,
never whether a number is good.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import uvloop
from aiokafka.errors import KafkaError

from streams.errors import StreamsError
from tests.bench import deliveries, isolation, latency, ledger, read_model, retries, spread
from tests.bench.proc import BenchError, machine
from tests.bench.report import text, write
from tests.bench.results import Figure
from tests.bench.stage import stage
from tests.bench.suite import Suite

ROOT: Final = Path(__file__).parents[2]
KEPT: Final = ROOT / "docs" / "bench"
"""Where a run of the whole work is written, to be read and committed."""
TRIED: Final = ROOT / ".local" / "bench"
"""Where every other run is written."""

FIGURES: Final[Mapping[str, Callable[[Suite], Awaitable[Figure]]]] = {
    "cpu_per_delivery": deliveries.cpu_per_delivery,
    "total_cpu_per_delivery": deliveries.total_cpu_per_delivery,
    "deliveries_per_s": deliveries.deliveries_per_s,
    "latency": latency.latency,
    "isolation": isolation.isolation,
    "retry_lateness": retries.retry_lateness,
    "restore": ledger.restore,
    "read_model": read_model.read_model,
    "scale": spread.scale,
    "backlog": retries.backlog,
    "fan_out": spread.fan_out,
    "growth": ledger.growth,
}
"""In the order of the issue's table. Measured in `ORDER`."""

ORDER: Final = (
    *("retry_lateness", "fan_out", "scale", "isolation"),
    *("cpu_per_delivery", "total_cpu_per_delivery", "deliveries_per_s", "latency"),
    *("restore", "read_model", "growth", "backlog"),
)
"""What is told in microseconds comes when the broker has compiled its code: in the first runs it takes
three times the CPU. The last four share a ledger; `backlog` fills its delay topics, so it comes at the
very end."""


def main() -> int:
    """Run what the command line asks for; 0 when all of it was measured."""
    chosen = _arguments()
    # aiokafka tells of every retry; what fails in the end is raised.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    for name in [name for name in os.environ if name.upper().startswith("OUTBOX_")]:
        del os.environ[name]
    folder = chosen.out or (KEPT if chosen.scale == 1 else TRIED)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            return runner.run(_run(chosen.only or list(FIGURES), chosen.scale, folder))
        except (asyncio.CancelledError, KeyboardInterrupt):
            print("ended before its time; everything that it started is gone", file=sys.stderr)
            return 130


def _arguments() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(prog="make bench", description=__doc__)
    arguments.add_argument(
        "--only", action="append", choices=[*FIGURES], help="one figure; may repeat"
    )
    arguments.add_argument(
        "--scale", type=float, default=1.0, help="of the amount of work; 1 counts"
    )
    arguments.add_argument("--out", type=Path, help="folder of JSON, text and plots")
    return arguments.parse_args()


async def _run(names: list[str], scale: float, folder: Path) -> int:
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    began = time.monotonic()
    counts = "" if scale == 1 else ": no number of this run counts"
    facts = machine() | {"scale": f"{scale:g}{counts}"}
    found: dict[str, Figure] = {}
    failed: dict[str, str] = {}
    async with stage() as there, AsyncExitStack() as closing:
        suite = Suite(stage=there, scale=scale, closing=closing, wanted=frozenset(names))
        for name in [name for name in ORDER if name in names]:
            suite.say(name)
            try:
                found[name] = await FIGURES[name](suite)
            except (BenchError, StreamsError, KafkaError, OSError) as error:
                failed[name] = str(error)
                suite.say(f"{name} could not be measured: {error}")
            else:
                write(found[name], folder, facts)
    facts["took"] = f"{time.monotonic() - began:.0f} s"
    told = text([found[name] for name in FIGURES if name in found], failed, facts)
    if len(found) == len(FIGURES):
        (folder / "results.txt").write_text(told)
    print(told, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
