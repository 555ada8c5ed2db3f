"""A lane: the records of one partition in order, bounded, and never read twice."""

from __future__ import annotations

import asyncio
import contextlib
from types import SimpleNamespace
from typing import Any

import pytest

from streams.engine import lanes
from streams.engine.lanes import LANE_BYTES, LANE_RECORDS, Lane, one_turn, tenant_of
from tests.sim.loop import run_virtual


def records(*offsets: int, value: bytes = b"v", key: bytes = b"k") -> list[Any]:
    return [SimpleNamespace(offset=o, key=key, value=value, headers=()) for o in offsets]


class Work:
    """An agent that notes what it is given, and goes on when it is let."""

    def __init__(self) -> None:
        self.started: list[int] = []
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self.room: list[bool] = []

    async def __call__(self, lane: Lane, record: Any) -> None:
        self.started.append(record.offset)
        await self.may_go_on.wait()


def with_a_lane(scenario: Any, *, turn_of: Any = one_turn) -> None:
    async def play() -> None:
        work = Work()
        lane = Lane(1, work, work.room.append, turn_of)
        running = asyncio.create_task(lane.run())
        await scenario(lane, work)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running

    run_virtual(play())


def test_the_record_at_work_is_known():
    """faust.md §8: whether the oldest waits for its time is asked of it."""

    async def scenario(lane: Lane, work: Work) -> None:
        work.may_go_on.clear()
        lane.put(records(3, 4))
        await asyncio.sleep(0.01)

        assert lane.at_work is not None
        assert 3 == lane.at_work.offset

    with_a_lane(scenario)


def test_records_are_worked_through_in_the_order_of_their_offsets():
    """Admission decides by it: which record brought which recipient."""

    async def scenario(lane: Lane, work: Work) -> None:
        lane.put(records(3, 4, 9))
        lane.put(records(10, 11))
        await asyncio.sleep(0.01)

        assert [3, 4, 9, 10, 11] == work.started

    with_a_lane(scenario)


def test_a_lane_that_is_empty_after_a_take_out_waits_for_more():
    """An operator enabled their target while the record before them was at work."""

    async def scenario(lane: Lane, work: Work) -> None:
        work.may_go_on.clear()
        lane.put(records(1, 2))
        await asyncio.sleep(0.01)
        assert [2] == [record.offset for record in lane.take_out(lambda _: True)]
        work.may_go_on.set()
        await asyncio.sleep(0.01)
        lane.put(records(3))
        await asyncio.sleep(0.01)

        assert [1, 3] == work.started

    with_a_lane(scenario)


def test_a_record_that_is_fetched_again_is_taken_once():
    """After a seek back the same records come again; they are in hand."""

    async def scenario(lane: Lane, work: Work) -> None:
        lane.put(records(3, 4))
        lane.put(records(3, 4, 5))
        await asyncio.sleep(0.01)

        assert [3, 4, 5] == work.started

    with_a_lane(scenario)


def test_one_record_waits_until_the_one_before_is_started():
    """An agent that waits for room holds its lane, and no other."""

    async def scenario(lane: Lane, work: Work) -> None:
        work.may_go_on.clear()
        lane.put(records(1, 2))
        await asyncio.sleep(0.01)
        assert [1] == work.started

        work.may_go_on.set()
        await asyncio.sleep(0.01)
        assert [1, 2] == work.started

    with_a_lane(scenario)


@pytest.mark.parametrize(
    ("number", "value"),
    [(LANE_RECORDS + 1, b"v"), (3, b"v" * (LANE_BYTES // 2))],
    ids=["by records", "by bytes"],
)
def test_a_full_lane_says_so_once_and_says_when_it_has_room_again(number, value):
    """Bounded: it is not asked for more until it is below half (O-034)."""

    async def scenario(lane: Lane, work: Work) -> None:
        work.may_go_on.clear()
        lane.put(records(*range(number), value=value))
        lane.put(records(number, value=b""))
        assert [False] == work.room

        work.may_go_on.set()
        await asyncio.sleep(0.1)
        assert [False, True] == work.room
        assert 0 == lane.held_bytes

    with_a_lane(scenario)


def test_a_lane_waits_for_its_oldest_record_when_too_many_are_unsettled(monkeypatch):
    """What is handed over and not settled is redelivered after a crash: it stays bounded."""
    monkeypatch.setattr(lanes, "OPEN_RECORDS", 3)

    async def scenario(lane: Lane, work: Work) -> None:
        batch = records(0, 1, 2, 3, 4, 5)
        lane.put(batch)
        await asyncio.sleep(0.01)
        assert [0, 1, 2, 3] == work.started

        lane.settle(batch[3])
        await asyncio.sleep(0.01)
        assert [0, 1, 2, 3] == work.started

        lane.settle(batch[0])
        await asyncio.sleep(0.01)
        assert [0, 1, 2, 3, 4] == work.started

    with_a_lane(scenario)


def test_each_tenant_has_its_turn():
    """C-08: one tenant's thousand activities delay another's by one of its own, and not by all."""

    async def scenario(lane: Lane, work: Work) -> None:
        work.may_go_on.clear()
        lane.put(records(*range(1, 7), key=b"big|1"))
        lane.put(records(7, 8, key=b"small|1"))
        lane.put(records(9, key=b"https://of.the.default/tenant"))
        work.may_go_on.set()
        await asyncio.sleep(0.01)

        assert [1, 7, 9, 2, 8, 3, 4, 5, 6] == work.started

    with_a_lane(scenario, turn_of=tenant_of)


def test_what_is_taken_out_of_its_turn_leaves_the_turns_of_the_others():
    """Every record is worked on once, whichever way it goes."""

    async def scenario(lane: Lane, work: Work) -> None:
        lane.put(records(1, 2, key=b"a|1"))
        lane.put(records(3, key=b"b|1"))
        lane.put(records(4, key=b"c|1"))

        taken = lane.take_out(lambda record: record.offset in (1, 3))
        await asyncio.sleep(0.01)

        assert [1, 3] == [record.offset for record in taken]
        assert [2, 4] == work.started

    with_a_lane(scenario, turn_of=tenant_of)


def test_a_gap_in_turns_is_no_gap_in_what_is_acknowledged():
    """Rule 9: the prefix counts, whatever was worked on first."""

    async def scenario(lane: Lane, work: Work) -> None:
        first, second, other = *records(1, 2, key=b"a|1"), *records(3, key=b"b|1")
        lane.put([first, second, other])
        await asyncio.sleep(0.01)
        lane.settle(first)
        lane.settle(other)

        assert 2 == lane.acks.committable()
        lane.settle(second)
        assert 4 == lane.acks.committable()

    with_a_lane(scenario, turn_of=tenant_of)
