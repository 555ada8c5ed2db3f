"""What goes wrong between Kafka and a Python client, and what our engine makes of it."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any, cast

import pytest

from streams.engine import feeding, restoring, worker
from streams.engine.acks import Acks
from streams.engine.lanes import Lane
from streams.engine.ledger_log import ledger_records
from streams.engine.trigger import Trigger
from streams.engine.work import Runner, Tasks
from streams.model.ledger import Phase
from tests.field.desk import Lines
from tests.field.worlds import calls_of, dead_letters, row_of, simulate
from tests.sim.broker import Broker
from tests.sim.loop import VirtualLoop, run_virtual
from tests.sim.machine import RETRIES, TOPICS, Machine
from tests.sim.memory import Topic, replay
from tests.sim.quiet import quiet
from tests.sim.target import Script, SimTargets


def test_i01_nothing_is_committed_past_work_in_flight_over_a_gap():
    """
    I01, upstream #606: 10 is committed, 11 to 14 do not exist, 16 is done before 15.
    """
    acks = Acks(assignment=1)
    acks.committed = 10
    acks.take(15)
    acks.take(16)
    acks.settle(16)
    assert acks.committable() == 15

    acks.settle(15)

    assert acks.committable() == 17


def test_i05_a_key_that_is_no_text_says_nothing_of_its_record():
    """
    I05, C-14: what counts is the activity ID within; so does its dead letter's own key.
    """

    async def scenario(world):
        world.answers |= {"idem-1": "200", "strict-1": "400"}
        value = world.produce("x1", "idem-1").value
        bad = world.produce("x2", "strict-1").value
        for key in (b"\xff", b"", None):
            world.broker.land("outbox", key, value)
            world.broker.land("outbox", key, bad)
        await world.come_to_rest()

    world = simulate(scenario)

    assert [Phase.SENT, Phase.DEAD] == [
        row_of(world, "x1", "idem-1").phase,
        row_of(world, "x2", "strict-1").phase,
    ]
    assert (1, 1) == (len(calls_of(world, "idem-1")), len(calls_of(world, "strict-1")))
    assert {b"x2"} == {record.key for record in dead_letters(world)}


class Lanes:
    """Nine records of one lane, worked through by a deliverer of the test's."""

    def __init__(self, deliverer: Any) -> None:
        self.faults: list[BaseException] = []
        self.tasks = Tasks(self.faults.append)
        self.runner = Runner(deliverer, self.tasks, 4)
        self.lane = Lane(1, self._work, lambda _room: None)
        topic = Topic("outbox")
        self.lane.put([topic.land(b"k", b"v", (), 0) for _ in range(9)])

    async def _work(self, lane: Lane, record: Any) -> None:
        await self.runner.run(lane, record, [cast("Trigger", record.offset)])

    async def run(self) -> None:
        """Work through them, then drain."""
        running = asyncio.create_task(self.lane.run())
        await asyncio.sleep(0.1)
        running.cancel()
        await self.runner.drain(0.1)
        self.tasks.cancel()


class Failing:
    """A deliverer that fails, or never ends, at the fifth record."""

    def __init__(self, how: str) -> None:
        self._how = how

    async def on_trigger(self, trigger: Any, on_settled: Any) -> bool:
        if trigger == 4:
            if self._how == "raises":
                raise RuntimeError("a bug")
            if self._how == "revoked":
                return False
            await asyncio.Event().wait()
        return True


@pytest.mark.parametrize(("how", "faults"), [("raises", 1), ("revoked", 0), ("cancelled", 0)])
async def test_i03_what_has_no_outcome_is_not_acknowledged(how, faults):
    """
    I03: an exception ends the process, a rebalance or a stop leaves the record to its next reader: in
    each case the fifth of nine is read again.
    """
    lanes = Lanes(Failing(how))

    await lanes.run()

    assert (4, faults) == (lanes.lane.acks.committable(), len(lanes.faults))


def test_i06_a_commit_of_an_older_generation_changes_nothing():
    """
    I06, rule 9: the worker lives on; the record is read twice and its delivery has one outcome.
    """
    refused: list[str] = []

    async def scenario(world):
        commit = world.broker.commit

        def watched(who, generation, offsets):
            taken = commit(who, generation, offsets)
            if not taken:
                refused.append(who)
            return taken

        world.broker.commit = watched
        world.answers["strict-1"], world.lasts_s = "200", 0.3
        world.produce("x1", "strict-1")
        await world.until(lambda: calls_of(world, "strict-1"))
        world.move("B", told=False)
        await asyncio.sleep(3.0)
        world.tell("A")
        world.produce("x2", "strict-1")
        await world.until(lambda: len(calls_of(world, "strict-1")) == 2)
        world.move("A")
        await world.come_to_rest()

    world = simulate(scenario, machines="AB")

    assert "A" in refused
    assert [] == world.machines["A"].errors
    assert {(Phase.SENT, 1)} == {
        (row.phase, row.attempts) for row in (row_of(world, f"x{n}", "strict-1") for n in (1, 2))
    }


def test_i17_a_record_is_held_until_its_retry_is_written():
    """
    I17: the delay topics take nothing for a minute; afterwards there is one retry and one more call.
    """

    async def scenario(world):
        appender = world.machines["A"].appender
        for topic in RETRIES.values():
            appender.hold(topic)
        world.answers["idem-1"] = "503"
        source = world.produce("x1", "idem-1")
        await asyncio.sleep(60)
        kept, made = world.broker.committed.get("outbox", 0), len(world.script.calls)
        world.answers["idem-1"] = "200"
        for topic in RETRIES.values():
            appender.release(topic)
        await world.come_to_rest()
        assert (source.offset, 1) == (kept, made)

    world = simulate(scenario)

    written = [
        record for topic in RETRIES.values() for record in world.broker.topics[topic].records
    ]
    assert (1, 2) == (len(written), len(calls_of(world, "idem-1")))
    assert Phase.SENT is row_of(world, "x1", "idem-1").phase


class Lone:
    """One machine and a broker, with no oracle: what is lost here is lost on purpose."""

    def __init__(self) -> None:
        loop = cast("VirtualLoop", asyncio.get_running_loop())
        self.broker = Broker(loop, Random(1), TOPICS)
        self.broker.owner, self.broker.generation = "A", 1
        self.script = Script(lambda _target, _row: ("200", 0.01), lambda _call: None)
        self.machine = Machine(
            "A", self.broker, Random(2), targets=SimTargets(Random(3)), script=self.script
        )
        self.machine.start()

    def gain(self) -> None:
        """The group gives the partition to the machine."""
        self.broker.loop.call_soon(self.machine.gain, context=self.machine.context)

    def produce(self, *numbers: int) -> None:
        """Write an activity for each number."""
        for n in numbers:
            value = b'{"activity_id":"x%d","recipients":[{"target":"idem-%d"}],"activity":{}}'
            self.broker.land("outbox", b"x%d" % n, value % (n, n))

    def called(self) -> list[str]:
        """The targets that were called, in the order of the calls."""
        return [call.row.target for call in self.script.calls]


def alone(scenario, monkeypatch) -> tuple[Lone, Lines]:
    """Live through a scenario of one machine; keep what its worker logs."""
    lines = Lines()
    for module in (worker, feeding, restoring):
        monkeypatch.setattr(module, "log", lines)

    async def live() -> Lone:
        lone = Lone()
        await scenario(lone)
        assert [] == lone.machine.errors + lone.broker.loop.faults
        return lone

    with quiet():
        return run_virtual(live()), lines


def test_i09_records_that_retention_took_are_named_and_the_rest_is_delivered(monkeypatch):
    """
    I09: committed at 1, and what lay up to 4 is gone: it goes on at 5, and the range is in a line.
    """

    async def scenario(lone):
        lone.produce(*range(9))
        del lone.broker.topics["outbox"].records[:5]
        lone.broker.committed["outbox"] = 1
        lone.gain()
        await asyncio.sleep(20)

    lone, lines = alone(scenario, monkeypatch)

    assert [f"idem-{n}" for n in range(5, 9)] == sorted(lone.called())
    assert [{"topic": "outbox", "partition": 0, "at": 1, "to": 5}] == lines.of("partition.gap")
    assert 9 == lone.broker.committed["outbox"]


def test_i16_a_store_that_is_ahead_of_its_log_is_built_anew(monkeypatch):
    """
    I16: the ledger topic was made anew while the worker was away. It says so, holds nothing that the
    log does not, and goes on.
    """

    async def scenario(lone):
        lone.gain()
        lone.produce(1, 2, 3)
        await asyncio.sleep(5)
        lone.machine.crash(store="kept", landing=1.0)
        lone.broker.topics["ledger"] = Topic("ledger")
        lone.machine.start()
        lone.gain()
        lone.produce(4)
        await asyncio.sleep(20)

    lone, lines = alone(scenario, monkeypatch)

    assert 1 == len(lines.of("store.foreign"))
    log = ledger_records(lone.broker.topics["ledger"].records)
    assert lone.machine.store.state.facts() == replay(log).facts()
    assert {"idem-1", "idem-2", "idem-3", "idem-4"} == set(lone.called())
