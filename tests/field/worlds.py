"""Worlds of `tests/sim` for field cases: the real engine, a broker in memory, time that jumps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from streams.model.ledger import Row
from tests.sim.loop import run_virtual
from tests.sim.memory import Record
from tests.sim.quiet import quiet
from tests.sim.target import Call
from tests.sim.world import World

Scenario = Callable[[World], Awaitable[None]]


def simulate(
    scenario: Scenario, *, machines: str = "A", max_attempts: int = 3, owned: bool = True
) -> World:
    """Live through a scenario, machine A owning the partition from the start unless `owned` is false.

    Every promise of the simulation's oracle is checked along the way.
    """

    async def live() -> World:
        world = World(1, machines, max_attempts=max_attempts)
        if owned:
            world.move("A", told=False)
        await scenario(world)
        return world

    with quiet():
        return run_virtual(live())


def dead_letters(world: World) -> list[Record]:
    """What was written to the dead-letter topic."""
    return world.broker.topics["outbox.dead-letters"].records


def calls_of(world: World, target: str) -> list[Call]:
    """The calls that a target saw."""
    return [call for call in world.script.calls if call.row.target == target]


def row_of(world: World, activity_id: str, target: str) -> Row:
    """A delivery's row as the log says."""
    row = world.oracle.row(f"{activity_id}\x00{target}".encode())
    assert row is not None
    return row


def on_each_call(world: World, happen: Callable[[Call], None]) -> None:
    """Let something happen at the moment in which a call leaves."""
    note = world.script.on_call

    def called(call: Call) -> None:
        note(call)
        happen(call)

    world.script.on_call = called
