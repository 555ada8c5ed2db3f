"""Whether a figure stayed flat, and how fast it grew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

Series = Sequence[tuple[float, float]]
"""Seconds since the start, and a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """How much higher the last third may be than the middle third: a share, and so much at least."""

    share: float
    least: float


_MIB: Final = float(1024**2)
ALLOWED: Final[Mapping[str, Allowance]] = {
    "rss": Allowance(share=0.03, least=3 * _MIB),
    "fds": Allowance(share=0.05, least=4),
    "threads": Allowance(share=0.0, least=2),
    # A log-structured store and a compacted log are saw teeth.
    "store": Allowance(share=0.15, least=2 * _MIB),
    "topic bytes": Allowance(share=0.10, least=2 * _MIB),
    "ledger bytes": Allowance(share=0.10, least=2 * _MIB),
    "topics": Allowance(share=0.0, least=0),
    "held": Allowance(share=0.25, least=50),
    "debts": Allowance(share=0.0, least=0),
    "unsettled": Allowance(share=0.25, least=100),
}
"""By the last part of a figure's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One figure of a run.

    Attributes:
        middle: Median of the middle third, after warming up.
        last: Median of the last third.
        per_hour: Slope of a straight line through the second half.
        is_flat: Whether the last third is no higher than allowed.
    """

    name: str
    middle: float
    last: float
    highest: float
    per_hour: float
    is_flat: bool


def judge(name: str, series: Series) -> Judged:
    """Compare the last third of a figure with the middle third.

    Raises:
        ValueError: there are fewer than six samples.
    """
    if len(series) < 6:
        raise ValueError(f"{name} has {len(series)} samples: thirds need six at least")
    third = len(series) // 3
    middle = median(value for _, value in series[third : 2 * third])
    last = median(value for _, value in series[2 * third :])
    allowed = ALLOWED[name.rpartition(": ")[2]]
    return Judged(
        name=name,
        middle=middle,
        last=last,
        highest=max(value for _, value in series),
        per_hour=slope(series[len(series) // 2 :]) * 3600,
        is_flat=last <= middle + max(allowed.share * middle, allowed.least),
    )


def slope(series: Series) -> float:
    """Least squares, per second; 0 for a single moment."""
    t_mean = sum(t for t, _ in series) / len(series)
    v_mean = sum(v for _, v in series) / len(series)
    spread = sum((t - t_mean) ** 2 for t, _ in series)
    if not spread:
        return 0.0
    return sum((t - t_mean) * (v - v_mean) for t, v in series) / spread
