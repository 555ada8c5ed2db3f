"""What a figure says: rows of the table, the CPU behind them, the calibration beside them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median
from typing import Final

from tests.bench.clients import Loop, bare_loop

PYTHON_ROUNDS: Final = 100_000
CALIBRATION_REQUESTS: Final = 6_400


class Sense(StrEnum):
    """Which side of a limit is the good one."""

    AT_MOST = "<="
    AT_LEAST = ">="


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """What the issue asks for."""

    sense: Sense
    value: float

    def shortfall(self, measured: float) -> float:
        """By what share of the limit `measured` falls short, of 1 where that is 0; 0 where it does not."""
        missing = (measured - self.value) / (abs(self.value) or 1.0)
        return max(0.0, missing if self.sense is Sense.AT_MOST else -missing)


def at_most(value: float) -> Limit:
    """No more than."""
    return Limit(sense=Sense.AT_MOST, value=value)


def at_least(value: float) -> Limit:
    """No less than."""
    return Limit(sense=Sense.AT_LEAST, value=value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table.

    Attributes:
        name: Under which it is printed as `name=value`.
        unit: Of `runs`.
        runs: One value a run.
        limit: What it must reach; None for one that only informs.
        note: What it was measured against.
    """

    name: str
    unit: str
    runs: tuple[float, ...]
    limit: Limit | None = None
    note: str = ""

    @property
    def value(self) -> float:
        """The median of its runs."""
        return median(self.runs)

    @property
    def verdict(self) -> str:
        """`reached`, or by how much it falls short."""
        if self.limit is None:
            return ""
        missing = self.limit.shortfall(self.value)
        return f"short by {missing:.0%}" if missing >= 0.005 else "reached"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """A plot: each run of each label as a dot, with its median; the limit as a line."""

    unit: str
    groups: Mapping[str, Sequence[float]]
    limit: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """A plot of curves; a limit of either axis as a line."""

    x: str
    y: str
    curves: Mapping[str, tuple[Sequence[float], Sequence[float]]]
    limit: float | None = None
    limit_y: float | None = None
    log_x: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What fixed work costs on this machine now: judge figures by their ratio to it.

    Attributes:
        bare_us: CPU per call of the product's transport in a bare loop, to the same receiver.
        python_us: CPU of a hundred rounds of a fixed loop in pure Python.
    """

    bare_us: float
    python_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure, measured.

    Attributes:
        work: What was done, in a sentence or two: inputs, settings, runs, what is left out.
        receiver: Who answered.
        cpu_us: CPU per delivery (or per record) by process, medians, for each kind of run.
        calibrations: One before each round, and one at the end.
        plots: Drawn side by side.
    """

    name: str
    work: str
    rows: Sequence[Row]
    plots: Sequence[Bars | Lines]
    receiver: str = "none"
    cpu_us: dict[str, dict[str, float]] = field(default_factory=dict)
    calibrations: Sequence[Calibration] = ()


async def calibrate(url: str | None) -> Calibration:
    """Measure the fixed work; without a receiver only the Python loop."""
    bare = Loop(cpu_us=0.0, per_s=0.0)
    if url is not None:
        bare = await bare_loop("ours", url, requests=CALIBRATION_REQUESTS)
    return Calibration(bare_us=bare.cpu_us, python_us=python_loop_us())


def python_loop_us() -> float:
    """CPU microseconds of a hundred rounds: a dict, bytes, an f-string, a call, integers."""
    known: dict[bytes, int] = {}
    began = time.process_time()
    for n in range(PYTHON_ROUNDS):
        key = b"%d" % (n % 1_000)
        known[key] = known.get(key, 0) + len(f"{n:08d}") + _step(n)
    return (time.process_time() - began) / PYTHON_ROUNDS * 100 * 1e6


def _step(n: int) -> int:
    return n * 31 & 0xFFFF


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of the values lie (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
