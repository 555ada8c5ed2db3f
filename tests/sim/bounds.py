"""How long anything lasts in a world, and what is owed in it."""

from __future__ import annotations

from dataclasses import dataclass

from streams.model.activity import Activity

WEEK_MS = 7 * 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How long a world remembers, and how long it tries.

    Attributes:
        window_ms: The dedupe window.
        max_age_ms: Of a delivery that is not settled (C-17).
    """

    window_ms: int = WEEK_MS
    max_age_ms: int = 600_000


ENDLESS = Bounds()
"""Nothing expires or is forgotten."""


@dataclass(frozen=True, slots=True)
class Owed:
    """A delivery that somebody asked for."""

    key: bytes
    delivery_id: str
    activity: Activity
