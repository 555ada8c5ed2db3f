"""A target's door: never more calls than it takes, a fair line, and nobody else's wait (C-08)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random
from unittest import mock

from streams.engine.gate import Gate, Slot, StepAside, _Door
from streams.rules.pacing import FAULTS_TO_OPEN, PATIENCE_MS
from tests.sim.loop import run_virtual
from tests.sim.machine import SimTime


def at_a_gate(scenario: Callable[[Gate], Awaitable[None]]) -> None:
    """Play a scenario in virtual time."""

    async def play() -> None:
        await scenario(Gate(SimTime(asyncio.get_running_loop(), Random(1))))

    run_virtual(play())


async def slot_of(gate: Gate, target: str = "t", cap: int = 1) -> Slot:
    slot = await gate.enter(target, cap)
    assert isinstance(slot, Slot)
    return slot


async def call(gate: Gate, lasts_s: float, *, target: str = "t", cap: int = 1, answered=True):
    """One delivery: enter, call, leave; None when it stepped aside."""
    slot = await gate.enter(target, cap)
    if isinstance(slot, StepAside):
        return slot
    slot.call_starts()
    await asyncio.sleep(lasts_s)
    slot.leave(answered=answered)
    return None


def test_no_more_calls_are_under_way_than_the_target_takes():
    """O-041: 20 connections by default, per target; however many deliveries come at once."""

    async def scenario(gate: Gate) -> None:
        running = most = 0

        async def work() -> None:
            nonlocal running, most
            slot = await slot_of(gate, cap=3)
            slot.call_starts()
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.01)
            running -= 1
            slot.leave(answered=True)

        await asyncio.gather(*(work() for _ in range(50)))

        assert 3 == most

    at_a_gate(scenario)


def test_those_who_wait_are_called_in_the_order_of_their_coming():
    """A slot goes to who waited longest; who comes just then does not slip in."""

    async def scenario(gate: Gate) -> None:
        order = []

        async def work(number: int) -> None:
            slot = await slot_of(gate)
            order.append(number)
            await asyncio.sleep(0.01)
            slot.leave(answered=True)

        await asyncio.gather(*(work(number) for number in range(8)))

        assert list(range(8)) == order

    at_a_gate(scenario)


def test_a_line_goes_on_waiting_while_the_target_keeps_its_pace():
    """Our own slowness is no reason to step aside: no call is late, so nobody gives up."""

    async def scenario(gate: Gate) -> None:
        ours = await slot_of(gate)
        waiting = asyncio.create_task(slot_of(gate))
        await asyncio.sleep(3 * PATIENCE_MS / 1000)

        assert not waiting.done()
        ours.leave(answered=None)
        (await waiting).leave(answered=None)

    at_a_gate(scenario)


def test_whoever_waits_for_a_target_that_hangs_steps_aside():
    """O-034, O-037: it is written to a delay topic, and held nowhere but there."""

    async def scenario(gate: Gate) -> None:
        hanging = await slot_of(gate)
        hanging.call_starts()
        waiting = asyncio.create_task(gate.enter("t", 1))

        seen = await waiting

        assert isinstance(seen, StepAside)
        assert "target_full" == seen.reason
        assert asyncio.get_running_loop().time() <= 2.5

    at_a_gate(scenario)


def test_a_target_that_hangs_moves_nobody_elses_call():
    """C-08, O-006, O-030..038: in the same worker, at the same time."""

    async def scenario(gate: Gate) -> None:
        loop = asyncio.get_running_loop()
        hanging = [
            asyncio.create_task(call(gate, 30, target="slow", answered=False)) for _ in range(40)
        ]
        await asyncio.sleep(0)
        took = []
        for _ in range(100):
            started = loop.time()
            assert await call(gate, 0.002, target="quick") is None
            took.append(loop.time() - started)

        assert max(took) < 0.003
        await asyncio.gather(*hanging)

    at_a_gate(scenario)


def test_one_who_is_cancelled_in_line_leaves_no_gap():
    """Its place is skipped, and its slot not lost."""

    async def scenario(gate: Gate) -> None:
        first = await slot_of(gate)
        second, third = (asyncio.create_task(slot_of(gate)) for _ in range(2))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.sleep(0)
        first.leave(answered=True)
        (await third).leave(answered=True)

        assert second.cancelled()
        assert isinstance(await gate.enter("t", 1), Slot)

    at_a_gate(scenario)


def test_a_slot_that_comes_together_with_the_cancellation_is_given_back():
    """Or the target would have one connection less until the process ends."""

    async def scenario(gate: Gate) -> None:
        first = await slot_of(gate)
        second = asyncio.create_task(slot_of(gate))
        await asyncio.sleep(0)
        first.leave(answered=True)
        second.cancel()
        await asyncio.wait({second})

        assert second.cancelled()
        (await slot_of(gate)).leave(answered=True)

    at_a_gate(scenario)


def test_a_target_that_is_down_is_left_alone_and_then_probed_once():
    """C-08: the breaker opens after so many faults in a row, and one call at a time asks again."""

    async def scenario(gate: Gate) -> None:
        for _ in range(FAULTS_TO_OPEN):
            await call(gate, 0.01, answered=False)
        down = await gate.enter("t", 1)
        assert isinstance(down, StepAside)
        assert "target_down" == down.reason

        await asyncio.sleep(down.wait_ms / 1000)
        probe = await slot_of(gate, cap=5)
        other = await gate.enter("t", 5)
        assert isinstance(other, StepAside)
        probe.call_starts()
        probe.leave(answered=True)

        (await slot_of(gate, cap=5)).leave(answered=True)

    at_a_gate(scenario)


def test_a_claim_that_was_void_says_nothing_of_the_target():
    """`answered=None`: no call was made, so its pace stays as it was."""

    async def scenario(gate: Gate) -> None:
        for _ in range(3 * FAULTS_TO_OPEN):
            (await slot_of(gate)).leave(answered=None)

        assert isinstance(await gate.enter("t", 1), Slot)

    at_a_gate(scenario)


def test_doors_that_nobody_uses_are_forgotten():
    """A million inboxes, each told once, must not stay in memory."""

    async def scenario(gate: Gate) -> None:
        gate.IDLE_DOORS = 3
        for name in ("a", "b", "c"):
            (await slot_of(gate, name)).leave(answered=True)
        used = await slot_of(gate, "d")
        (await slot_of(gate, "e")).leave(answered=True)
        (await slot_of(gate, "f")).leave(answered=True)
        (await slot_of(gate, "g")).leave(answered=True)

        assert {"d", "f", "g"} == set(gate._doors)
        used.leave(answered=True)

    at_a_gate(scenario)


def test_a_door_that_knows_its_target_to_be_down_is_kept_for_a_while():
    """C-08: forgotten at once, a target that is down would be called ten times anew."""

    async def scenario(gate: Gate) -> None:
        gate.IDLE_DOORS = 2
        down = await slot_of(gate, "down")
        down.call_starts()
        down.leave(answered=False)
        for number in range(10):
            (await slot_of(gate, f"up-{number}")).leave(answered=True)
        assert "down" in gate._doors

        await asyncio.sleep(gate.REMEMBERED_S + 1)
        for number in range(10):
            (await slot_of(gate, f"up-{number}")).leave(answered=True)

        assert "down" not in gate._doors

    at_a_gate(scenario)


def test_a_new_door_costs_the_same_however_many_there_are():
    """
    Found by a soak: each of 16,000 inboxes of the last ten minutes was looked at for each new one, which
    stopped the loop for good once there was a backlog.
    """

    async def scenario(gate: Gate) -> None:
        looked: Counter[str] = Counter()
        is_needed = _Door.is_needed

        def counted(door: _Door, now: float, since: float) -> bool:
            looked["doors"] += 1
            return is_needed(door, now, since)

        gate.IDLE_DOORS = 50
        with mock.patch.object(_Door, "is_needed", counted):
            for number in range(500):
                (await slot_of(gate, f"t{number}")).leave(answered=True)

        assert 50 == len(gate._doors)
        assert 500 >= looked["doors"]

    at_a_gate(scenario)


def test_a_target_that_asks_to_wait_gets_no_further_call_from_those_in_line():
    """B13: they would spend an attempt each to hear the same; they step aside when patience ends."""

    async def scenario(gate: Gate) -> None:
        first = await slot_of(gate)
        first.call_starts()
        in_line = [asyncio.create_task(gate.enter("t", 1)) for _ in range(3)]
        await asyncio.sleep(0)

        first.leave(answered=True, asked_ms=5_000)
        seen = await asyncio.gather(*in_line)

        assert ["target_asks_to_wait"] * 3 == [getattr(one, "reason", None) for one in seen]
        assert all(one.wait_ms >= 4_000 for one in seen if isinstance(one, StepAside))

    at_a_gate(scenario)
