"""Dead letters and redrive: what is kept of a failure, and that nothing grows or comes back by itself."""

from __future__ import annotations

import asyncio

from streams.model.faults import fault_of
from streams.model.ledger import FailurePhase, Phase
from streams.model.observation import Observation
from streams.model.values import replace
from streams.wire.codec import decode_dead_letter
from tests.field.desk import Scripted, activity_for, desk_of, target_of
from tests.field.worlds import dead_letters, simulate

KEY = b"x1\x00strict-1"


async def test_e05_a_dead_letter_says_why_it_was_given_up_and_what_it_last_saw(monkeypatch):
    """
    E05: `code` is why, `cause` the last attempt's own code; the first cause is in its attempt's line.
    """
    caller = Scripted(
        crm=[Observation(fault=fault_of("tls_reset")), Observation(status=503, retry_after=("1",))]
    )
    brief = replace(target_of().policy, max_age_ms=12_000, first_delay_ms=8_000)
    async with desk_of(monkeypatch, caller, crm=target_of(policy=brief)) as desk:
        await desk.deliver(activity_for())
        letter = desk.letter(activity_for())
        codes = [line["code"] for line in desk.lines.of("delivery.attempted")]

    assert letter is not None
    [only] = letter.deliveries
    assert ("expired", "http_503", FailurePhase.CLAIM, 2, False) == (
        only.code,
        only.cause,
        only.failure_phase,
        only.attempts,
        only.reconciliation_required,
    )
    assert ["tls_reset", "http_503"] == codes
    assert "HTTP 503 after 2 attempts: expired" == only.summary


def test_e03_a_tombstone_is_written_only_when_the_last_dead_letter_is_resolved():
    """
    E03: every other value is a whole dead letter; never `null` in text, never empty bytes.
    """

    async def scenario(world):
        world.answers["strict-1"] = "400"
        world.produce("x1", "strict-1")
        await world.until(lambda: dead_letters(world))
        world.answers["strict-1"] = "200"
        world.redrive(KEY)
        await world.until(lambda: world.oracle.row(KEY).phase is Phase.QUEUED)
        world.replay(KEY)
        await world.come_to_rest()

    world = simulate(scenario)

    values = [record.value for record in dead_letters(world)]
    assert values[-1] is None
    assert ["http_400"] == [decode_dead_letter(value).deliveries[0].code for value in values[:1]]
    assert all(decode_dead_letter(value) for value in values if value is not None)


async def redrive_until_dead(world, times: int) -> None:
    """Redrive and replay what always fails."""
    world.answers["strict-1"] = "400"
    world.produce("x1", "strict-1")
    for budget in range(1, times + 2):
        await world.until(lambda budget=budget: is_dead_in(world, budget))
        if budget <= times:
            world.redrive(KEY)
            await world.until(lambda: world.oracle.row(KEY).phase is Phase.QUEUED)
            world.replay(KEY)


def is_dead_in(world, budget: int) -> bool:
    row = world.oracle.row(KEY)
    return row is not None and (row.phase, row.budget) == (Phase.DEAD, budget)


def test_e04_twenty_redrives_do_not_make_a_dead_letter_grow():
    """
    E04: it is derived from the rows anew each time, so it carries no history that could grow.
    """

    async def scenario(world):
        await redrive_until_dead(world, 20)
        await world.come_to_rest()

    letters = [record for record in dead_letters(simulate(scenario)) if record.value is not None]

    first, last = letters[0], letters[-1]
    assert 21 <= len({record.value for record in letters})
    assert len(last.value) - len(first.value) <= 4  # digits of the budget and generation
    assert len(first.headers) == len(last.headers) == 1


def test_e06_a_redrive_reopens_one_dead_letter_once():
    """
    E06, rule 11: a script that sends one command ten times opens one budget. The generation outlives
    each budget, nothing is redriven by itself, and each redrive is one call of what fails for good.
    """

    async def scenario(world):
        await redrive_until_dead(world, 3)
        letter_id = world.oracle.row(KEY).letter_id
        world.command(KEY, letter_id, copies=10)
        await world.until(lambda: world.oracle.row(KEY).phase is Phase.QUEUED)
        world.replay(KEY)
        await world.until(lambda: is_dead_in(world, 5))
        world.command(KEY, letter_id, copies=10)
        await asyncio.sleep(60)
        await world.come_to_rest()

    world = simulate(scenario)

    row = world.oracle.row(KEY)
    assert (Phase.DEAD, 5, 5, 1) == (row.phase, row.budget, row.generation, row.attempts)
    assert [(n, 1) for n in range(1, 6)] == [
        (call.row.budget, call.row.attempts) for call in world.script.calls
    ]


def test_e12_what_has_no_dead_letter_yet_is_not_acknowledged():
    """
    E12: the topic takes nothing for two minutes; the source offset stays, the partition goes on, and
    there is one dead letter afterwards.
    """

    async def scenario(world):
        appender = world.machines["A"].appender
        appender.hold("outbox.dead-letters")
        world.answers |= {"strict-1": "400", "strict-2": "200"}
        bad = world.produce("x1", "strict-1")
        world.produce("x2", "strict-2")
        await asyncio.sleep(120)
        kept = world.broker.committed.get("outbox", 0)
        sent = world.oracle.row(b"x2\x00strict-2")
        appender.release("outbox.dead-letters")
        await world.come_to_rest()
        assert (bad.offset, Phase.SENT) == (kept, sent.phase)

    world = simulate(scenario)

    assert 1 == len(dead_letters(world))
    assert 1 == len([call for call in world.script.calls if call.answer == "400"])
