"""A target's door under any order of comings, goings and cancellations."""

from __future__ import annotations

import asyncio
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from streams.engine.gate import Gate, Slot
from tests.sim.loop import run_virtual
from tests.sim.machine import SimTime

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("enter"), st.integers(0, 1)),
        st.tuples(st.just("cancel"), st.integers(0, 30)),
        st.tuples(st.just("start"), st.integers(0, 30)),
        st.tuples(st.just("leave"), st.integers(0, 30)),
        st.tuples(st.just("fail"), st.integers(0, 30)),
        st.tuples(st.just("sleep"), st.sampled_from([1, 300, 600, 1_500])),
        st.tuples(st.just("turn"), st.just(0)),
    ),
    max_size=60,
)


class Door:
    """One target and everybody at it."""

    def __init__(self, gate: Gate, cap: int) -> None:
        self.gate = gate
        self.cap = cap
        self.coming: list[asyncio.Task[None]] = []
        self.slots: list[Slot] = []
        self.aside = 0

    async def enter(self, name: str) -> None:
        seen = await self.gate.enter(name, self.cap)
        if isinstance(seen, Slot):
            self.slots.append(seen)
            assert len(self.slots) <= self.cap
        else:
            assert seen.wait_ms >= 0
            self.aside += 1

    def leave(self, at: int, *, answered: bool | None) -> None:
        if self.slots:
            self.slots.pop(at % len(self.slots)).leave(answered=answered)

    def happens(self, step: str, value: int) -> None:
        """One step of a schedule that takes no time."""
        if step == "cancel" and self.coming:
            self.coming[value % len(self.coming)].cancel()
        elif step == "start" and self.slots:
            self.slots[value % len(self.slots)].call_starts()
        elif step == "leave":
            self.leave(value, answered=True if value % 3 else None)
        elif step == "fail":
            self.leave(value, answered=False)

    async def clear(self) -> None:
        """Everybody who waits is served, and goes."""
        while any(not task.done() for task in self.coming) or self.slots:
            self.leave(0, answered=True)
            await asyncio.sleep(0.001)
        for task in self.coming:
            assert task.cancelled() or task.exception() is None


@settings(deadline=None)
@given(steps=STEPS, cap=st.integers(1, 3))
def test_a_door_never_lets_too_many_in_and_never_forgets_a_place(steps, cap):
    """C-08, O-041: at most `cap` at a time, whoever gives up; and in the end every place is free."""

    async def play() -> None:
        gate = Gate(SimTime(asyncio.get_running_loop(), Random(1)))
        doors = [Door(gate, cap), Door(gate, cap)]
        here = doors[0]
        for step, value in steps:
            if step == "enter":
                here = doors[value]
                here.coming.append(asyncio.create_task(here.enter(f"t{value}")))
            elif step in ("sleep", "turn"):
                await asyncio.sleep(value / 1_000)
            else:
                here.happens(step, value)
        for number, door in enumerate(doors):
            await door.clear()
            await asyncio.sleep(60)  # a breaker closes
            await door.enter(f"t{number}")
            assert 1 == len(door.slots)

    run_virtual(play())
