"""The bounds of a policy, applied: when a delivery is tried again, and when no more."""

import pytest

from streams.model.policy import ACTIVITY, HOUR, MINUTE, NOTIFICATION, SECOND
from streams.model.values import replace
from streams.rules.backoff import (
    ATTEMPTS_EXHAUSTED,
    ELAPSED_EXHAUSTED,
    EXPIRED,
    RETRY_AFTER_TOO_LONG,
    GiveUp,
    Retry,
    delay_ms,
    schedule,
)

T0 = 1_767_225_600_000


def next_of(policy=NOTIFICATION, *, attempts=1, now_ms=T0, jitter=0.0, **rest):
    defaults = {"first_claim_ms": T0, "admitted_ms": T0, "retry_after": ()}
    return schedule(policy, attempts=attempts, now_ms=now_ms, jitter=jitter, **{**defaults, **rest})


def test_the_delay_doubles_up_to_its_ceiling():
    """
    C-02, D-015: 1 s doubling to 60 s.
    """
    delays = [delay_ms(NOTIFICATION, attempts) // SECOND for attempts in range(1, 10)]

    assert [1, 2, 4, 8, 16, 32, 60, 60, 60] == delays


@pytest.mark.parametrize("attempts", [10**6, 10**9])
def test_a_large_count_does_not_overflow(attempts):
    """
    O-016: `max_attempts` is configurable without an upper bound.
    """
    assert delay_ms(ACTIVITY, attempts) == HOUR


def test_a_count_below_one_waits_like_the_first():
    """
    O-043: an entry without a count counts as 0; the function is total over it.
    """
    assert delay_ms(ACTIVITY, 0) == SECOND


@pytest.mark.parametrize(("jitter", "due"), [(0.0, 1_000), (0.5, 1_250), (1.0, 1_500)])
def test_jitter_is_added_on_top(jitter, due):
    """
    O-040, D-019: uniform in 0..500 ms, never subtracted.
    """
    assert Retry(T0 + due) == next_of(jitter=jitter)


def test_retry_after_lengthens_and_jitter_comes_on_top_of_it():
    """
    D-018, D-019; issue 5: asked for 20 s, called between 20 s and 20.5 s.
    """
    assert Retry(T0 + 20_500) == next_of(retry_after=("20",), jitter=1.0)


@pytest.mark.parametrize("value", ["0", "1", "-5", "soon", "Sun, 06 Nov 1994 08:49:37 GMT"])
def test_retry_after_never_shortens(value):
    """
    D-018; A05: a hint that is short, past or unreadable leaves the own delay of 4 s.
    """
    assert Retry(T0 + 4_000) == next_of(attempts=3, retry_after=(value,))


@pytest.mark.parametrize(("attempts", "expected"), [(4, Retry), (5, GiveUp), (6, GiveUp)])
def test_the_last_attempt_is_the_last(attempts, expected):
    """
    O-016, O-018, D-014: five attempts, and no sixth.
    """
    assert expected is type(next_of(attempts=attempts))


def test_exhausted_attempts_have_their_code():
    """
    O-018.
    """
    assert GiveUp(ATTEMPTS_EXHAUSTED) == next_of(attempts=5, retry_after=("99999",))


@pytest.mark.parametrize(
    ("now_ms", "expected"),
    [
        (T0 + 15 * MINUTE - 1_000, Retry(T0 + 15 * MINUTE)),
        (T0 + 15 * MINUTE - 999, GiveUp(ELAPSED_EXHAUSTED)),
    ],
)
def test_a_retry_past_the_elapsed_limit_is_not_scheduled(now_ms, expected):
    """
    D-016, C-02: what would start at the limit may, one millisecond later not.
    """
    assert expected == next_of(now_ms=now_ms)


def test_jitter_counts_against_the_elapsed_limit():
    """
    C-02: what counts is when the call would start.
    """
    late = next_of(now_ms=T0 + 15 * MINUTE - 1_000, jitter=1.0)

    assert GiveUp(ELAPSED_EXHAUSTED) == late


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [("900", Retry(T0 + 15 * MINUTE)), ("901", GiveUp(RETRY_AFTER_TOO_LONG))],
)
def test_a_wait_past_the_elapsed_limit_has_its_own_code(seconds, expected):
    """
    C-06: never an early retry. A07: "86400" and worse end here, seen by the operator.
    """
    assert expected == next_of(retry_after=(seconds,))


@pytest.mark.parametrize("value", ["86400", "9999999999", "9" * 5_000])
def test_an_absurd_wait_gives_up(value):
    """
    A07: a peer cannot park our work for days, and cannot make us come back early either.
    """
    assert GiveUp(RETRY_AFTER_TOO_LONG) == next_of(retry_after=(value,))


def test_an_own_delay_past_the_limit_is_not_blamed_on_the_target():
    """
    C-06: the code names what pushed it over.
    """
    over = next_of(now_ms=T0 + 15 * MINUTE, retry_after=("99999",))

    assert GiveUp(ELAPSED_EXHAUSTED) == over


@pytest.mark.parametrize(
    ("age_ms", "expected"),
    [
        (HOUR - 1_000, Retry(T0 + 1_000)),
        (HOUR - 999, GiveUp(EXPIRED)),
    ],
)
def test_a_retry_past_the_maximum_age_is_not_scheduled(age_ms, expected):
    """
    C-17, D13: deferred time counts, so the age can end a delivery that was just claimed.
    """
    assert expected == next_of(admitted_ms=T0 - age_ms)


@pytest.mark.parametrize("jitter", [-0.1, 1.1])
def test_jitter_outside_its_range_is_our_bug(jitter):
    """
    D-019: a negative share would subtract.
    """
    with pytest.raises(AssertionError, match="jitter"):
        next_of(jitter=jitter)


def test_a_policy_without_jitter_is_exact():
    """
    O-040: `jitter_ms` is a setting; 0 is one of its values.
    """
    assert Retry(T0 + 1_000) == next_of(replace(NOTIFICATION, jitter_ms=0), jitter=1.0)


def test_a_thousand_failures_of_one_second_come_back_spread_over_the_jitter():
    """
    D01: no two crowds; C-02 fixes the window at 500 ms, so each tenth of it gets its share.
    """
    dues = [next_of(jitter=share / 999).due_ms - T0 - 1_000 for share in range(1_000)]

    tenths = [sum(1 for due in dues if low <= due < low + 50) for low in range(0, 500, 50)]

    assert max(tenths) <= 2 * min(tenths)
