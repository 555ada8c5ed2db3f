"""Whether a delivery may be called now, waits a moment, or steps aside for its target's sake (C-08).

A target that answers quickly may have a short line of deliveries waiting in memory: sending them
through Kafka and back would cost more than the wait. A target that is slow, hanging or down may not:
what finds it full steps aside to a delay topic, spends no attempt, and holds nothing but its place.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

PATIENCE_MS: Final = 250
"""The longest line, in time, that may wait in memory for one target."""

FIRST_LOOK_MS: Final = 1_000
"""A delivery that stepped aside is looked at again no earlier than this."""

LOOKS_PER_S: Final = 50
"""How many deliveries that stepped aside from one target are looked at again per second."""

UNKNOWN_MS: Final = 50.0
"""What a call to a target is taken to last before the first one came back."""

FAULTS_TO_OPEN: Final = 10
"""Faults in a row (no answer at all) after which a target is left alone for a while."""

COOL_MS: Final = 1_000
COOL_MAX_MS: Final = 30_000
"""How long a target is left alone: doubling with each probe that fails, within these bounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """What this worker knows of one target's behaviour. Times are monotonic milliseconds.

    Attributes:
        call_ms: Moving mean of a call's duration.
        faults: Faults in a row: calls that brought no answer.
        open_until_ms: Until when the target is left alone; 0 when it is not.
        cool_ms: How long it was last left alone.
        next_look_ms: When the next delivery that steps aside may be looked at again.
    """

    call_ms: float = UNKNOWN_MS
    faults: int = 0
    open_until_ms: int = 0
    cool_ms: int = 0
    next_look_ms: int = 0


@dataclass(frozen=True, slots=True)
class Go:
    """Call now."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait in memory, at most so long, for a slot."""

    at_most_ms: int


@dataclass(frozen=True, slots=True)
class Aside:
    """Step aside to a delay topic without a claim."""

    reason: str


def enter(
    pace: Pace, *, running: int, waiting: int, cap: int, oldest_ms: int, now_ms: int
) -> Go | Wait | Aside:
    """Say what a delivery that arrives at its target does.

    Args:
        running: Calls to the target under way.
        waiting: Deliveries in line for it.
        cap: The target's connections.
        oldest_ms: Age of its oldest call under way; a hanging target shows here first.
    """
    if now_ms < pace.open_until_ms:
        return Aside("target_down")
    if pace.open_until_ms and running:
        return Aside("target_down")  # half open: one probe at a time
    if running < cap and not waiting:
        return Go()
    expected = max(pace.call_ms, float(oldest_ms)) * (waiting + 1) / cap
    if expected > PATIENCE_MS:
        return Aside("target_full")
    return Wait(PATIENCE_MS)


def aside(pace: Pace, *, now_ms: int) -> tuple[Pace, int]:
    """Give a delivery that steps aside its turn: the pace after it, and how long it is to stay away.

    Turns are spaced, so that a target with 20,000 deliveries waiting is asked for `LOOKS_PER_S` times a
    second and not 20,000 times.
    """
    earliest = max(now_ms + FIRST_LOOK_MS, pace.open_until_ms, pace.next_look_ms)
    return replace(pace, next_look_ms=earliest + 1_000 // LOOKS_PER_S), earliest - now_ms


def saw(pace: Pace, *, answered: bool, took_ms: float, now_ms: int) -> Pace:
    """Learn from a call that came back."""
    call_ms = pace.call_ms + (took_ms - pace.call_ms) * 0.2
    if answered:
        return Pace(call_ms=call_ms, next_look_ms=pace.next_look_ms)
    faults = pace.faults + 1
    if faults < FAULTS_TO_OPEN:
        return replace(pace, call_ms=call_ms, faults=faults)
    cool_ms = min(max(COOL_MS, pace.cool_ms * 2), COOL_MAX_MS)
    return replace(
        pace, call_ms=call_ms, faults=faults, cool_ms=cool_ms, open_until_ms=now_ms + cool_ms
    )
