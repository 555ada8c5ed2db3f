"""Only the contiguous prefix of what is settled may be committed (rule 9; upstream #606, #596)."""

from __future__ import annotations

import pytest

from streams.engine.acks import Acks


def taken(*offsets: int) -> Acks:
    acks = Acks(assignment=1)
    for offset in offsets:
        acks.take(offset)
    return acks


def test_nothing_is_committable_before_anything_was_handed_over():
    """A commit of nothing would say something of records that nobody saw."""
    assert Acks(1).committable() is None


def test_work_in_flight_is_never_committed_past():
    """Upstream #606: with 100 in flight and 101, 102 settled, faust commits 103."""
    acks = taken(*range(103))
    for offset in range(100):
        acks.settle(offset)
    acks.settle(101)
    acks.settle(102)

    assert (100, 100, 3) == (acks.committable(), acks.oldest, len(acks))

    acks.settle(100)

    assert (103, None, 0) == (acks.committable(), acks.oldest, len(acks))


def test_gaps_in_the_offsets_hold_nothing_up():
    """Control records and compaction leave some: what comes after the last record is committed."""
    acks = taken(3, 7, 20)

    assert 3 == acks.committable()
    acks.settle(7)
    assert 3 == acks.committable()
    acks.settle(3)
    assert 20 == acks.committable()
    acks.settle(20)
    assert 21 == acks.committable()


def test_what_was_committed_is_not_committed_again():
    """A commit costs a round trip."""
    acks = taken(0, 1)
    acks.settle(0)
    acks.committed = acks.committable()

    assert acks.committable() is None

    acks.settle(1)

    assert 2 == acks.committable()


def test_the_first_record_in_hand_is_committable_as_it_is():
    """Nothing before it is ours: the group stands there, and committing it says so."""
    assert 42 == taken(42, 43).committable()


def test_a_record_settled_twice_counts_once():
    """A retry that was written twice settles its record twice."""
    acks = taken(0, 1)
    acks.settle(1)
    acks.settle(1)
    acks.settle(0)
    acks.settle(0)

    assert 2 == acks.committable()


def test_a_record_that_was_never_handed_over_settles_nothing():
    """Rule 9: it belongs to another assignment."""
    acks = taken(5)
    acks.settle(4)
    acks.settle(6)

    assert 5 == acks.committable()


@pytest.mark.parametrize("again", [4, 5])
def test_records_must_be_handed_over_in_order(again):
    """A hand-over that turns back is broken, and the process ends on it."""
    acks = taken(4, 5)

    with pytest.raises(AssertionError, match="in order"):
        acks.take(again)


@pytest.mark.timeout(30)
def test_a_long_line_behind_one_record_is_let_go_in_one_go():
    """
    Many settled behind one that hangs: letting them go takes time in proportion to their number. With a
    plain dict it grew with its square: 4 s for 100,000 (measured), and two minutes for these.
    """
    last = 500_000
    acks = taken(*range(last))
    for offset in range(1, last):
        acks.settle(offset)

    acks.settle(0)

    assert (last, 0) == (acks.committable(), len(acks))
