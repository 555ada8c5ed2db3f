"""How fast a target may be called, and what time of a delivery does not count as its age."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.rules.pacing import (
    PARKED_MAX_MS,
    PATIENCE_MS,
    Pace,
    aside,
    counted_from,
    parked_ms,
    reserve,
)

DAY_MS = 24 * 3_600_000


def test_the_first_call_waits_for_nothing():
    assert (1_200.0, 0.0) == reserve(0.0, rate_per_s=5.0, now_ms=1_000.0)


def test_a_call_too_early_waits_for_its_place():
    assert (1_400.0, 150.0) == reserve(1_200.0, rate_per_s=5.0, now_ms=1_050.0)


def test_a_place_beyond_patience_is_not_taken():
    """
    Spec §5, C-08: a line in memory is short; the rest steps aside.
    """
    assert reserve(1_000.0 + PATIENCE_MS + 1, rate_per_s=5.0, now_ms=1_000.0) is None


@given(st.lists(st.floats(0, 500), min_size=2, max_size=60), st.floats(0.1, 500.0, allow_nan=False))
def test_no_two_calls_are_closer_than_the_rate_says(steps, rate_per_s):
    """
    Issue 5: `rate_per_s` holds for any arrivals: no burst after a pause.
    """
    now_ms, free_ms, starts = 0.0, 0.0, []
    for step in steps:
        now_ms += step
        place = reserve(free_ms, rate_per_s=rate_per_s, now_ms=now_ms)
        if place is not None:
            free_ms, wait_ms = place
            starts.append(now_ms + wait_ms)

    gaps = [b - a for a, b in pairwise(starts)]
    assert all(gap >= 1_000 / rate_per_s - 1e-6 for gap in gaps)


def test_turns_of_what_stepped_aside_are_spaced_as_told():
    """
    C-08: what comes back at the rate finds a place, and 20,000 waiting are not all looked at again.
    """
    pace, waits = Pace(), []
    for _ in range(3):
        pace, wait_ms = aside(pace, cap=20, now_ms=0, first_ms=2_000, apart_ms=200.0)
        waits.append(wait_ms)

    assert [2_000, 2_200, 2_400] == waits


@pytest.mark.parametrize(
    ("so_far_ms", "since_ms", "now_ms", "expected_ms"),
    [(0, 0, 9, 0), (5, 0, 9, 5), (0, 4, 9, 5), (5, 4, 9, 10), (5, 10, 9, 5)],
)
def test_parked_time_adds_up(so_far_ms, since_ms, now_ms, expected_ms):
    """
    C-17: over several times of being parked, and under a clock that was set back.
    """
    assert expected_ms == parked_ms(so_far_ms, since_ms, now_ms)


@pytest.mark.parametrize(
    ("parked_for_ms", "off_ms"),
    [(0, 0), (DAY_MS, DAY_MS), (7 * DAY_MS, 7 * DAY_MS), (8 * DAY_MS, 7 * DAY_MS)],
)
def test_parked_time_of_at_most_seven_days_is_no_age(parked_for_ms, off_ms):
    """
    C-17: waiting ends too.
    """
    assert 7 * DAY_MS == PARKED_MAX_MS
    assert 1_000 + off_ms == counted_from(1_000, parked_for_ms)
