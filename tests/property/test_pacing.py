"""The short way to a target's answer, and the whole one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streams.rules.pacing import Go, Pace, enter

TIMES = st.integers(0, 5)
PACES = st.builds(
    Pace,
    open_until_ms=TIMES,
    asks=st.integers(0, 1),
    share=st.sampled_from([1.0, 0.5, 1 / 64]),
    call_ms=st.sampled_from([1.0, 9_000.0]),
)


@given(PACES, st.integers(1, 4), st.integers(0, 5), TIMES, st.sampled_from([0, 99_000]))
def test_who_is_let_in_is_who_may_go(pace, cap, running, now_ms, oldest_ms):
    """The gate asks `enter` only whom it does not let in at once."""
    said = enter(pace, running=running, waiting=0, cap=cap, oldest_ms=oldest_ms, now_ms=now_ms)

    assert pace.lets_in(cap, running, now_ms) is isinstance(said, Go)
