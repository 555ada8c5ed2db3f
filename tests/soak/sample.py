"""One look at everything that could grow."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.bench.proc import cpu_s, rss_bytes
from tests.soak.site import KILLED, PREFIX, STEADY, Site

_METRICS: Final = {
    "outbox_held": "held",
    "outbox_debts": "debts",
    "outbox_unsettled": "unsettled",
}


async def look(site: Site) -> dict[str, float]:
    """Figures by name: those of a worker as `w1: rss`, those of all together without a name.

    A worker that is being killed or started just now is left out.
    """
    figures: dict[str, float] = {}
    sums = dict.fromkeys(_METRICS.values(), 0.0)
    for name, worker in list(site.workers.items()):
        figures[f"{name}: store"] = await asyncio.to_thread(_tree_bytes, site.data_dir(name))
        for metric, value in (await _metrics(site, name)).items():
            sums[metric] += value
        rss = rss_bytes(worker.pid)
        if rss:
            figures[f"{name}: rss"] = rss
            figures[f"{name}: fds"] = _count(worker.pid, "fd")
            figures[f"{name}: threads"] = _count(worker.pid, "task")
    figures.update(sums)
    records = site.stage.records_dir
    logs = await asyncio.to_thread(lambda: dict(_log_bytes(records)))
    ledger = site.topics.ledger
    figures["topic bytes"] = sum(logs.values())
    figures["ledger bytes"] = sum(v for k, v in logs.items() if k.rpartition("-")[0] == ledger)
    figures["topics"] = len({name.rpartition("-")[0] for name in logs})
    return figures


def cpu_now(site: Site) -> dict[str, float]:
    """CPU seconds since their start: workers that live throughout, the broker, the soak itself."""
    return {
        "workers": cpu_s([site.workers[name].pid for name in STEADY]),
        "broker": cpu_s(site.stage.broker_pids),
        "soak": cpu_s([os.getpid()]),
    }


async def _metrics(site: Site, name: str) -> dict[str, float]:
    """The gauges of a worker; none where it does not answer, as one that is being killed."""
    if name == KILLED and not site.workers[name].runs:
        return {}
    status, text = await site.workers[name].page("/metrics")
    if status != 200:
        return {}
    told = (line.split(" ") for line in text.splitlines() if line.startswith("outbox_"))
    return {_METRICS[line[0]]: float(line[1]) for line in told if line[0] in _METRICS}


def _count(pid: int, what: str) -> float:
    try:
        return len(os.listdir(f"/proc/{pid}/{what}"))  # noqa: PTH208  # names are not wanted
    except OSError:
        return 0.0


def _tree_bytes(folder: Path) -> int:
    """Of all files below a folder; one that vanishes meanwhile counts nothing."""
    total = 0
    for at, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(f"{at}/{name}").st_size  # noqa: PTH116  # thousands of them
            except FileNotFoundError:
                continue
    return total


def _log_bytes(records: Path) -> Iterator[tuple[str, int]]:
    """Partition to the bytes of its segments, indexes left out: those are preallocated."""
    for partition in os.scandir(records):
        if partition.name.startswith(PREFIX) and partition.is_dir():
            total = 0
            for file in os.scandir(partition):
                if file.name.endswith(".log"):
                    try:
                        total += file.stat().st_size
                    except FileNotFoundError:
                        continue
            yield partition.name, total
