"""The end of life of an activity, among crashes: what was forgotten is not sent again, nor kept by halves."""

from __future__ import annotations

import asyncio

import pytest

from streams.engine.delivery import Deliverer
from streams.engine.partition import Partition
from streams.model.ledger import SEPARATOR, Kind, Phase
from tests.sim.bounds import Bounds
from tests.sim.stage import KEY, RETRY, lead, play, until_acknowledged, until_led, until_phase
from tests.sim.world import FailedError, World

WINDOW_S = 3.0
PARKED = "outbox.retry.10m"


def short_lived() -> World:
    """Two machines that forget after three seconds, and targets that take everything at once."""
    made = World(1, "AB", bounds=Bounds(window_ms=int(WINDOW_S * 1000)))
    made.answers = {"strict-1": "200", "idem-1": "200"}
    made.lasts_s = 0.05
    return made


async def sent_and_not_acknowledged(w: World) -> None:
    """x is sent, its worker dies before it commits that, and comes back when x is old."""
    await lead(w, "A")
    w.produce("x", "strict-1")
    await until_phase(w, Phase.SENT)
    w.crash("A")
    assert 0 == w.broker.committed.get("outbox", 0)
    await asyncio.sleep(WINDOW_S + 1)
    w.start("A")
    w.machines["A"].flow.hold("outbox")
    await until_led(w, "A")


async def redelivered_while_it_is_buried() -> None:
    w = short_lived()
    a = w.machines["A"]
    await sent_and_not_acknowledged(w)
    a.tail.hold("ledger")
    a.sweep()
    a.flow.release("outbox")
    await asyncio.sleep(
        0.5
    )  # the record is a trigger: to A's knowledge of an activity that it knows
    a.tail.release("ledger")
    await w.come_to_rest()


async def crashed_in_a_burial() -> None:
    w = short_lived()
    a = w.machines["A"]
    await sent_and_not_acknowledged(w)
    a.appender.hold("ledger")
    a.sweep()
    await asyncio.sleep(0.1)
    w.crash("A", landing=0.5)
    await asyncio.sleep(6)  # what lands, lands late
    w.start("A")
    await w.come_to_rest()


async def put_aside_twice() -> None:
    """Two copies of a retry without a claim; the second comes up when the first is forgotten."""
    w = short_lived()
    a = w.machines["A"]
    await lead(w, "A")
    w.disable("strict-1")
    w.produce("x", "strict-1")
    await w.until(lambda: w.broker.topics[PARKED].end)
    parked = w.broker.topics[PARKED].records[0]
    w.enable("strict-1")
    await until_phase(w, Phase.SENT)
    await until_acknowledged(w, PARKED, 1)
    await asyncio.sleep(WINDOW_S + 1)
    a.sweep()
    await w.until(lambda: KEY in w.oracle.forgotten)
    w.broker.land(RETRY, parked.key, parked.value, parked.headers)
    await w.come_to_rest()


def claims_whatever_is_known(monkeypatch):
    any_ = staticmethod(lambda trigger, row: trigger.wants(row))
    monkeypatch.setattr(Deliverer, "_may_claim", any_)


def buries_the_activity_last(monkeypatch):
    def bury(self, activity_key):
        keys = [key for key, _ in self.store.under(activity_key + SEPARATOR)]
        for key in (*keys, activity_key):
            self._ledger.append(Kind.REPORT, key, None, self._epoch, self._time.token())
        return True

    monkeypatch.setattr(Partition, "bury", bury)


TRACES = [
    pytest.param(redelivered_while_it_is_buried, claims_whatever_is_known, id="redelivered"),
    pytest.param(put_aside_twice, claims_whatever_is_known, id="put aside twice"),
    pytest.param(crashed_in_a_burial, buries_the_activity_last, id="crashed in a burial"),
]


@pytest.mark.parametrize(("trace", "without"), TRACES)
def test_what_was_forgotten_is_not_sent_again(trace, without):
    """D-006, D-010: a trigger may be older than the window where nobody led for so long."""
    play(trace)


@pytest.mark.parametrize(("trace", "without"), TRACES)
def test_what_was_forgotten_would_be_sent_again_without_its_guard(trace, without, monkeypatch):
    """Each guard is taken out, and is missed."""
    without(monkeypatch)

    with pytest.raises(FailedError, match="settled and forgotten"):
        play(trace)


def test_what_is_produced_anew_after_the_window_is_a_new_activity():
    """D-006: an id is recognised for the window; who uses it again later means another thing by it."""

    async def trace() -> None:
        w = short_lived()
        a = w.machines["A"]
        await lead(w, "A")
        w.produce("x", "strict-1")
        await until_acknowledged(w, "outbox", 1)
        await asyncio.sleep(WINDOW_S + 1)
        a.sweep()
        await w.until(lambda: KEY in w.oracle.forgotten)
        w.produce("x", "strict-1", content="another thing")
        await w.until(lambda: len(w.script.calls) == 2)
        await w.come_to_rest()

    play(trace)


def test_what_waits_for_its_letter_to_be_resolved_is_not_forgotten():
    """C-16: a dead letter that nobody resolved stays, and with it all that its activity owed."""

    async def trace() -> None:
        w = short_lived()
        w.answers["strict-1"] = "400"
        a = w.machines["A"]
        await lead(w, "A")
        w.produce("x", "strict-1", "idem-1")
        await until_phase(w, Phase.DEAD)
        await until_acknowledged(w, "outbox", 1)
        for _ in range(20):
            await asyncio.sleep(WINDOW_S)
            a.sweep()
        assert {} == w.oracle.forgotten
        await w.come_to_rest()

    play(trace)
