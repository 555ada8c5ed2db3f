"""Traces that the simulation found in the engine, each as a test of what cured it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from streams.agents import outbox as outbox_module
from streams.engine.delivery import Deliverer
from streams.model.ledger import Phase
from streams.wire.records import retry_headers
from tests.sim.stage import (
    KEY,
    LETTER_S,
    LETTERS,
    dead,
    lead,
    play,
    redriven_over_a_late_letter,
    stray_owner,
    until_acknowledged,
    until_led,
    until_phase,
    world,
)
from tests.sim.world import FailedError

# ── Traces that this simulation found ──


def test_a_repair_does_not_erase_an_activitys_row_that_is_on_its_way():
    """
    Rule 6, found by seed 1316: ADMIT void@2 of a stray owner, the owner's own ADMIT @3, its repair @4: a
    tombstone. An activity without a row has no dead letter.
    """

    async def trace() -> None:
        w = world(strict_1="400")
        a, b = w.machines["A"], w.machines["B"]
        await lead(w, "A")
        a.flow.hold("outbox")
        a.tail.hold("ledger")
        await lead(w, "B", told=False)
        a.appender.hold("ledger")
        b.flow.hold("outbox")
        w.produce("x", "strict-1")
        a.flow.release("outbox")
        await asyncio.sleep(0.3)
        b.appender.hold("ledger")
        b.flow.release("outbox")
        await asyncio.sleep(0.3)
        a.appender.release("ledger")
        await w.until(lambda: b"x" in b.store.owed)
        await asyncio.sleep(0.1)
        b.appender.release("ledger")
        w.tell("A")
        await w.come_to_rest()

    play(trace)


def test_a_claim_is_not_made_on_a_row_that_a_stray_owner_has_moved():
    """
    Rule 3, found by seed 60: B, a stray owner, sends what waits in A's line for a slot; A leads again and
    must look at the row anew, or it calls what was sent.
    """
    play(stray_owner_while_in_line)


def test_a_claim_on_an_old_row_would_send_twice(monkeypatch):
    """The same without the second look."""
    monkeypatch.setattr(Deliverer, "_still_stands", staticmethod(lambda trigger, row: True))

    with pytest.raises(FailedError):
        play(stray_owner_while_in_line)


async def stray_owner_while_in_line() -> None:
    w = world()
    b = await stray_owner(w)
    w.lasts_s = 0.9
    w.produce("y", "strict-1")
    await w.until(lambda: w.script.calls)
    w.lasts_s = 0.01
    w.produce("x", "strict-1")
    await asyncio.sleep(0.1)
    b.appender.release("ledger")
    await until_phase(w, Phase.SENT)
    w.tell("B")
    assert {"A", "B"} == {call.machine for call in w.script.calls}
    await asyncio.sleep(2)
    await w.come_to_rest()


def test_a_replay_that_comes_again_after_a_crash_is_no_duplicate():
    """
    Rule 8, found by seed 32: the replay's delivery is dead again and its dead letter not yet written when
    the worker dies. D-066: the replay is the redriven delivery's only trigger.
    """
    play(replay_then_crash)


def test_a_replay_taken_for_a_duplicate_would_lose_its_dead_letter(monkeypatch):
    """The same, if only what waits for a replay were taken for one."""

    def waits_for_its_replay(partition, key):
        row = partition.row(key)
        return row is not None and row.phase is Phase.QUEUED

    monkeypatch.setattr(outbox_module, "_was_redriven", waits_for_its_replay)

    with pytest.raises(FailedError):
        play(replay_then_crash)


async def replay_then_crash() -> None:
    w = world(strict_1="400")
    a = w.machines["A"]
    await dead(w)
    w.redrive(KEY)
    await until_phase(w, Phase.QUEUED)
    await until_acknowledged(w, "outbox.commands", 1)
    a.appender.hold(LETTERS)
    w.replay(KEY)
    await until_phase(w, Phase.DEAD)
    await asyncio.sleep(LETTER_S)
    w.crash("A", landing=0.0)
    w.start("A")
    await w.come_to_rest()


def test_an_old_retry_does_not_send_what_waits_for_its_replay():
    """
    Rule 8, D-066: parked before its first claim, turned away, redriven; then the owner dies, and the retry
    comes again. Fence and count are what they were, the budget is not.
    """
    play(old_retry_after_a_redrive)


def test_without_its_budget_an_old_retry_would_send(monkeypatch):
    """The same, the retry being of a version that did not say it."""
    told = retry_headers

    def untold(due_ms, items, extra=()):
        return told(due_ms, [replace(item, budget=None) for item in items], extra)

    monkeypatch.setattr("streams.engine.retry_writer.retry_headers", untold)

    with pytest.raises(AssertionError, match="sent before its replay"):
        play(old_retry_after_a_redrive)


async def old_retry_after_a_redrive() -> None:
    w = world()
    await lead(w, "A")
    w.disable("strict-1")
    w.disable("idem-1")
    w.produce("x", "strict-1", "idem-1")
    await w.until(lambda: w.broker.topics["outbox.retry.10m"].end)
    w.targets.unknown.add("strict-1")
    w.enable("strict-1")
    w.enable("idem-1")
    w.lasts_s = 10  # the other delivery of the record: until it is over, nothing is acknowledged
    await until_phase(w, Phase.DEAD)
    w.targets.unknown.clear()
    await asyncio.sleep(LETTER_S)
    w.redrive(KEY)
    await until_phase(w, Phase.QUEUED)
    await until_acknowledged(w, "outbox.commands", 1)
    w.crash("A", landing=0.0)
    w.lasts_s = 0.05
    await lead(w, "B")
    await asyncio.sleep(2)
    assert KEY not in {call.key for call in w.script.calls}, "sent before its replay"
    w.replay(KEY)
    await until_phase(w, Phase.SENT)
    w.start("A")
    await w.come_to_rest()


def test_a_replay_that_outruns_the_owners_tail_is_no_duplicate():
    """
    Rule 7, found by seed 123: the caller saw the redrive in the ledger before the owner had folded it.
    """

    async def trace() -> None:
        w = world(strict_1="400")
        a = w.machines["A"]
        await dead(w)
        w.answers["strict-1"] = "200"
        a.tail.hold("ledger")
        w.redrive(KEY)
        await until_phase(w, Phase.QUEUED)
        w.replay(KEY)
        await asyncio.sleep(0.5)
        a.tail.release("ledger")
        await w.come_to_rest()
        assert Phase.SENT is w.oracle.row(KEY).phase

    play(trace)


def test_a_dead_letter_waits_until_a_stray_owner_is_overruled():
    """
    Rules 2 and 10, found by seed 16: what is acknowledged while nobody of us leads would have no letter.
    """

    async def trace() -> None:
        w = world(strict_1="400")
        b = await stray_owner(w)
        w.tell("B")
        w.produce("y", "strict-1")  # makes the letter of x wait for its turn
        await until_phase(w, Phase.DEAD, b"y\x00strict-1")
        w.produce("y", "strict-1", "idem-1")
        w.answers["idem-1"] = "400"
        await until_phase(w, Phase.DEAD, b"y\x00idem-1")
        await asyncio.sleep(0.02)
        b.appender.release("ledger")
        await w.come_to_rest()

    play(trace)


def test_a_correction_of_a_dead_letter_outlives_a_crash():
    """
    Rule 10: B has read A's late dead letter and dies before its own correction is with the broker; its
    store, which says how far the dead letters were read, is kept.
    """

    async def trace() -> None:
        w = world(strict_1="400")
        a, b = w.machines["A"], w.machines["B"]
        await redriven_over_a_late_letter(w)
        b.appender.hold(LETTERS)
        a.appender.release(LETTERS)
        await asyncio.sleep(1.5)
        w.crash("B", landing=0.0)
        w.start("B")
        w.answers["strict-1"] = "200"
        w.replay(KEY)
        await w.come_to_rest()

    play(trace)


def test_a_worker_that_comes_back_does_not_trust_its_own_old_dead_letter():
    """Rule 10: what A reads back is what A wrote last, but B has led since and resolved it."""

    async def trace() -> None:
        w = world(strict_1="400")
        a, b = w.machines["A"], w.machines["B"]
        await redriven_over_a_late_letter(w)
        b.letters_tail.hold(LETTERS)
        a.appender.release(LETTERS)
        await asyncio.sleep(0.5)
        w.crash("B", landing=0.0)
        await lead(w, "A", told=False)
        w.answers["strict-1"] = "200"
        w.replay(KEY)
        await w.come_to_rest()

    play(trace)


def test_an_interrupted_restore_does_not_turn_rows_back():
    """
    Rule 1, found by seed 106: a restore that was slow goes on reading after the partition was lost and
    came back; two readers would fold the same records, one behind the other.
    """

    async def trace() -> None:
        w = world()
        a = w.machines["A"]
        await lead(w, "B")
        for number in range(12):
            w.produce(f"x{number}", "strict-1")
        await w.until(lambda: len(w.script.calls) == 12)
        a.tail._latency = lambda: 1.0
        w.move("A")
        await asyncio.sleep(4.5)  # it has asked for the ends, and waits for its first batch
        a.tail._latency = a.latency
        await lead(w, "B")
        await lead(w, "A")
        seen = 0
        for _ in range(100):
            await asyncio.sleep(0.02)
            assert a.store.next >= seen
            seen = a.store.next
        await w.come_to_rest()

    play(trace)


def test_a_foreign_owner_that_lands_before_ours_starts_no_race():
    """
    Rule 2: only an OWNER over ours is overruled. One that lands before ours is void of meaning; to own
    again for it would, with a broker slower than the pause, go on for ever.
    """

    async def trace() -> None:
        w = world()
        a, b = w.machines["A"], w.machines["B"]
        b.appender.hold("ledger")
        w.move("B")
        await asyncio.sleep(0.5)
        a.appender.hold("ledger")
        w.move("A", told=False)
        w.tell("B")
        await asyncio.sleep(0.5)
        b.appender.release("ledger")
        await asyncio.sleep(1.0)
        a.appender.release("ledger")
        await until_led(w, "A")
        await asyncio.sleep(1.0)
        assert 2 == w.broker.topics["ledger"].end

    play(trace)
