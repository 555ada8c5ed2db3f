"""What is parked goes at once when its target is enabled, and nothing else does."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from streams.engine.lanes import LANE_RECORDS, Lane
from streams.engine.released import REMEMBERED_S, Released
from streams.wire.records import RetryItem


def item(target="crm", since_ms=1):
    return RetryItem(delivery_id="d", target=target, attempt=0, fence=-1, parked_since_ms=since_ms)


@pytest.mark.parametrize(
    ("items", "frees"),
    [
        ((item(),), True),
        ((item(), item()), True),
        ((item(since_ms=0),), False),
        ((item("other"),), False),
        ((item(), item(since_ms=0)), False),
        ((item(), item("other")), False),
    ],
)
def test_a_record_goes_when_all_that_it_carries_is_parked_and_released(items, frees):
    """
    D-018: a retry in the same record must not be called before it is due.
    """
    released = Released()
    released.note("crm", 0.0)

    assert frees == released.frees(items)


def test_a_release_is_forgotten_when_all_has_come_up_by_itself():
    released = Released()
    released.note("crm", 0.0)

    assert released.has_any(REMEMBERED_S - 1)
    assert not released.has_any(REMEMBERED_S)
    assert not released.frees([item()])


def record(offset):
    return SimpleNamespace(offset=offset, value=b"v", key=b"k", headers=[])


async def _nothing(lane, record):
    """No work."""


def test_what_is_taken_out_of_a_lane_is_settled_like_the_rest():
    """
    Rule 9: nothing before it is acknowledged with it.
    """
    lane = Lane(1, _nothing, lambda has_room: None)
    lane.put([record(n) for n in range(4)])

    taken = lane.take_out(lambda each: each.offset in (1, 3))

    assert [1, 3] == [each.offset for each in taken]
    lane.settle(taken[0])
    assert 0 == lane.acks.committable()
    lane.settle(record(0))
    assert 2 == lane.acks.committable()


def test_a_full_lane_has_room_again_when_enough_is_taken_out():
    told: list[bool] = []
    lane = Lane(1, _nothing, told.append)
    lane.put([record(n) for n in range(LANE_RECORDS + 1)])

    lane.take_out(lambda each: True)

    assert [False, True] == told
    assert 0 == lane.held_bytes
