"""Go, wait in memory, or step aside: the line of a target, its breaker, the spacing of looks (C-08)."""

from __future__ import annotations

from itertools import pairwise

import pytest

from streams.model.ledger import FailurePhase
from streams.model.values import replace
from streams.model.verdict import Judgement, Verdict
from streams.rules.pacing import (
    COOL_MAX_MS,
    COOL_MS,
    FAULTS_TO_OPEN,
    FIRST_LOOK_MS,
    LOOKS_PER_S,
    PATIENCE_MS,
    STUCK_MS,
    Aside,
    Go,
    Pace,
    Wait,
    aside,
    enter,
    is_there,
    saw,
)

NOW = 1_000_000
NEW = Pace()


def at_the_door(pace: Pace = NEW, **state: int):
    given = {"running": 0, "waiting": 0, "cap": 20, "oldest_ms": 0, "now_ms": NOW} | state
    return enter(pace, **given)


# ── The line ──


def test_a_target_with_a_free_slot_is_called_at_once():
    """C-08: nothing else decides."""
    assert Go() == at_the_door(running=19)


def test_nobody_slips_in_before_those_who_wait():
    """First come, first served."""
    assert Wait(PATIENCE_MS) == at_the_door(running=19, waiting=1)


def test_a_short_line_of_a_quick_target_waits_in_memory():
    """Sending it through Kafka and back would cost more than the wait."""
    assert Wait(PATIENCE_MS) == at_the_door(Pace(call_ms=10), running=20, waiting=900)


def test_a_line_that_is_too_long_in_time_steps_aside():
    """O-034, O-037: what is deferred is never held only in memory; the limit is time, not number."""
    quick, slow = Pace(call_ms=10), Pace(call_ms=2_000)

    assert Aside("target_full") == at_the_door(quick, running=20, waiting=1_000)
    assert Wait(PATIENCE_MS) == at_the_door(quick, running=20, waiting=999)
    assert Aside("target_full") == at_the_door(slow, running=20, waiting=5)


def test_a_call_that_hangs_shows_before_it_comes_back():
    """A target that stopped answering has the mean of its better days; its oldest call knows more."""
    quick = Pace(call_ms=10)

    assert Wait(PATIENCE_MS) == at_the_door(quick, running=1, cap=1, oldest_ms=STUCK_MS)
    assert Aside("target_full") == at_the_door(
        quick, running=1, cap=1, oldest_ms=STUCK_MS + PATIENCE_MS + 1
    )


# ── The breaker ──


def faults(number: int, pace: Pace = NEW, now_ms: int = NOW) -> Pace:
    for _ in range(number):
        pace = saw(pace, answered=False, took_ms=5, now_ms=now_ms)
    return pace


def test_a_target_is_left_alone_after_so_many_faults_in_a_row():
    """C-08: what is known to be down is left alone for a while, and spends no attempt (O-033)."""
    assert Go() == at_the_door(faults(FAULTS_TO_OPEN - 1))

    down = faults(FAULTS_TO_OPEN)

    assert NOW + COOL_MS == down.open_until_ms
    assert Aside("target_down") == at_the_door(down)
    assert Aside("target_down") == at_the_door(down, now_ms=NOW + COOL_MS - 1)


def test_an_answer_in_between_starts_the_count_anew():
    """Any answer shows that it is there, whatever it says."""
    nearly = saw(faults(FAULTS_TO_OPEN - 1), answered=True, took_ms=5, now_ms=NOW)

    assert 0 == nearly.faults
    assert Go() == at_the_door(faults(FAULTS_TO_OPEN - 1, nearly))


def test_one_probe_at_a_time_asks_whether_a_target_is_back():
    """Half open: the rest waits for what the probe sees."""
    down = faults(FAULTS_TO_OPEN)

    assert Go() == at_the_door(down, now_ms=NOW + COOL_MS)
    assert Aside("target_down") == at_the_door(down, now_ms=NOW + COOL_MS, running=1)


def test_each_probe_that_fails_doubles_the_pause_up_to_a_bound():
    """A target that is down for a day is asked twice a minute, and not less."""
    pace, now_ms, pauses = faults(FAULTS_TO_OPEN), NOW, [COOL_MS]
    for _ in range(8):
        now_ms = pace.open_until_ms
        pace = faults(1, pace, now_ms)
        pauses.append(pace.open_until_ms - now_ms)

    assert [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000, 30_000] == pauses
    assert COOL_MAX_MS == pauses[-1]


def test_a_probe_that_is_answered_closes_the_breaker():
    """And the next pause begins small again."""
    back = saw(faults(FAULTS_TO_OPEN), answered=True, took_ms=5, now_ms=NOW + COOL_MS)

    assert (0, 0, 0) == (back.faults, back.open_until_ms, back.cool_ms)
    assert Go() == at_the_door(back, running=5)


def test_a_calls_duration_moves_the_mean():
    """A moving mean: one slow call is no slow target, and ten are."""
    once = saw(Pace(call_ms=10), answered=True, took_ms=1_000, now_ms=NOW)
    for _ in range(20):
        often = once = saw(once, answered=True, took_ms=1_000, now_ms=NOW)

    assert 208 == saw(Pace(call_ms=10), answered=True, took_ms=1_000, now_ms=NOW).call_ms
    assert 950 < often.call_ms < 1_000


@pytest.mark.parametrize(
    ("seen", "there"),
    [
        (Judgement(verdict=Verdict.SENT, code="http_200", status=200), True),
        (Judgement(verdict=Verdict.AMBIGUOUS, code="http_500", status=500), True),
        (
            Judgement(verdict=Verdict.RETRY, code="connect_refused", phase=FailurePhase.CONNECT),
            False,
        ),
        (
            Judgement(
                verdict=Verdict.AMBIGUOUS,
                code="read_timeout",
                phase=FailurePhase.AMBIGUOUS_POST_CALL,
            ),
            False,
        ),
        (
            Judgement(
                verdict=Verdict.AMBIGUOUS,
                code="read_reset",
                phase=FailurePhase.AMBIGUOUS_POST_CALL,
            ),
            True,
        ),
    ],
)
def test_down_is_what_cannot_be_reached_or_never_answers(seen, there):
    """C-08: a target that resets at once fails as with a 500; leaving it alone puts its verdict off."""
    assert there == is_there(seen)


# ── Spacing ──


def looks(pace: Pace, number: int, *, cap: int = 20, now_ms: int = NOW) -> list[int]:
    waits = []
    for _ in range(number):
        pace, wait_ms = aside(pace, cap=cap, now_ms=now_ms)
        waits.append(wait_ms)
    return waits


def test_those_who_step_aside_come_back_one_after_the_other():
    """20,000 deliveries of a target that is down ask 50 times a second, not 20,000 times at once."""
    down = faults(FAULTS_TO_OPEN)

    waits = looks(down, 1_000)

    apart_ms = 1_000 // LOOKS_PER_S
    assert FIRST_LOOK_MS == waits[0]
    assert {apart_ms} == {b - a for a, b in pairwise(waits)}


def test_a_target_that_answers_is_looked_at_as_often_as_it_takes_calls():
    """So that it neither idles nor is asked for in vain: 20 calls of 10 ms are 2,000 a second."""
    waits = looks(Pace(call_ms=10), 2_001)

    assert 1_000 == waits[-1] - waits[0]


def test_a_target_that_hangs_is_not_looked_at_by_what_it_did_before():
    """C-08: until its calls time out the mean knows nothing: 8,000 deliveries looked 67,785 times (bench)."""
    first, _ = aside(NEW, cap=20, now_ms=NOW, oldest_ms=STUCK_MS + 5_000)

    _, wait_ms = aside(first, cap=20, now_ms=NOW, oldest_ms=STUCK_MS + 5_000)

    assert FIRST_LOOK_MS + 1_000 // LOOKS_PER_S == wait_ms


def test_nobody_looks_before_the_pause_is_over():
    """The breaker's word goes before the spacing."""
    down = replace(faults(FAULTS_TO_OPEN), open_until_ms=NOW + 20_000)

    assert [20_000, 20_020, 20_040] == looks(down, 3)
