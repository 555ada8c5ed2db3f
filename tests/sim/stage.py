"""What the traces share: a small world, and the words to direct it with."""

from __future__ import annotations

import asyncio

from streams.model.ledger import Phase, Row
from tests.sim.loop import run_virtual
from tests.sim.machine import Machine
from tests.sim.quiet import quiet
from tests.sim.world import World

KEY = b"x\x00strict-1"
RETRY = "outbox.retry.1s"
LETTERS = "outbox.dead-letters"
LETTER_S = 1.2
"""By then a dead letter is appended: the first of an activity may wait for its turn."""


def play(trace):
    with quiet():
        run_virtual(trace())


def world(**answers: str) -> World:
    made = World(1, "AB")
    made.answers = {"strict-1": "200", "idem-1": "200"} | {
        name.replace("_", "-"): answer for name, answer in answers.items()
    }
    made.lasts_s = 0.05
    return made


async def lead(w: World, who: str, *, told: bool = True) -> None:
    w.move(who, told=told)
    await until_led(w, who)


async def until_led(w: World, who: str) -> None:
    await w.until(lambda: w.leads(who))


async def until_phase(w: World, phase: Phase, key: bytes = KEY) -> Row:
    await w.until(lambda: (row := w.oracle.row(key)) is not None and row.phase is phase)
    row = w.oracle.row(key)
    assert row is not None
    return row


async def until_acknowledged(w: World, topic: str, offset: int) -> None:
    await w.until(lambda: w.broker.committed.get(topic, 0) >= offset)


async def dead(w: World, who: str = "A") -> None:
    """One activity, refused by its target and told to everybody."""
    await lead(w, who)
    w.produce("x", "strict-1")
    await until_phase(w, Phase.DEAD)
    await until_acknowledged(w, "outbox", 1)


async def stray_owner(w: World) -> Machine:
    """B's OWNER is on its way, and held, when A comes to lead; give B."""
    b = w.machines["B"]
    b.appender.hold("ledger")
    w.move("B")
    await asyncio.sleep(0.5)
    await lead(w, "A", told=False)
    return b


async def letter_on_its_way(w: World) -> None:
    """A gave x up, and its dead letter is held."""
    w.machines["A"].appender.hold(LETTERS)
    await lead(w, "A")
    w.produce("x", "strict-1")
    await until_phase(w, Phase.DEAD)
    await asyncio.sleep(LETTER_S)


async def redriven_over_a_late_letter(w: World) -> None:
    """As `letter_on_its_way`; then B leads, writes the letter, and its redrive resolves it."""
    await letter_on_its_way(w)
    await lead(w, "B", told=False)
    w.tell("A")
    await until_acknowledged(w, "outbox", 1)
    w.redrive(KEY)
    await until_phase(w, Phase.QUEUED)
    await until_acknowledged(w, "outbox.commands", 1)
