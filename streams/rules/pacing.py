"""Whether a delivery may be called now, waits a moment, or steps aside for its target's sake (C-08).

A target that answers quickly may have a short line of deliveries waiting in memory: sending them
through Kafka and back would cost more than the wait. A target that is slow, hanging or down may not:
what finds it full steps aside to a delay topic, spends no attempt, and holds nothing but its place.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from streams.model.ledger import FailurePhase
from streams.model.verdict import Judgement, Verdict
from streams.rules.retry_after import wait_ms

TOO_MANY_REQUESTS: Final = 429

PATIENCE_MS: Final = 500
"""The longest line, in time, that may wait in memory for one target."""

FIRST_LOOK_MS: Final = 1_000
"""A delivery that stepped aside is looked at again no earlier than this."""

LOOKS_PER_S: Final = 50
"""How many deliveries that stepped aside from a target that is slow or down are looked at again per
second, at most. A target that answers is looked at as often as it has proved to take calls."""

UNKNOWN_MS: Final = 10.0
"""What a call to a target is taken to last before the first one came back."""

STUCK_MS: Final = 1_000
"""From this age on a call under way says more of its target than the mean of those that came back."""

KEY_LOOK_MS: Final = 5_000
"""A delivery whose target's secret is not to be had is looked at again no earlier than this."""

PARK_MS: Final = 600_000
"""How long a parked delivery stays away, unless its target is enabled before."""

PARKED_MAX_MS: Final = 7 * 24 * 3_600_000
"""Parked time that does not count as age, at most (C-17)."""

FAULTS_TO_OPEN: Final = 10
"""Faults in a row (`is_there` says no) after which a target is left alone for a while."""

ASKS_TO_OPEN: Final = 3
"""Answers in a row that ask to slow down, without saying for how long, after which a target is left
alone for a while. One alone may speak of one recipient, and only halves the calls under way."""

COOL_MS: Final = 1_000
COOL_MAX_MS: Final = 30_000
"""How long a target is left alone: doubling with each probe that fails, within these bounds."""

ASK_MAX_MS: Final = 600_000
"""The longest that one target's `Retry-After` keeps deliveries other than its own away."""

_AMBIGUOUS_POST_CALL: Final = FailurePhase.AMBIGUOUS_POST_CALL
_RETRY: Final = Verdict.RETRY

SMALLEST_SHARE: Final = 1 / 64
SHARE_STEP: Final = 1 / 64
"""What one answer gives back of the connections that a target's 429 took away: from one call at a time
to all of them in 64 answers."""


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """What this worker knows of one target's behaviour. Times are monotonic milliseconds.

    Attributes:
        call_ms: Moving mean of a call's duration.
        faults: Faults in a row: calls that their target did not take, or never answered.
        open_until_ms: Until when the target is left alone; 0 when it is not.
        cool_ms: How long it was last left alone.
        next_look_ms: When the next delivery that steps aside may be looked at again; a fraction, for a
            quick target takes several in a millisecond.
        asks: Answers in a row that asked to slow down.
        share: The part of its connections that a target which asked to slow down is called over.
        shrank_ms: When that last became less.
    """

    call_ms: float = UNKNOWN_MS
    faults: int = 0
    open_until_ms: int = 0
    cool_ms: int = 0
    next_look_ms: float = 0.0
    asks: int = 0
    share: float = 1.0
    shrank_ms: int = 0

    def allowed(self, cap: int) -> int:
        """How many calls may be under way, of `cap`."""
        return cap if self.share == 1.0 else max(1, int(cap * self.share))

    def is_left_alone(self, now_ms: int, running: int) -> bool:
        """Whether nobody may call it now, `running` calls being under way.

        After the pause of one that was down, one probe at a time is let in. One that asked to wait is
        there: it is called over the share of its connections that it has left, since those whose time
        it named all come at once, and on time (D-018).
        """
        if not self.open_until_ms:
            return False
        return now_ms < self.open_until_ms or (running > 0 and not self.asks)

    def lets_in(self, cap: int, running: int, now_ms: int) -> bool:
        """Whether one more may call it now, if nobody waits for it."""
        return running < self.allowed(cap) and not self.is_left_alone(now_ms, running)


class Go(msgspec.Struct, frozen=True):
    """Call now."""


class Wait(msgspec.Struct, frozen=True):
    """Wait in memory, at most so long, for a slot."""

    at_most_ms: int


class Aside(msgspec.Struct, frozen=True):
    """Step aside to a delay topic without a claim."""

    reason: str


def enter(
    pace: Pace, *, running: int, waiting: int, cap: int, oldest_ms: int, now_ms: int
) -> Go | Wait | Aside:
    """Say what a delivery that arrives at its target does.

    Args:
        running: Slots of the target taken: calls under way, or about to be.
        waiting: Deliveries in line for it.
        cap: The target's connections.
        oldest_ms: Age of its oldest call under way; a hanging target shows here first.
    """
    if not waiting and pace.lets_in(cap, running, now_ms):
        return Go()
    if pace.is_left_alone(now_ms, running):
        return Aside("target_asks_to_wait" if pace.asks else "target_down")
    if _lasts_ms(pace, oldest_ms) * (waiting + 1) / pace.allowed(cap) > PATIENCE_MS:
        return Aside("target_full")
    return Wait(PATIENCE_MS)


def _lasts_ms(pace: Pace, oldest_ms: int) -> float:
    """What a call is to be taken to last: the mean, or what one that is stuck shows by now."""
    return max(pace.call_ms, float(oldest_ms - STUCK_MS))


def aside(
    pace: Pace,
    *,
    cap: int,
    now_ms: int,
    oldest_ms: int = 0,
    first_ms: int = FIRST_LOOK_MS,
    apart_ms: float | None = None,
) -> tuple[Pace, int]:
    """Give a delivery that steps aside its turn: the pace after it, and how long it is to stay away.

    Turns are spaced by what the target has proved to take, so that it neither idles nor is asked for in
    vain: one with 20,000 deliveries waiting that is down is asked for `LOOKS_PER_S` times a second.

    Args:
        oldest_ms: Age of its oldest call under way: a target that hangs has proved nothing else yet.
        first_ms: The shortest time to stay away.
        apart_ms: Between two turns, in place of what the target has proved.
    """
    is_open = now_ms < pace.open_until_ms
    slowest = 1_000 / LOOKS_PER_S
    if apart_ms is None:
        apart_ms = slowest if is_open else min(_lasts_ms(pace, oldest_ms) / cap, slowest)
    earliest = max(float(now_ms + first_ms), float(pace.open_until_ms), pace.next_look_ms)
    return replace(pace, next_look_ms=earliest + apart_ms), int(earliest) - now_ms


def reserve(free_ms: float, *, rate_per_s: float, now_ms: float) -> tuple[float, float] | None:
    """Take the next place in a stream of at most `rate_per_s` calls: a token bucket of one token.

    Calls are never closer than the rate says, so no window of a second holds more than it: a bucket of
    more tokens would let a burst through, and a target that counts would answer 429.

    Args:
        free_ms: When the next place is free, monotonic; 0 before the first.

    Returns:
        When the place after this one is free, and how long to wait for this one; None when that is over
        `PATIENCE_MS`: then step aside, with nothing taken.
    """
    start_ms = max(free_ms, now_ms)
    if start_ms - now_ms > PATIENCE_MS:
        return None
    return start_ms + 1_000 / rate_per_s, start_ms - now_ms


def parked_ms(so_far_ms: int, since_ms: int, now_ms: int) -> int:
    """How long a delivery was parked by now: earlier times, and the present one (0 for none)."""
    return so_far_ms + (max(0, now_ms - since_ms) if since_ms else 0)


def counted_from(admitted_ms: int, parked_for_ms: int) -> int:
    """What a delivery's age counts from: its admission, parked time of at most 7 days taken off (C-17)."""
    return admitted_ms + min(parked_for_ms, PARKED_MAX_MS)


def is_there(seen: Judgement) -> bool:
    """Whether a call shows that its target is up: it answered, or took the request and broke off.

    A target that resets at once is one that fails, as with a 500; leaving it alone would only put its
    verdicts off. Down is what cannot be connected to, or lets the deadline pass (C-08).
    """
    if seen.status:
        return True
    was_called = seen.phase is _AMBIGUOUS_POST_CALL
    return was_called and not seen.code.endswith("_timeout")


def asks_to_wait(seen: Judgement, now_ms: int) -> int | None:
    """How long a target asks not to be called, in milliseconds; 0 where it only asks to slow down.

    429 says so by itself (RFC 6585 §4), any other refusal for now by its `Retry-After`. It speaks of the
    target and not of one delivery (B13): others sent meanwhile would spend attempts to hear the same.

    Args:
        now_ms: Epoch milliseconds.

    Returns:
        None where it asks for nothing.
    """
    if seen.verdict is not _RETRY or not seen.status:
        return None
    asked = wait_ms(seen.retry_after, now_ms)
    if asked is None:
        return 0 if seen.status == TOO_MANY_REQUESTS else None
    return asked


def saw(
    pace: Pace, *, answered: bool, took_ms: float, now_ms: int, asked_ms: int | None = None
) -> Pace:
    """Learn from a call that came back.

    Args:
        asked_ms: See `asks_to_wait`.
        now_ms: Monotonic.
    """
    call_ms = pace.call_ms + (took_ms - pace.call_ms) * 0.2
    if answered and asked_ms is not None:
        return _slowed(replace(pace, call_ms=call_ms, faults=0), asked_ms, now_ms)
    if answered and pace.asks and now_ms < pace.open_until_ms:
        return replace(pace, call_ms=call_ms)  # it was called before it asked
    if answered:
        share = min(1.0, pace.share + SHARE_STEP)
        return Pace(call_ms=call_ms, next_look_ms=pace.next_look_ms, share=share)
    faults = pace.faults + 1
    if faults < FAULTS_TO_OPEN:
        return replace(pace, call_ms=call_ms, faults=faults)
    cool_ms = _longer(pace.cool_ms)
    return replace(
        pace,
        call_ms=call_ms,
        faults=faults,
        cool_ms=cool_ms,
        open_until_ms=now_ms + cool_ms,
        asks=0,
    )


def _slowed(pace: Pace, asked_ms: int, now_ms: int) -> Pace:
    """Halve the calls under way, once a second at most; and leave the target alone if it says so."""
    if now_ms - pace.shrank_ms >= COOL_MS or pace.share == 1.0:
        pace = replace(pace, share=max(SMALLEST_SHARE, pace.share / 2), shrank_ms=now_ms)
    pace = replace(pace, asks=pace.asks + 1)
    pause_ms = min(asked_ms, ASK_MAX_MS)
    if now_ms < pace.open_until_ms:
        # It was under way when another first asked, and adds nothing except a longer wait.
        return replace(pace, open_until_ms=max(pace.open_until_ms, now_ms + pause_ms))
    if not pause_ms and pace.asks < ASKS_TO_OPEN:
        return pace
    cool_ms = _longer(pace.cool_ms)
    return replace(pace, cool_ms=cool_ms, open_until_ms=now_ms + (pause_ms or cool_ms))


def _longer(cool_ms: int) -> int:
    """The pause after one of `cool_ms`."""
    return min(max(COOL_MS, cool_ms * 2), COOL_MAX_MS)
