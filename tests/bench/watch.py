"""Watching a run from outside: how far it is, and what every process used until then.

Progress is the end of a topic (the receipts, say), asked of the broker ten times a second: no worker is
asked anything while it is measured. Only what lies between two samples counts, so start-up does not.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final, Self

from aiokafka import AIOKafkaConsumer, TopicPartition

from tests.bench.children import Child
from tests.bench.preload import PARTITIONS
from tests.bench.proc import BenchError, cpu_s
from tests.bench.stage import World

LOOKS_PER_S: Final = 10
STALL_S: Final = 60.0
"""A run in which nothing moved for so long is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One look. `cpu_s`: CPU seconds since its start of each process, by name."""

    t: float
    done: int
    cpu_s: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What happened between two samples.

    Attributes:
        seconds: How long it was.
        done: How many deliveries.
        cpu_us: CPU microseconds per delivery, by process.
    """

    seconds: float
    done: int
    cpu_us: dict[str, float]

    @property
    def per_s(self) -> float:
        """Deliveries per second."""
        return self.done / self.seconds


class Watch:
    """Looks at the ends of topics of one world. Use as an async context."""

    def __init__(self, world: World, processes: Mapping[str, Sequence[Child]]) -> None:
        self._world = world
        self._processes = processes
        self._consumer: AIOKafkaConsumer[bytes, bytes] = AIOKafkaConsumer(
            **world.options, enable_auto_commit=False
        )

    async def __aenter__(self) -> Self:
        await self._consumer.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._consumer.stop()

    async def count(self, *topics: str) -> int:
        """Records that were ever written to these topics."""
        tps = [TopicPartition(topic, p) for topic in topics for p in range(PARTITIONS)]
        return sum((await self._consumer.end_offsets(tps)).values())

    async def look(self, *topics: str) -> Sample:
        """One sample; the receipts' topic unless told."""
        done = await self.count(*(topics or (self._world.topics.receipts,)))
        return Sample(t=time.perf_counter(), done=done, cpu_s=self.cpu_now())

    def cpu_now(self) -> dict[str, float]:
        """CPU seconds of every process watched, and of the broker."""
        used = {
            name: cpu_s([child.pid for child in children])
            for name, children in self._processes.items()
        }
        return used | {"broker": cpu_s(self._world.stage.broker_pids)}

    async def until(self, done: int, *topics: str, per_s: float = LOOKS_PER_S) -> list[Sample]:
        """Look until so many records are there.

        Raises:
            BenchError: a process ended, or nothing moves any more.
        """
        samples = [await self.look(*topics)]
        moved = samples[0].t
        while samples[-1].done < done:
            await asyncio.sleep(1 / per_s)
            samples.append(await self.look(*topics))
            if samples[-1].done > samples[-2].done:
                moved = samples[-1].t
            self._check(samples[-1], done, stalled_s=samples[-1].t - moved)
        return samples

    def _check(self, sample: Sample, wanted: int, *, stalled_s: float) -> None:
        children = [child for group in self._processes.values() for child in group]
        for child in children:
            child.check()
        if stalled_s > STALL_S:
            tails = "\n".join(f"--- {child.name}\n{child.tail()}" for child in children)
            raise BenchError(f"{sample.done} of {wanted} after {STALL_S:.0f} s at rest\n{tails}")


def window(samples: Sequence[Sample], first: float, last: float) -> Window:
    """What happened between the first sample with `first` done and the first with `last` done.

    Raises:
        BenchError: it was over between two looks.
    """
    start = next(sample for sample in samples if sample.done >= first)
    end = next(sample for sample in samples if sample.done >= last)
    return between(start, end)


def between(start: Sample, end: Sample) -> Window:
    """What happened between two samples.

    Raises:
        BenchError: nothing did.
    """
    done = end.done - start.done
    if done <= 0 or end.t <= start.t:
        raise BenchError("too little work to measure: the run was over between two looks")
    used = {name: end.cpu_s[name] - start.cpu_s[name] for name in end.cpu_s}
    return Window(
        seconds=end.t - start.t,
        done=done,
        cpu_us={name: seconds / done * 1e6 for name, seconds in used.items()},
    )


def middle(windows: Sequence[Window]) -> dict[str, float]:
    """Median CPU per delivery of each process over several windows."""
    return {name: median(w.cpu_us[name] for w in windows) for name in windows[0].cpu_us}
