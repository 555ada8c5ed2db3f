"""What all rounds of a run add up to; printed last of all, by conftest.py."""

from __future__ import annotations

from collections import Counter
from typing import Final

from tests.chaos.violations import Wrong

wrong: Counter[Wrong] = Counter()
did: Counter[str] = Counter()
failed: list[int] = []
"""Seeds of the rounds that broke a promise."""


BEFELL: Final = {
    "kills": ("kills",),
    "freezes": ("freezes",),
    "cuts": ("cuts",),
    "failovers": ("failovers",),
    "clock_steps": ("clock steps",),
    "elections": ("elections",),
    "broker_faults": ("broker kills", "broker freezes", "broker restarts"),
}
"""What the last line counts, and under which names it happened."""


def lines() -> list[str]:
    """Nothing where no round was run; else what befell, and at the very end what was broken."""
    if not did and not failed:
        return []
    befell = ", ".join(f"{did[name]} {name}" for name in sorted(did))
    promises = (Wrong.LOST, Wrong.UNSAFE_DUPLICATE, Wrong.STUCK, Wrong.OVER_BUDGET)
    told = [f"befell: {befell}", f"disagreements={wrong[Wrong.DISAGREES]}"]
    if failed:
        told.append("failed: " + " ".join(f"SEED={seed}" for seed in failed))
    counts = [f"{name}={sum(did[part] for part in parts)}" for name, parts in BEFELL.items()]
    return [*told, " ".join([*counts, *(f"{one}={wrong[one]}" for one in promises)])]
