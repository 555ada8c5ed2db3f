"""Retries in memory between waking and due: in order, bounded in bytes, dropped with their lane."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from random import Random
from types import SimpleNamespace
from typing import Any

from streams.engine.held import OVERHEAD_BYTES, SLICE, Held
from tests.sim.broker import BASE_MS
from tests.sim.loop import run_virtual
from tests.sim.machine import SimTime

LANE: Any = object()
OTHER: Any = object()


def record(
    name: str, value: bytes = b"", headers: tuple[tuple[str, bytes], ...] = (), offset: int = 0
) -> Any:
    return SimpleNamespace(name=name, key=b"k", value=value, headers=headers, offset=offset)


class Fired(list[tuple[float, str]]):
    def __call__(self, lane: Any, fired: Any) -> None:
        self.append((round(asyncio.get_running_loop().time(), 3), fired.name))


def holding(scenario: Callable[[Held, Fired, SimTime], Awaitable[None]]) -> None:
    """Play a scenario in virtual time, with the timer running."""

    async def play() -> None:
        time, fired = SimTime(asyncio.get_running_loop(), Random(1)), Fired()
        held = Held(time)
        running = asyncio.create_task(held.run(fired))
        await asyncio.sleep(0)
        await scenario(held, fired, time)
        running.cancel()

    run_virtual(play())


def test_what_is_held_is_handed_on_when_it_is_due_and_not_before():
    """D-018, O-040: in the order of due times, whatever the order of coming."""

    async def scenario(held: Held, fired: Fired, time: SimTime) -> None:
        for name, due_ms in (("c", 3_000), ("a", 500), ("b", 1_200)):
            held.hold(BASE_MS + due_ms, LANE, record(name))
        await asyncio.sleep(5)

        assert [(0.5, "a"), (1.2, "b"), (3.0, "c")] == fired
        assert (0, 0) == (len(held), held.bytes)

    holding(scenario)


def test_what_is_held_is_known_by_lane_and_offset_until_it_is_due_or_dropped():
    """faust.md §8: a record that waits here is no standstill; one that went on may be one."""

    async def scenario(held: Held, fired: Fired, time: SimTime) -> None:
        held.hold(BASE_MS + 500, LANE, record("a", offset=4))
        held.hold(BASE_MS + 9_000, LANE, record("b", offset=5))
        held.hold(BASE_MS + 9_000, OTHER, record("c", offset=5))
        assert (True, False) == (held.holds(LANE, 4), held.holds(OTHER, 4))

        await asyncio.sleep(1)
        assert (False, True) == (held.holds(LANE, 4), held.holds(LANE, 5))
        held.drop({LANE})
        assert (False, True) == (held.holds(LANE, 5), held.holds(OTHER, 5))

    holding(scenario)


def test_what_is_due_earlier_than_all_others_wakes_the_timer():
    """A retry of one second must not wait for the one of an hour that came first."""

    async def scenario(held: Held, fired: Fired, time: SimTime) -> None:
        held.hold(BASE_MS + 60_000, LANE, record("late"))
        await asyncio.sleep(0.1)
        held.hold(BASE_MS + 300, LANE, record("soon"))
        await asyncio.sleep(0.5)

        assert [(0.3, "soon")] == fired

    holding(scenario)


def test_what_is_due_at_the_same_time_keeps_its_order():
    """The records themselves are never compared."""

    async def scenario(held: Held, fired: Fired, time: SimTime) -> None:
        for name in "abcd":
            held.hold(BASE_MS + 100, LANE, record(name))
        await asyncio.sleep(0.2)

        assert ["a", "b", "c", "d"] == [name for _, name in fired]

    holding(scenario)


def test_a_thousand_that_are_due_at_once_leave_others_their_turn():
    """C-08: each is read and started by who is told; a healthy target's call must not wait for all."""

    async def scenario(held: Held, fired: Fired, time: SimTime) -> None:
        for number in range(10 * SLICE):
            held.hold(BASE_MS + 1_000, LANE, record(str(number)))
        await asyncio.sleep(1)
        seen = [0]
        while len(fired) < 10 * SLICE:
            await asyncio.sleep(0)
            seen.append(len(fired))

        assert all(after - before <= SLICE for before, after in pairwise(seen))

    holding(scenario)


def test_a_wall_clock_that_is_set_forward_is_noticed_within_a_second():
    """The timer sleeps by the monotonic clock; due times are wall time."""

    async def scenario(held: Held, fired: Fired, time: SimTime) -> None:
        held.hold(BASE_MS + 3_600_000, LANE, record("a"))
        await asyncio.sleep(0.1)
        time.skew_ms = 3_600_000
        await asyncio.sleep(1.0)

        assert ["a"] == [name for _, name in fired]

    holding(scenario)


def test_the_records_of_a_lost_lane_are_forgotten_and_the_rest_keeps_its_order():
    """Rule 9: the next owner reads them again; ours must not fire them."""

    async def scenario(held: Held, fired: Fired, time: SimTime) -> None:
        for number, lane in enumerate((LANE, OTHER, LANE, OTHER, OTHER)):
            held.hold(BASE_MS + 500 - number, lane, record(str(number)))
        held.drop({LANE})
        await asyncio.sleep(1)

        assert ["4", "3", "1"] == [name for _, name in fired]
        assert 0 == held.bytes

    holding(scenario)


def test_the_bytes_that_are_held_are_counted():
    """Design §5: 32 MiB per worker; value, key, headers and what a record costs beside them."""

    async def scenario(held: Held, fired: Fired, time: SimTime) -> None:
        held.hold(BASE_MS + 900, LANE, record("a", b"x" * 100, (("due", b"12"),)))

        assert OVERHEAD_BYTES + 100 + 1 + 5 == held.bytes
        held.drop({LANE})
        assert (0, 0) == (held.bytes, len(held))

    holding(scenario)
