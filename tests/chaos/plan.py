"""What befalls a round, drawn from its seed alone: the same seed, the same round."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

FAULTS_S: Final = 16.0
"""How long faults and new activities come."""

WORKERS: Final = ("w1", "w2", "w3")

KINDS: Final = (
    "kill",
    "freeze",
    "broker_kill",
    "cut",
    "stop",
    "wipe",
    "scale",
    "broker_freeze",
    "twin",
    "truncate",
    "broker_restart",
    "fill",
    "clock",
    "elect",
)
"""Round n of a seed has kind n of these at least, so that as many rounds as kinds see all of them."""

_LASTS: Final = {
    "kill": (0.1, 9.0),
    "freeze": (8.5, 11.0),
    "stop": (0.1, 6.0),
    "cut": (2.0, 12.0),
    "wipe": (0.1, 2.0),
    "truncate": (0.1, 2.0),
    "fill": (3.0, 6.0),
    "twin": (7.0, 12.0),
    "scale": (4.0, 8.0),
    "broker_kill": (1.0, 6.0),
    "broker_freeze": (2.0, 9.0),
    "broker_restart": (0.0, 0.0),
    "clock": (2.0, 8.0),
    "elect": (1.0, 4.0),
}
"""Seconds. A freeze lasts longer than the session (6 s) and than a lease (4 s)."""


CLOCK_STEPS_MS: Final = (-45_000, -6_000, 6_000, 45_000)
"""Longer than a lease, and than any wait of a round. What is scheduled while the clock is ahead waits
until the true time is there: a longer step would only make the round longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that befalls the round.

    Attributes:
        at_s: From the round's start.
        who: A worker's name, or a broker's number.
        lasts_s: Until it is undone.
        how: Of a cut, its direction; of a clock, by how many milliseconds it is set wrong.
    """

    at_s: float
    kind: str
    who: str
    lasts_s: float
    how: str = ""

    def __str__(self) -> str:
        detail = f" {self.how}" if self.how else ""
        return f"{self.at_s:5.1f} s  {self.kind}{detail} {self.who} for {self.lasts_s:.1f} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A round.

    Attributes:
        workers: How many there are at the start, and again at the end.
        skew_ms: Worker to how wrong its wall clock is.
        compacts: Whether compaction runs with the shortest lag that the round allows.
        redrives: Whether an operator reopens dead letters meanwhile.
    """

    seed: int
    workers: int
    faults: tuple[Fault, ...]
    skew_ms: dict[str, int]
    compacts: bool
    redrives: bool


def draw(seed: int, *, can_fill: bool = True) -> Plan:
    """The round of a seed."""
    rng = Random(f"round {seed}")
    kinds = [KINDS[seed % len(KINDS)]]
    kinds += rng.choices(KINDS, k=rng.choice((0, 1, 2, 3)))
    workers = rng.choice((1, 2, 2, 3))
    faults = [_fault(rng, kind, WORKERS[:workers]) for kind in kinds if can_fill or kind != "fill"]
    skewed = rng.random() < 0.3
    return Plan(
        seed=seed,
        workers=workers,
        faults=tuple(sorted(faults, key=lambda fault: fault.at_s)),
        skew_ms={w: rng.choice((-4000, -1500, 1500, 4000)) for w in WORKERS} if skewed else {},
        compacts=rng.random() < 0.4,
        redrives=rng.random() < 0.5,
    )


def _fault(rng: Random, kind: str, workers: tuple[str, ...]) -> Fault:
    low, high = _LASTS[kind]
    who = rng.choice(workers)
    how = ""
    if kind.startswith("broker"):
        who = str(rng.randint(1, 3))
    elif kind == "cut":
        who, how = "w1", rng.choice(("in", "out", "both"))
    elif kind == "fill":
        who = "w1"
    elif kind in ("scale", "elect"):
        who = ""
    elif kind == "clock":
        how = str(rng.choice(CLOCK_STEPS_MS))
    return Fault(
        at_s=rng.uniform(1.0, FAULTS_S - 4.0),
        kind=kind,
        who=who,
        lasts_s=rng.uniform(low, high),
        how=how,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One activity to produce: when, for whom, how often, and whether on a stray partition."""

    at_s: float
    activity_id: str
    inboxes: tuple[str, ...]
    targets: tuple[str, ...]
    copies: int
    is_stray: bool


REGISTERED: Final = {
    "strict": ("/ok/strict", False),
    "strict-slow": ("/slow/700/strict", False),
    "strict-later": ("/retry-after/1/strict", False),
    "strict-broken": ("/status/500/strict", False),
    "sure": ("/flaky/1/sure", True),
}
"""Target to its path at the receiver, and whether it is idempotent."""

_PATHS: Final = {
    "/ok": 30,
    "/slow/200": 10,
    "/slow/900": 6,
    "/flaky/1": 9,
    "/retry-after/1": 5,
    "/status/503": 3,
    "/status/400": 3,
    "/reset": 2,
    "/hang": 1,
}
_NAMES: Final = {"strict": 14, "strict-slow": 8, "strict-later": 5, "strict-broken": 2, "sure": 4}


def workload(seed: int, count: int) -> list[Asked]:
    """What is produced in a round, in order of time."""
    rng = Random(f"workload {seed}")
    asked = []
    for number in range(count):
        inboxes, targets = [], []
        for place in range(rng.choice((1, 1, 1, 2, 3))):
            if rng.random() < 0.65:
                (path,) = rng.choices(list(_PATHS), list(_PATHS.values()))
                inboxes.append(f"{path}/a{number}-{place}")
            else:
                targets += rng.choices(list(_NAMES), list(_NAMES.values()))
        asked.append(
            Asked(
                at_s=rng.uniform(0.0, FAULTS_S),
                activity_id=f"a{number}",
                inboxes=tuple(inboxes),
                targets=tuple(dict.fromkeys(targets)),
                copies=2 if rng.random() < 0.05 else 1,
                is_stray=rng.random() < 0.04,
            )
        )
    return sorted(asked, key=lambda one: one.at_s)
