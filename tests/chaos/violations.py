"""The promises of spec.md §2–§4 and ledger.md, and how a broken one is named."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

SETTLED: Final = frozenset({"sent", "dead", "skipped"})


class Wrong(StrEnum):
    """Which promise was broken."""

    LOST = "lost"
    """A delivery is open and nothing will ever move it; or an offset was committed past it."""
    UNSAFE_DUPLICATE = "unsafe_duplicates"
    """A target that is not idempotent may have been made to act twice."""
    STUCK = "stuck"
    """At rest, and still not settled or not acknowledged."""
    OVER_BUDGET = "over_budget"
    """More calls than claims, or more claims than `max_attempts`."""
    DISAGREES = "disagreements"
    """Ledger, dead letters, receipts and calls do not tell one story."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken promise, and of which activity."""

    wrong: Wrong
    activity: str
    text: str

    def __str__(self) -> str:
        return f"{self.wrong}: {self.activity}: {self.text}"


def name_of(key: bytes) -> str:
    """A ledger key as people read it."""
    return key.decode(errors="replace").replace("\0", " → ")
