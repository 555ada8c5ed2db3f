"""A long, light run against a real Kafka that shows whether anything grows: `make soak MINUTES=60`.

Exit code 0 when every activity came to one verdict and no figure grew. A run of less than `JUDGED_MIN`
minutes is too short to tell growth from warming up: its figures are shown, and only the verdicts count.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Final

import uvloop

from tests.bench.proc import machine
from tests.bench.stage import stage
from tests.soak.judge import ALLOWED, Judged, judge
from tests.soak.report import Soak, table, write
from tests.soak.sample import cpu_now, look
from tests.soak.site import KILLED, Site
from tests.soak.traffic import Traffic

ROOT: Final = Path(__file__).parents[2]
KEPT: Final = ROOT / "docs"
"""Where a run that was judged is written, to be read and committed."""
TRIED: Final = ROOT / ".local" / "soak"
"""Where every other run is written."""

JUDGED_MIN: Final = 15.0
SAMPLE_S: Final = 10.0


def main() -> int:
    """Run what the command line asks for; 0 when nothing was broken and nothing grew."""
    asked = _arguments()
    # aiokafka tells of every retry; what fails in the end is raised.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    for name in [name for name in os.environ if name.upper().startswith("OUTBOX_")]:
        del os.environ[name]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            soak = runner.run(_run(asked))
        except (asyncio.CancelledError, KeyboardInterrupt):
            print("ended before its time; everything that it started is gone", file=sys.stderr)
            return 130
    is_judged = asked.minutes >= JUDGED_MIN
    for path in write(soak, asked.out or (KEPT if is_judged else TRIED)):
        print(path)
    print("\n".join([*(f"{k}: {v}" for k, v in soak.facts.items()), *table(soak.judged)]))
    print("\n".join(soak.broken[:20]))
    grew = [one.name for one in soak.judged if not one.is_flat]
    print(f"broken={len(soak.broken)} grew={len(grew)}{' '.join(['', *grew])}")
    return 0 if soak.is_good or not (soak.broken or is_judged) else 1


def _arguments() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(prog="make soak", description=__doc__)
    arguments.add_argument("--minutes", type=float, default=60.0)
    arguments.add_argument("--per-s", type=float, default=40.0, help="activities a second")
    arguments.add_argument("--seed", type=int, default=1, help="of the activities")
    arguments.add_argument(
        "--kill-every-s", type=float, default=300.0, help="seconds between kills of w3; 0: none"
    )
    arguments.add_argument("--out", type=Path, help="folder of soak.md and soak.json")
    return arguments.parse_args()


async def _run(asked: argparse.Namespace) -> Soak:
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    for_s = asked.minutes * 60
    window_s = min(120.0, for_s / 4)
    facts = machine()
    async with stage() as there, Site(there, int(window_s * 1000)) as site:
        kill_every_s = min(asked.kill_every_s, for_s / 2)
        traffic = Traffic(site, seed=asked.seed, per_s=asked.per_s, kill_every_s=kill_every_s)
        samples, used = await _watched(site, traffic, for_s)
        found = await traffic.settle()
        tally = site.tally
        broken = [str(violation) for violation in found]
        broken += [f"lost: {delivery} has no verdict" for delivery in tally.some_open()]
        broken += [f"disagreements: {delivery} has two verdicts" for delivery in tally.doubled]
        if broken:
            _keep_logs(site.folder)
        facts |= {
            "befell": ", ".join(f"{n} {name}" for name, n in sorted(traffic.did.items())) or "-",
            "activities": f"{site.produced:,}",
            "deliveries": f"{tally.asked:,}, {tally.open} without a verdict",
            "receipts": ", ".join(f"{n:,} {name}" for name, n in sorted(tally.verdicts.items())),
            "ledger records": f"{tally.ledger_records:,}, {tally.tombstones:,} of them tombstones",
            "checked whole": f"{len({s.activity for s in site.history.sources}):,} activities",
            "cores": ", ".join(f"{name} {share:.2f}" for name, share in used.items()),
        }
    return Soak(
        command=f"make soak MINUTES={asked.minutes:g}",
        minutes=asked.minutes,
        per_s=asked.per_s,
        window_s=window_s,
        facts=facts,
        judged=_judged(samples),
        broken=broken,
        samples=samples,
    )


def _keep_logs(folder: Path) -> None:
    """Leave what the workers said, for who looks into what was broken."""
    shutil.rmtree(TRIED / "logs", ignore_errors=True)
    (TRIED / "logs").mkdir(parents=True)
    for log in folder.glob("*.log"):
        shutil.copy(log, TRIED / "logs")
    print(f"logs of the workers and the receiver: {TRIED / 'logs'}")


async def _watched(
    site: Site, traffic: Traffic, for_s: float
) -> tuple[list[tuple[float, dict[str, float]]], dict[str, float]]:
    """Let it run, and look every now and then; give the samples and the cores used meanwhile."""
    began, cpu_before = time.monotonic(), cpu_now(site)
    samples: list[tuple[float, dict[str, float]]] = []
    running = asyncio.create_task(traffic.run(for_s))
    try:
        while not running.done():
            samples.append((round(time.monotonic() - began, 1), await look(site)))
            if len(samples) % 30 == 1:
                print(f"{samples[-1][0]:6.0f} s  {_line(site, samples[-1][1])}", flush=True)
            await asyncio.wait({running}, timeout=min(SAMPLE_S, for_s / 12))
        await running
    finally:
        running.cancel()
    passed_s, cpu_after = time.monotonic() - began, cpu_now(site)
    return samples, {name: (cpu_after[name] - cpu_before[name]) / passed_s for name in cpu_after}


def _line(site: Site, figures: dict[str, float]) -> str:
    names = ("topic bytes", "ledger bytes", "w1: rss", "w1: store", "held", "debts", "unsettled")
    told = ", ".join(f"{name} {figures.get(name, 0):,.0f}" for name in names)
    return f"{site.produced} produced, {site.tally.open} open, {told}"


def _judged(samples: list[tuple[float, dict[str, float]]]) -> list[Judged]:
    """All figures but the killed worker's own: they begin anew with each of its lives."""
    names = sorted({name for _, figures in samples for name in figures})
    judged = []
    for name in names:
        if name.startswith(KILLED) and not name.endswith("store"):
            continue
        series = [(t, figures[name]) for t, figures in samples if name in figures]
        if name.rpartition(": ")[2] in ALLOWED:
            judged.append(judge(name, series))
    return judged


if __name__ == "__main__":
    sys.exit(main())
