"""Each trace of ledger.md's table, played over the real engine, and shown to fail without its guard.

A and B are workers; the group's word that a worker lost the partition reaches it when the trace says so,
as does what it appended.
"""

from __future__ import annotations

import asyncio

import pytest

from streams.engine.claim import Claim
from streams.engine.debts import Debts
from streams.engine.delivery import Deliverer, _Step
from streams.engine.ledger_log import KafkaLedger
from streams.engine.letters import Letters
from streams.engine.partition import Partition
from streams.model.ledger import Kind, Phase, Row
from streams.model.values import replace
from streams.wire.codec import encode_row
from tests.sim.memory import State
from tests.sim.stage import (
    KEY,
    LETTER_S,
    LETTERS,
    RETRY,
    dead,
    lead,
    letter_on_its_way,
    play,
    redriven_over_a_late_letter,
    stray_owner,
    until_acknowledged,
    until_led,
    until_phase,
    world,
)
from tests.sim.world import World

# ── The table ──


async def read_back() -> None:
    """Without waiting for the fold: two calls of one attempt."""
    w = world()
    a = w.machines["A"]
    await lead(w, "A")
    a.flow.hold("outbox")
    a.tail.hold("ledger")
    await lead(w, "B", told=False)
    w.produce("x", "strict-1")
    a.flow.release("outbox")
    await until_phase(w, Phase.SENT)
    await asyncio.sleep(1)
    a.tail.release("ledger")
    await w.come_to_rest()


def claim_without_fold(monkeypatch):
    async def claim(self, key, row):
        if not self.leads:
            return None
        self._ledger.append(Kind.CLAIM, key, encode_row(row), self._epoch, row.token)
        return Claim(key, row, self._epoch, self._time.monotonic())

    monkeypatch.setattr(Partition, "claim", claim)


async def own_again() -> None:
    """Rule 2: B's delayed OWNER lands after A's; all of A's claims would be void for ever."""
    w = world()
    b = await stray_owner(w)
    w.tell("B")
    b.appender.release("ledger")
    await asyncio.sleep(0.1)
    w.produce("x", "strict-1")
    await w.come_to_rest()


def never_own_again(monkeypatch):
    async def nothing(self, assignment, token):
        return

    monkeypatch.setattr(Partition, "_own_again", nothing)


async def late_report() -> None:
    """Rule 4: a call that outlives a rebalance still counts, through the new owner."""
    w = world()
    w.lasts_s = 0.9
    await lead(w, "A")
    w.produce("x", "strict-1")
    await w.until(lambda: w.script.calls)
    await lead(w, "B", told=False)
    await until_phase(w, Phase.SENT)
    await w.come_to_rest()


def no_late_report(monkeypatch):
    async def nothing(self, report):
        return

    monkeypatch.setattr(KafkaLedger, "report_late", nothing)


async def adopt() -> None:
    """Rule 5: A claims; B owns; the lease ends; A's `sent` lands; B must not claim over it."""
    w = world()
    a = w.machines["A"]
    await lead(w, "A")
    w.produce("x", "strict-1")
    await w.until(lambda: w.script.calls)
    a.appender.hold("ledger")
    a.appender.hold("outbox.commands")
    await lead(w, "B", told=False)
    await asyncio.sleep(6)
    a.appender.thaw()
    row = await until_phase(w, Phase.DEAD)
    assert row.reconciliation_required
    await w.come_to_rest()


def claim_over_a_claim(monkeypatch):
    async def adopt(self, trigger, row):
        late = await trigger.partition.foreign.outcome(trigger.key, row)
        if isinstance(late, bool):
            return _Step.AGAIN
        return await self._attempt(trigger, replace(row, phase=Phase.WAITING))

    monkeypatch.setattr(Deliverer, "_adopt", adopt)
    monkeypatch.setattr(Deliverer, "_still_stands", staticmethod(lambda trigger, row: True))


async def repair_under_lock() -> None:
    """Rule 6: void@2, the owner's claim @3, its older repair lands @4 and erases the claim."""
    w = world()
    a, b = w.machines["A"], w.machines["B"]
    w.lasts_s = 0.9
    await lead(w, "A")
    a.flow.hold("outbox")
    a.tail.hold("ledger")
    await lead(w, "B", told=False)
    a.appender.hold("ledger")
    b.flow.hold("outbox")
    w.produce("x", "strict-1")
    await asyncio.sleep(0.2)
    b.appender.hold("ledger")
    a.flow.release("outbox")
    b.flow.release("outbox")
    await asyncio.sleep(0.3)  # both have appended a claim
    a.appender.release("ledger")
    await w.until(lambda: KEY in b.store.owed)
    await asyncio.sleep(0.1)
    b.appender.release("ledger")
    await w.until(lambda: w.script.calls)
    await asyncio.sleep(0.1)
    w.crash("B", landing=0.0)
    w.crash("A", landing=0.0)
    w.start("B")
    await w.come_to_rest()


def repair_without_lock(monkeypatch):
    async def repair(self, key):
        stored = self._rows.store.get(key)
        await self._write(key, None if stored is None else stored.value)

    monkeypatch.setattr(Debts, "_repair", repair)


async def debts_are_kept() -> None:
    """Rule 6: void folded, crash, store kept: whoever starts behind it must still repair it."""
    w = world()
    a, b = w.machines["A"], w.machines["B"]
    w.lasts_s = 0.5
    await lead(w, "A")
    w.produce("x", "strict-1")
    await w.until(lambda: w.script.calls)
    a.appender.hold("outbox.commands")
    a.tail.hold("ledger")
    await lead(w, "B", told=False)
    b.flow.hold("outbox")
    b.appender.hold("ledger")
    await w.until(lambda: KEY in b.store.owed)
    await asyncio.sleep(0.1)
    w.crash("A", landing=0.0)
    w.crash("B", landing=0.0, store="kept")
    w.start("B")
    await until_led(w, "B")
    await w.until(lambda: not w.oracle.reader.owed, limit_s=2.0)
    w.compact()
    await w.come_to_rest()


def debts_forgotten(monkeypatch):
    def copy(self):
        return State(dict(self.rows), {}, self.epoch, self.next, self.incarnation)

    monkeypatch.setattr(State, "copy", copy)


async def fresh_view() -> None:
    """Rule 7: who knew the row before B did may not drop B's retry as stale.

    The generation of a commit would hide it (rule 9), so the broker takes any here.
    """
    w = world(strict_1="400")
    a, b = w.machines["A"], w.machines["B"]
    w.broker.accepts_any_generation = True
    await dead(w)
    a.tail.hold("ledger")
    for topic in ("outbox", "outbox.commands", RETRY):
        a.flow.hold(topic)
    await lead(w, "B", told=False)
    b.flow.hold(RETRY)
    w.answers["strict-1"] = "503"
    w.redrive(KEY)
    await until_phase(w, Phase.QUEUED)
    w.replay(KEY)
    await until_phase(w, Phase.WAITING)
    await until_acknowledged(w, "outbox", 2)
    a.flow.release(RETRY)
    await asyncio.sleep(3)
    w.check()
    w.broker.accepts_any_generation = False
    a.tail.release("ledger")
    b.flow.release(RETRY)
    await w.come_to_rest()


def no_barrier(monkeypatch):
    async def barrier(self):
        return True

    monkeypatch.setattr(Partition, "barrier", barrier)


async def stale_triggers() -> None:
    """Rule 8: retry#1 -> claim 2 -> dead -> crash before the dead letter; retry#1 comes again."""
    w = world(strict_1="503")
    w.oracle.max_attempts, w.targets.policy = 2, replace(w.targets.policy, max_attempts=2)
    a = w.machines["A"]
    await lead(w, "A")
    w.produce("x", "strict-1")
    await until_phase(w, Phase.WAITING)
    a.appender.hold(LETTERS)
    await until_phase(w, Phase.DEAD)
    await asyncio.sleep(LETTER_S)
    w.crash("A", landing=0.0)
    w.start("A")
    await w.come_to_rest()


def drop_stale_triggers(monkeypatch):
    real = Deliverer._step

    async def step(self, trigger):
        row = trigger.partition.row(trigger.key)
        stale = row is not None and row.phase is not Phase.CLAIMED and not trigger.wants(row)
        done = await real(self, trigger)
        return _Step.ASIDE if stale and done is _Step.SETTLED else done

    monkeypatch.setattr(Deliverer, "_step", step)


async def acknowledgements() -> None:
    """Rule 9: A's slow follow-up acknowledges a record that B has claimed from since."""
    w = world(strict_1="400")
    a, b = w.machines["A"], w.machines["B"]
    await letter_on_its_way(w)
    b.flow.hold("outbox")
    await lead(w, "B", told=False)
    w.redrive(KEY)
    await until_phase(w, Phase.QUEUED)
    w.oracle.replayed.add((KEY, 2))  # the record itself, which B has yet to see, is the replay
    w.lasts_s = 0.9
    b.flow.release("outbox")
    await until_phase(w, Phase.CLAIMED)
    a.appender.release(LETTERS)
    await asyncio.sleep(0.8)
    w.check()
    w.crash("B", landing=0.0)
    w.start("B")
    await w.come_to_rest()


def any_generation(monkeypatch):
    real = World.__init__

    def init(self, *args, **more):
        real(self, *args, **more)
        self.broker.accepts_any_generation = True

    monkeypatch.setattr(World, "__init__", init)


async def dead_letters_read_back() -> None:
    """Rule 10: A's dead letter is delayed; B dead-letters, redrives, writes the tombstone."""
    w = world(strict_1="400")
    a = w.machines["A"]
    await redriven_over_a_late_letter(w)
    a.appender.release(LETTERS)
    await asyncio.sleep(0.5)
    w.answers["strict-1"] = "200"
    w.replay(KEY)
    await w.come_to_rest()


def never_read_back(monkeypatch):
    monkeypatch.setattr(Letters, "read_back", lambda self, partition, records: None)


async def redrive_by_letter() -> None:
    """Rule 11: a second copy of the command for letter 1 must not open letter 2."""
    w = world(strict_1="400")
    await dead(w)
    letter_id = w.redrive(KEY)
    await until_phase(w, Phase.QUEUED)
    w.replay(KEY)
    await until_phase(w, Phase.DEAD)
    w.command(KEY, letter_id)
    await asyncio.sleep(2)
    row = w.oracle.row(KEY)
    assert (Phase.DEAD, 2) == (row.phase, row.budget)
    await w.come_to_rest()


def letters_without_budget(monkeypatch):
    monkeypatch.setattr(Row, "letter_id", property(lambda self: self.delivery_id))


TRACES = [
    pytest.param(read_back, claim_without_fold, id="read-back"),
    pytest.param(own_again, never_own_again, id="2"),
    pytest.param(late_report, no_late_report, id="4-late-report"),
    pytest.param(adopt, claim_over_a_claim, id="5"),
    pytest.param(repair_under_lock, repair_without_lock, id="6-lock"),
    pytest.param(debts_are_kept, debts_forgotten, id="6-kept"),
    pytest.param(fresh_view, no_barrier, id="7"),
    pytest.param(stale_triggers, drop_stale_triggers, id="8"),
    pytest.param(acknowledgements, any_generation, id="9"),
    pytest.param(dead_letters_read_back, never_read_back, id="10"),
    pytest.param(redrive_by_letter, letters_without_budget, id="11"),
]


@pytest.mark.parametrize(("trace", "without"), TRACES)
def test_a_trace_of_the_protocol_breaks_nothing(trace, without):
    """ledger.md, "The traces": D-001, D-004, O-001, C-01, C-07, C-15, each as its rule says."""
    play(trace)


@pytest.mark.parametrize(("trace", "without"), TRACES)
def test_a_trace_breaks_a_promise_without_its_guard(trace, without, monkeypatch):
    """A trace that nothing can fail would prove nothing: each rule is taken out, and is missed."""
    without(monkeypatch)

    with pytest.raises(AssertionError):
        play(trace)
