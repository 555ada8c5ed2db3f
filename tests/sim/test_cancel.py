"""A cancel over the real engine: it takes effect once, after what is in flight, whoever leads meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from streams.agents import commands
from streams.model.ledger import Phase, Row
from streams.wire.codec import decode_receipt
from streams.wire.commands import Cancel, encode_command
from tests.sim.stage import KEY, dead, lead, play, until_acknowledged, until_phase, world
from tests.sim.world import World

COMMANDS = "outbox.commands"


def cancel(w: World, *, budget: int = 1, copies: int = 1) -> None:
    row = w.oracle.row(KEY)
    assert row is not None
    command = Cancel(letter_id=f"{row.delivery_id}.{budget}", audit_id="audit")
    for _ in range(copies):
        w.broker.land(COMMANDS, b"x", encode_command(command))


def told(w: World) -> list[str]:
    """The codes of its receipts, in order."""
    records = w.broker.topics["outbox.receipts"].records
    return [decode_receipt(record.value or b"").code for record in records]


async def cancelled(w: World) -> Row:
    row = await until_phase(w, Phase.SKIPPED)
    assert (row.code, row.due_ms) == ("cancelled", 0)
    return row


async def a_retry_that_waits() -> None:
    w = world(strict_1="503")
    await lead(w, "A")
    w.produce("x", "strict-1")
    await until_phase(w, Phase.WAITING)
    calls = len(w.script.calls)
    cancel(w, copies=3)
    await cancelled(w)
    await w.come_to_rest()

    assert calls == len(w.script.calls)
    assert "cancelled" in told(w)


def test_a_waiting_delivery_is_cancelled_once_and_never_called_again():
    """Issue 7: three copies, one change; its retry record finds nothing to do, its producer is told."""
    play(a_retry_that_waits)


async def a_call_in_flight() -> None:
    w = world(strict_1="503")
    w.lasts_s = 0.9
    await lead(w, "A")
    w.produce("x", "strict-1")
    await w.until(lambda: w.script.calls)
    cancel(w)
    await asyncio.sleep(0.5)
    row = w.oracle.row(KEY)
    assert row is not None
    assert row.phase is Phase.CLAIMED
    skipped = await cancelled(w)
    await w.come_to_rest()

    assert (1, 503) == (skipped.attempts, skipped.status)
    assert 1 == len(w.script.calls)


def test_a_call_in_flight_is_settled_before_its_delivery_is_cancelled():
    """Issue 7, rule 5: never a claim taken back; what the call saw stays in the row."""
    play(a_call_in_flight)


async def a_call_that_succeeds() -> None:
    w = world()
    w.lasts_s = 0.9
    await lead(w, "A")
    w.produce("x", "strict-1")
    await w.until(lambda: w.script.calls)
    cancel(w)
    await until_phase(w, Phase.SENT)
    await until_acknowledged(w, COMMANDS, 1)
    await w.come_to_rest()
    row = w.oracle.row(KEY)

    assert row is not None
    assert row.phase is Phase.SENT


def test_what_was_sent_meanwhile_stays_sent():
    """D-008: exactly one end."""
    play(a_call_that_succeeds)


async def a_foreign_claim() -> None:
    w = world(strict_1="503")
    w.lasts_s = 0.9
    await lead(w, "A")
    w.produce("x", "strict-1")
    await w.until(lambda: w.script.calls)
    cancel(w)
    w.crash("A")
    await lead(w, "B", told=False)
    await until_phase(w, Phase.DEAD)  # of unknown effect, and its target is not idempotent (C-07)
    await until_acknowledged(w, COMMANDS, 1)
    await w.come_to_rest()

    assert 1 == len(w.script.calls)
    assert "cancelled" not in told(w)


def test_a_claim_of_a_worker_that_died_is_settled_before_its_delivery_is_looked_at():
    """Rule 5: the lost call is ambiguous, which a cancel must not hide."""
    play(a_foreign_claim)


async def a_redriven_delivery() -> None:
    w = world(strict_1="400")
    await dead(w)
    w.redrive(KEY)
    await until_phase(w, Phase.QUEUED)
    cancel(w, budget=1)  # of the budget before: the redrive is later
    await until_acknowledged(w, COMMANDS, 2)
    row = w.oracle.row(KEY)
    assert row is not None
    assert row.phase is Phase.QUEUED
    cancel(w, budget=2)
    await cancelled(w)
    w.replay(KEY)
    await w.come_to_rest()

    assert 1 == len(w.script.calls)


def test_a_cancel_of_an_earlier_budget_does_nothing():
    """Rule 11; and what was cancelled is not sent by a replay."""
    play(a_redriven_delivery)


async def a_crash_before_the_receipt() -> None:
    w = world(strict_1="400")
    await dead(w)
    w.redrive(KEY)
    await until_phase(w, Phase.QUEUED)
    await until_acknowledged(w, COMMANDS, 1)
    w.machines["A"].appender.hold("outbox.receipts")
    cancel(w, budget=2)
    await cancelled(w)
    w.crash("A")
    await lead(w, "B", told=False)
    await until_acknowledged(w, COMMANDS, 2)

    assert "cancelled" in told(w)
    w.replay(KEY)
    await w.come_to_rest()


def test_a_crash_between_cancel_and_receipt_loses_no_receipt():
    """Rule 8, for a command: it comes again and writes what is owed. (A waiting one has its retry, too.)"""
    play(a_crash_before_the_receipt)


def test_the_crash_is_noticed_where_a_repeated_cancel_tells_nobody(monkeypatch):
    """Without that guard the receipt would be lost."""
    monkeypatch.setattr(commands, "is_cancelled", lambda *_: False)

    with pytest.raises(AssertionError):
        play(a_crash_before_the_receipt)
