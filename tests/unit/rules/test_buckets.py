"""Which delay topic a wait goes to, and what becomes of a record that woke."""

import pytest

from streams.rules.buckets import BUCKETS, Fire, Hold, Hop, bucket_for, hop, hops_max, wake_ms

DAY_MS = 24 * 3_600_000


@pytest.mark.parametrize(
    ("wait_ms", "bucket"),
    [
        (-5, "1s"),
        (0, "1s"),
        (999, "1s"),
        (1_000, "1s"),
        (4_999, "1s"),
        (5_000, "5s"),
        (29_999, "5s"),
        (30_000, "30s"),
        (119_999, "30s"),
        (120_000, "2m"),
        (599_999, "2m"),
        (600_000, "10m"),
        (3_599_999, "10m"),
        (3_600_000, "1h"),
        (DAY_MS, "1h"),
    ],
)
def test_a_wait_goes_to_the_largest_bucket_that_is_not_longer(wait_ms, bucket):
    """
    Design §5: so that it never wakes after it is due, unless no bucket is short enough.
    """
    assert bucket == bucket_for(wait_ms)


@pytest.mark.parametrize(("bucket", "length_ms"), BUCKETS)
def test_a_record_wakes_after_its_buckets_length(bucket, length_ms):
    """
    D12: every record of a bucket waits alike, so order in the topic is order of waking.
    """
    assert 1_000_000 + length_ms == wake_ms(bucket, 1_000_000)


def test_an_unknown_bucket_is_refused():
    """
    Design §5: buckets are few and fixed.
    """
    with pytest.raises(KeyError):
        wake_ms("7s", 0)


@pytest.mark.parametrize("woke_ms", [10_000, 10_001, 99_999])
def test_what_is_due_fires(woke_ms):
    """
    Design §5: a wake that comes late is no reason to wait longer, nor is full memory.
    """
    assert Fire() == hop(10_000, woke_ms, 100, 1, 100)


def test_time_that_is_left_is_spent_in_memory():
    """
    Design §5: exactly until it is due.
    """
    assert Hold(10_000) == hop(10_000, 9_999, 0, 100, 100)


def test_full_memory_sends_it_on():
    """
    O-034, design §5: the bound on held bytes is never passed; the log holds what memory does not.
    """
    assert Hop("5s") == hop(10_000, 2_000, 1, 100, 100)


def test_a_short_wait_does_not_stand_behind_a_long_one():
    """
    D12: an hour, five seconds, one second: each in a bucket of its own.
    """
    buckets = [bucket_for(wait_ms) for wait_ms in (3_600_000, 5_000, 1_000)]

    assert ["1h", "5s", "1s"] == buckets


def test_the_hops_of_a_day_are_bounded():
    """
    C-02: 24 h is the elapsed limit of `activity`; a body is written 46 times at the very most.
    """
    assert hops_max(DAY_MS) == 46
