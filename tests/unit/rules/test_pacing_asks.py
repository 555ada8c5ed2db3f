"""A target that asks to be called less is called less, by every delivery (C-08, field case B13)."""

from __future__ import annotations

import pytest

from streams.model.verdict import Judgement, Verdict
from streams.rules.pacing import (
    ASK_MAX_MS,
    ASKS_TO_OPEN,
    COOL_MS,
    SHARE_STEP,
    SMALLEST_SHARE,
    Aside,
    Go,
    Pace,
    Wait,
    asks_to_wait,
    enter,
    saw,
)

NOW = 1_000_000
NEW = Pace()
WAITS = Aside("target_asks_to_wait")


def at_the_door(pace: Pace, **state: int):
    given = {"running": 0, "waiting": 0, "cap": 20, "oldest_ms": 0, "now_ms": NOW} | state
    return enter(pace, **given)


def asked(pace: Pace = NEW, times: int = 1, *, ms: int = 0, now_ms: int = NOW) -> Pace:
    for _ in range(times):
        pace = saw(pace, answered=True, took_ms=5, now_ms=now_ms, asked_ms=ms)
    return pace


def answered(pace: Pace, times: int = 1, now_ms: int = NOW) -> Pace:
    for _ in range(times):
        pace = saw(pace, answered=True, took_ms=5, now_ms=now_ms)
    return pace


def test_one_429_halves_the_calls_under_way():
    """B13: it may speak of one recipient only, so nothing stops."""
    once = asked()

    assert 10 == once.allowed(20)
    assert Go() == at_the_door(once, running=9)
    assert Go() != at_the_door(once, running=10)


def test_429s_of_one_moment_halve_only_once():
    """They were under way together, and say one thing."""
    assert 0.5 == asked(times=2).share
    assert 0.25 == asked(asked(), now_ms=NOW + COOL_MS).share


def test_never_less_than_one_call_at_a_time_is_left():
    """Or nobody would ever learn that it takes calls again."""
    pace = NEW
    for second in range(20):
        pace = asked(pace, now_ms=NOW + second * COOL_MS)

    assert SMALLEST_SHARE == pace.share
    assert 1 == pace.allowed(20)


def test_each_answer_gives_a_little_back_until_all_is():
    """Additive up, multiplicative down: what TCP does at a full router."""
    once = asked()

    assert 0.5 + SHARE_STEP == answered(once).share
    assert 20 == answered(once, 64).allowed(20)


def test_429s_in_a_row_have_the_target_left_alone():
    """B13: every further call would spend an attempt to hear the same."""
    assert WAITS != at_the_door(asked(times=ASKS_TO_OPEN - 1))

    full = asked(times=ASKS_TO_OPEN)

    assert WAITS == at_the_door(full)
    assert WAITS == at_the_door(full, now_ms=NOW + COOL_MS - 1)
    assert Go() == at_the_door(full, now_ms=NOW + COOL_MS)


def test_after_the_pause_all_whose_time_has_come_are_called_over_what_is_left():
    """D-018: 429 with Retry-After 20 to ten deliveries; none of them may be called a second late."""
    told = asked(times=10, ms=20_000)

    assert Go() == at_the_door(told, now_ms=NOW + 20_000, running=9)
    assert isinstance(at_the_door(told, now_ms=NOW + 20_000, running=10), Wait)


def test_a_retry_after_counts_for_the_whole_target_at_once():
    """D-018, B13: it names a time, and other deliveries would come back sooner."""
    told = asked(ms=20_000)

    assert WAITS == at_the_door(told, now_ms=NOW + 19_999)
    assert Go() == at_the_door(told, now_ms=NOW + 20_000)


def test_the_longer_of_two_times_counts():
    """An answer that was under way must not shorten what another one asked for."""
    told = asked(asked(ms=20_000), ms=5_000, now_ms=NOW + 10)

    assert NOW + 20_000 == told.open_until_ms
    assert NOW + 10 + 30_000 == asked(told, ms=30_000, now_ms=NOW + 10).open_until_ms


def test_an_absurd_time_does_not_stop_a_target_for_long():
    """A04: a day for one delivery is that one's matter; the rest asks sooner."""
    assert NOW + ASK_MAX_MS == asked(ms=86_400_000).open_until_ms


def test_an_answer_from_before_it_asked_does_not_end_the_pause():
    """20 calls are under way when the first 429 comes; the 19 others say nothing of now."""
    full = answered(asked(times=ASKS_TO_OPEN), now_ms=NOW + 1)

    assert WAITS == at_the_door(full, now_ms=NOW + 2)


def test_a_call_that_is_taken_ends_the_pause_and_not_the_caution():
    """All connections at once would be the next 429."""
    back = answered(asked(times=ASKS_TO_OPEN), now_ms=NOW + COOL_MS)

    assert (0, 0, 0) == (back.asks, back.open_until_ms, back.cool_ms)
    assert back.allowed(20) < 20


def test_a_call_that_is_told_to_wait_again_doubles_the_pause():
    """As with a target that is down."""
    full = asked(times=ASKS_TO_OPEN)
    again = asked(full, now_ms=full.open_until_ms)

    assert 2 * COOL_MS == again.open_until_ms - full.open_until_ms


def test_a_target_that_is_down_is_not_said_to_ask():
    """The reason is what an operator looks for."""
    pace = asked()
    for _ in range(10):
        pace = saw(pace, answered=False, took_ms=5, now_ms=NOW)

    assert Aside("target_down") == at_the_door(pace)


def seen(status: int, verdict: Verdict = Verdict.RETRY, *retry_after: str) -> Judgement:
    return Judgement(verdict=verdict, code="c", status=status, retry_after=retry_after)


@pytest.mark.parametrize(
    ("judgement", "wait_ms"),
    [
        (seen(429), 0),
        (seen(429, Verdict.RETRY, "20"), 20_000),
        (seen(429, Verdict.RETRY, "soon"), 0),
        (seen(503, Verdict.RETRY, "7"), 7_000),
        (seen(503, Verdict.RETRY, "soon"), None),
        (seen(500, Verdict.AMBIGUOUS, "7"), None),
        (seen(408), None),
        (seen(200, Verdict.SENT), None),
        # An operator's own reading of the status stands above ours.
        (seen(429, Verdict.REFUSED), None),
        (seen(0), None),
    ],
)
def test_what_asks_to_wait_is_a_429_or_a_refusal_with_a_time(judgement, wait_ms):
    """RFC 6585 §4, RFC 9110 §10.2.3."""
    assert wait_ms == asks_to_wait(judgement, now_ms=0)
