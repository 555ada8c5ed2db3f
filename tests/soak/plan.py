"""What a soak produces: a mix drawn from a seed, at a steady rate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

STRICT: Final = "strict"
"""The registered target; it is not idempotent."""

_MIX: Final = {
    "ok": 70,
    "slow": 9,
    "flaky": 10,
    "fan-out": 5,
    "strict": 3,
    "dead": 1,
    "twice": 2,
}
"""In percent. `flaky` fails once, `dead` fails until its budget is spent and is then redriven, `twice`
is produced two times."""

KEPT_OF: Final = 20
"""One activity in so many goes through the whole checker; all of them must come to one verdict."""

FAN_OUT: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Produced:
    """One activity.

    Attributes:
        paths: Of its inboxes at the receiver.
        targets: Names of registered targets.
    """

    activity_id: str
    paths: tuple[str, ...]
    targets: tuple[str, ...] = ()
    copies: int = 1


def is_kept(activity: str) -> bool:
    """Whether the checker is shown this activity; told by the first letter of its id."""
    return activity[:1] == "k"


def is_kept_path(path: str) -> bool:
    """Whether a call of this path belongs to an activity that the checker is shown."""
    return path.rpartition("/")[2][:1] != "n"


def activities(seed: int, max_attempts: int) -> Iterator[Produced]:
    """Activities without end; the same ones for the same seed.

    Args:
        max_attempts: Of a budget: `dead` needs one call more.
    """
    rng = Random(f"soak {seed}")
    number = 0
    while True:
        number += 1
        (kind,) = rng.choices(list(_MIX), list(_MIX.values()))
        is_special = kind in ("strict", "dead") or number % KEPT_OF == 0
        name = f"{'k' if is_special else 'n'}{number}"
        behaviour = {
            "slow": "/slow/300",
            "flaky": "/flaky/1",
            "dead": f"/flaky/{max_attempts}",
        }.get(kind, "/ok")
        places = FAN_OUT if kind == "fan-out" else 1
        yield Produced(
            activity_id=name,
            paths=()
            if kind == "strict"
            else tuple(f"{behaviour}/{name}-{place}" for place in range(places)),
            targets=(STRICT,) if kind == "strict" else (),
            copies=2 if kind == "twice" else 1,
        )
