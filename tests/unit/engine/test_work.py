"""Work in flight: bounded, counted down record by record, and never failing unseen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from streams.engine import work
from streams.engine.work import FOLLOW_UPS, Runner, Tasks
from tests.sim.loop import run_virtual


class Deliveries:
    """A deliverer whose deliveries end when, and as, the test says."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.ends: dict[str, asyncio.Future[bool]] = {}
        self.settle: dict[str, Callable[[], None]] = {}

    async def on_trigger(self, trigger: str, on_settled: Callable[[], None]) -> bool:
        self.started.append(trigger)
        self.settle[trigger] = on_settled
        self.ends[trigger] = asyncio.get_running_loop().create_future()
        return await self.ends[trigger]


class LaneOf:
    def __init__(self) -> None:
        self.settled: list[Any] = []

    def settle(self, record: Any) -> None:
        self.settled.append(record)


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_what_waits_for_deliveries_is_no_more_than_ran_at_once_and_ends_with_the_runner():
    """A task makes one delivery after the other; none outlives the runner, idle or not."""
    faults: list[BaseException] = []

    async def play() -> None:
        deliveries, tasks = Deliveries(), Tasks(faults.append)
        runner = Runner(cast("Any", deliveries), tasks, 10)
        for names in (["a", "b"], ["c"], ["d"]):
            await runner.run(cast("Any", LaneOf()), cast("Any", "record"), cast("Any", names))
            await turns()
            assert names == deliveries.started[-len(names) :]
            if names != ["d"]:
                for name in names:
                    deliveries.ends[name].set_result(True)
            await turns()
            assert 2 == len(tasks)
        draining = asyncio.create_task(runner.drain(5.0))
        await turns()
        assert 1 == len(tasks)
        deliveries.ends["d"].set_result(True)
        assert 0 == await draining
        await turns()
        assert 0 == len(tasks)

    run_virtual(play())

    assert [] == faults


def running(scenario: Any, *, at_most: int = 10) -> list[BaseException]:
    faults: list[BaseException] = []

    async def play() -> None:
        deliveries, lane = Deliveries(), LaneOf()
        runner = Runner(cast("Any", deliveries), Tasks(faults.append), at_most)
        await scenario(runner, deliveries, lane)

    run_virtual(play())
    return faults


def test_a_record_is_settled_when_all_its_deliveries_need_nothing_more():
    """Rule 9: in whatever order they end."""

    async def scenario(runner: Runner, deliveries: Deliveries, lane: Any) -> None:
        await runner.run(lane, "record", cast("Any", ["a", "b", "c"]))
        await turns()
        for name in ("c", "a"):
            deliveries.ends[name].set_result(True)
        await turns()
        assert [] == lane.settled
        deliveries.ends["b"].set_result(True)
        await turns()
        assert ["record"] == lane.settled
        assert 0 == runner.in_flight

    assert [] == running(scenario)


def test_a_record_with_a_delivery_that_may_not_be_acknowledged_is_never_settled():
    """Its assignment is over: it comes again to the next owner."""

    async def scenario(runner: Runner, deliveries: Deliveries, lane: Any) -> None:
        await runner.run(lane, "record", cast("Any", ["a", "b"]))
        await turns()
        deliveries.ends["a"].set_result(False)
        deliveries.ends["b"].set_result(True)
        await turns()
        assert [] == lane.settled

    running(scenario)


def test_no_more_deliveries_run_than_the_worker_has_room_for():
    """O-034: the rest waits in the topic, not in memory."""

    async def scenario(runner: Runner, deliveries: Deliveries, lane: Any) -> None:
        starting = asyncio.create_task(runner.run(lane, "record", cast("Any", list("abcd"))))
        await turns()
        assert ["a", "b"] == deliveries.started
        assert not starting.done()
        deliveries.ends["a"].set_result(True)
        await turns()
        assert ["a", "b", "c"] == deliveries.started
        for name in ("b", "c"):
            deliveries.ends[name].set_result(True)
        await starting
        assert list("abcd") == deliveries.started

    running(scenario, at_most=2)


def test_a_delivery_that_is_reported_leaves_its_place_to_the_next():
    """O-034: that its receipt is not written yet holds up no other; the record waits for it."""

    async def scenario(runner: Runner, deliveries: Deliveries, lane: Any) -> None:
        starting = asyncio.create_task(runner.run(lane, "record", cast("Any", ["a", "b"])))
        await turns()
        assert (["a"], 1) == (deliveries.started, runner.in_flight)
        deliveries.settle["a"]()
        await starting
        await turns()
        assert (["a", "b"], 1) == (deliveries.started, runner.in_flight)
        deliveries.ends["b"].set_result(True)
        await turns()
        assert ([], 0) == (lane.settled, runner.in_flight)
        deliveries.ends["a"].set_result(True)
        await turns()
        assert (["record"], 0) == (lane.settled, runner.in_flight)

    assert [] == running(scenario, at_most=1)


def test_the_follow_ups_that_are_being_written_are_bounded_too():
    """Where Kafka takes claims and no receipts: the rest waits in the topic, not in memory."""

    async def scenario(runner: Runner, deliveries: Deliveries, lane: Any) -> None:
        names = [str(number) for number in range(FOLLOW_UPS + 3)]
        starting = asyncio.create_task(runner.run(lane, "record", cast("Any", names)))
        for _ in names:
            await turns()
            deliveries.settle[deliveries.started[-1]]()
        await turns()
        assert names[: FOLLOW_UPS + 1] == deliveries.started
        deliveries.ends["0"].set_result(True)
        await turns()
        assert names[: FOLLOW_UPS + 1] == deliveries.started
        deliveries.ends[names[FOLLOW_UPS]].set_result(True)
        await turns()
        assert names[: FOLLOW_UPS + 2] == deliveries.started
        starting.cancel()

    assert [] == running(scenario, at_most=1)


def test_lanes_that_wait_take_places_in_turns(monkeypatch):
    """Few partitions at a time share few batches; the next lane's turn comes however long the first is."""
    monkeypatch.setattr(work, "TURN", 3)

    async def scenario(runner: Runner, deliveries: Deliveries, lane: Any) -> None:
        await runner.run(lane, "first", cast("Any", ["0", "1", "2", "3", "4"]))
        for name in "abc":
            names = [f"{name}{number}" for number in range(4)]
            asyncio.create_task(runner.run(lane, name, cast("Any", names)))  # noqa: RUF006
        await turns()
        for name in list(deliveries.started):
            deliveries.ends[name].set_result(True)
        await turns()
        assert ["a0", "a1", "a2", "b0", "b1"] == deliveries.started[5:]
        while len(deliveries.started) < 17:
            for name in deliveries.started[5:]:
                if not deliveries.ends[name].done():
                    deliveries.ends[name].set_result(True)
            await turns()
        assert 17 == len(set(deliveries.started))

    assert [] == running(scenario, at_most=5)


def test_a_turn_that_is_not_used_up_is_the_next_ones():
    """A lane that has no more records, or whose assignment is over, keeps nobody waiting."""

    async def scenario(runner: Runner, deliveries: Deliveries, lane: Any) -> None:
        await runner.run(lane, "first", cast("Any", ["0", "1", "2"]))
        for name in "abc":
            asyncio.create_task(runner.run(lane, name, cast("Any", [name])))  # noqa: RUF006
        await turns()
        for name in "012":
            deliveries.ends[name].set_result(True)
        await turns()
        assert ["a", "b", "c"] == deliveries.started[3:]

    assert [] == running(scenario, at_most=3)


def test_a_place_that_comes_with_a_cancellation_is_the_next_ones():
    """A lane that was taken away at the very moment at which its turn came."""

    async def scenario(runner: Runner, deliveries: Deliveries, lane: Any) -> None:
        await runner.run(lane, "first", cast("Any", ["0"]))
        gone = asyncio.create_task(runner.run(lane, "a", cast("Any", ["a"])))
        await turns()
        asyncio.create_task(runner.run(lane, "b", cast("Any", ["b"])))  # noqa: RUF006
        await turns()
        deliveries.ends["0"].set_result(True)
        for _ in range(10):
            if runner._room._has_turn:
                break
            await asyncio.sleep(0)
        gone.cancel()
        await turns()
        assert ["0", "b"] == deliveries.started

    assert [] == running(scenario, at_most=1)


def test_a_delivery_that_fails_gives_its_room_back_and_ends_the_process():
    """Rule 12: an unexpected exception is never swallowed, and its record not acknowledged."""

    async def scenario(runner: Runner, deliveries: Deliveries, lane: Any) -> None:
        await runner.run(lane, "record", cast("Any", ["a"]))
        await turns()
        deliveries.ends["a"].set_exception(ZeroDivisionError())
        await turns()
        assert ([], 0) == (lane.settled, runner.in_flight)

    assert [ZeroDivisionError] == [type(fault) for fault in running(scenario)]


def test_a_runner_that_drains_starts_nothing_and_says_how_much_is_left():
    """interface.md §1: SIGTERM waits for the calls in flight, and no longer than it may."""

    async def scenario(runner: Runner, deliveries: Deliveries, lane: Any) -> None:
        await runner.run(lane, "record", cast("Any", ["a", "b"]))
        await turns()
        draining = asyncio.create_task(runner.drain(5.0))
        await turns()
        await runner.run(lane, "next", cast("Any", ["c"]))
        deliveries.ends["a"].set_result(True)
        assert 1 == await draining
        assert ["a", "b"] == deliveries.started
        assert 5.0 == asyncio.get_running_loop().time()

        deliveries.ends["b"].set_result(True)
        await turns()
        assert 0 == await runner.drain(5.0)

    running(scenario)


def test_a_cancelled_task_is_no_failure():
    """A worker that stops cancels what is left."""
    faults: list[BaseException] = []

    async def play() -> None:
        tasks = Tasks(faults.append)
        tasks.spawn(asyncio.sleep(60))
        assert 1 == await tasks.drain(1.0)
        tasks.cancel()
        await turns()
        assert 0 == len(tasks)

    run_virtual(play())

    assert [] == faults


def test_the_idle_runner_has_room_for_all():
    """Room that is given back can be had again: nothing leaks over a thousand records."""

    async def scenario(runner: Runner, deliveries: Deliveries, lane: Any) -> None:
        for number in range(1_000):
            await runner.run(lane, SimpleNamespace(offset=number), cast("Any", ["x"]))
            await turns()
            deliveries.ends["x"].set_result(True)
            await turns()
        assert 1_000 == len(lane.settled)

    running(scenario, at_most=1)
