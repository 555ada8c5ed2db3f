"""Waiting in buckets, whatever the memory and however late a wake comes."""

from hypothesis import given
from hypothesis import strategies as st

from streams.rules.buckets import Fire, Hold, Hop, bucket_for, hop, hops_max, wake_ms

DAY_MS = 24 * 3_600_000


@given(
    wait_ms=st.integers(0, DAY_MS),
    late_ms=st.lists(st.integers(0, 2_000), min_size=1, max_size=7),
    held=st.lists(st.integers(0, 40), min_size=1, max_size=7),
    record_bytes=st.integers(1, 40),
)
def test_a_record_fires_when_due_after_a_bounded_number_of_hops(
    wait_ms, late_ms, held, record_bytes
):
    """D12, O-034, C-02: never early; late by no more than the shortest bucket and one wake."""
    now, hops, bucket = 0, 1, bucket_for(wait_ms)
    while True:
        now = wake_ms(bucket, now) + late_ms[hops % len(late_ms)]
        match hop(wait_ms, now, held[hops % len(held)], record_bytes, 40):
            case Fire():
                break
            case Hold(until_ms=until_ms):
                assert held[hops % len(held)] + record_bytes <= 40
                now = max(now, until_ms)
                break
            case Hop(bucket=bucket):
                hops += 1

    assert wait_ms <= now <= wait_ms + 1_000 + max(late_ms)
    assert hops <= hops_max(wait_ms) <= 46


@given(
    due_ms=st.integers(),
    woke_ms=st.integers(),
    held=st.integers(min_value=0),
    size=st.integers(min_value=0),
    bound=st.integers(min_value=0),
)
def test_nothing_fires_before_it_is_due(due_ms, woke_ms, held, size, bound):
    """Design §5: total over any clock and any memory."""
    became = hop(due_ms, woke_ms, held, size, bound)

    assert (woke_ms >= due_ms) == (became == Fire())
