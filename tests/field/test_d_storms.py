"""Storms, poison, lost workers and dead hosts, in the simulated world."""

from __future__ import annotations

import asyncio

from streams.model.ledger import Phase
from streams.rules.buckets import BUCKETS, bucket_for, wake_ms
from streams.rules.pacing import FAULTS_TO_OPEN
from tests.field.worlds import calls_of, on_each_call, row_of, simulate
from tests.sim.broker import BASE_MS
from tests.sim.target import Call

DAY_MS = 86_400_000


def test_d03_a_record_that_kills_its_worker_is_given_up_after_its_attempts():
    """
    D03, C-01: the count is durable before the risky part; what lies behind it is delivered.
    """

    async def scenario(world):
        def kill(call):
            if call.row.target == "idem-killer":
                world.broker.soon(0.001, lambda: world.crash("A", landing=1.0))
                world.broker.soon(0.5, lambda: world.start("A"))

        on_each_call(world, kill)
        world.answers |= {"idem-killer": "200", "idem-other": "200"}
        world.lasts_s = 0.1
        world.produce("x0", "idem-killer")
        for n in range(1, 6):
            world.produce(f"x{n}", "idem-other")
        await world.come_to_rest()

    world = simulate(scenario)

    row = row_of(world, "x0", "idem-killer")
    assert (Phase.DEAD, "attempts_exhausted", "lease_lost", 3) == (
        row.phase,
        row.code,
        row.cause,
        row.attempts,
    )
    assert 3 == len(calls_of(world, "idem-killer"))
    others = [row_of(world, f"x{n}", "idem-other").phase for n in range(1, 6)]
    assert [Phase.SENT] * 5 == others


def test_d04_of_two_owners_one_settles_and_the_late_answer_is_kept():
    """
    D04, D-004, C-07: the partition moves while a call is under way. The new owner makes no second call;
    what the old one saw reaches it, and settles the delivery once.
    """

    async def scenario(world):
        world.answers["strict-1"], world.lasts_s = "200", 0.95
        on_each_call(
            world, lambda _call: world.broker.soon(0.3, lambda: world.move("B", told=False))
        )
        world.produce("x1", "strict-1")
        await world.until(lambda: calls_of(world, "strict-1"))
        await asyncio.sleep(2.0)
        world.tell("A")
        await world.come_to_rest()

    world = simulate(scenario, machines="AB")

    row = row_of(world, "x1", "strict-1")
    assert (Phase.SENT, 1, "http_200") == (row.phase, row.attempts, row.code)
    assert 1 == len(calls_of(world, "strict-1"))
    assert {(row.delivery_id, "sent", row.settled_ms)} == world.oracle._receipts


def crash_once_answered(world) -> None:
    """The first call is answered, and its worker is killed before it can say so."""
    happened: list[Call] = []

    def kill(call):
        if not happened:
            happened.append(call)
            world.broker.soon(0.2, lambda: world.crash("A", landing=1.0))
            world.broker.soon(1.0, lambda: world.start("A"))

    on_each_call(world, kill)
    world.lasts_s = 0.3


def test_d06_a_crash_between_the_call_and_its_report_leaves_a_doubt():
    """
    D06, D-011: where a repeated id is not recognised nothing is sent again by itself; attempt 1 stays.
    """

    async def scenario(world):
        crash_once_answered(world)
        world.answers["strict-1"] = "200"
        world.produce("x1", "strict-1")
        await world.come_to_rest()

    world = simulate(scenario)

    row = row_of(world, "x1", "strict-1")
    assert (Phase.DEAD, "lease_lost", 1, True) == (
        row.phase,
        row.code,
        row.attempts,
        row.reconciliation_required,
    )
    assert 1 == len(calls_of(world, "strict-1"))


def test_d06_an_idempotent_target_is_called_again_under_the_same_id():
    """
    D06, C-03: the retry is attempt 2, and the target can tell the copy.
    """

    async def scenario(world):
        crash_once_answered(world)
        world.answers["idem-1"] = "200"
        world.produce("x1", "idem-1")
        await world.come_to_rest()

    world = simulate(scenario)

    calls = calls_of(world, "idem-1")
    assert [1, 2] == [call.row.attempts for call in calls]
    assert 1 == len({call.row.message_id for call in calls})
    assert Phase.SENT is row_of(world, "x1", "idem-1").phase


def test_d08_a_dead_host_starves_nobody():
    """
    D08, C-08: 1,000 deliveries whose calls hang for a second each, and 100 places for work; the 50
    healthy ones between them are done within seconds, and the dead host has one call at a time.
    """

    async def scenario(world):
        world.answers |= {"strict-dead": "hang", "idem-well": "200"}
        draw = world.script.draw
        world.script.draw = lambda target, row: (
            draw(target, row)[0],
            1.0 if target == "strict-dead" else 0.01,
        )
        for n in range(1_000):
            world.produce(f"d{n}", "strict-dead")
            if n % 20 == 0:
                world.produce(f"h{n}", "idem-well")
        await world.until(lambda: len(calls_of(world, "idem-well")) == 50, limit_s=20)
        assert world.loop.time() < 5.0

    world = simulate(scenario)

    dead = calls_of(world, "strict-dead")
    at_once = max(sum(1 for c in dead if c.at <= each.at < c.at + 1.0) for each in dead)
    assert at_once == 1  # the simulated policy's max_connections


def test_d12_no_wait_stands_behind_a_longer_one():
    """
    D12: an hour, five seconds, then fifty of one second: each wakes by its own bucket, in order.
    """
    lengths = dict(BUCKETS)
    waits = [3_600_000, 5_000, *[1_000] * 50]

    wakes = [(bucket_for(wait), wake_ms(bucket_for(wait), 0)) for wait in waits]

    assert wakes == [(bucket_for(wait), wait) for wait in waits]
    assert {"1h", "5s", "1s"} == {bucket for bucket, _ in wakes} <= lengths.keys()


def test_d13_what_is_too_old_ends_without_a_call():
    """
    D13, C-17: older than the dedupe window it may have been delivered and forgotten, so it expires;
    the rest goes out within the target's one connection. Age counts from admission, as the spec says.
    """

    async def scenario(world):
        world.answers["idem-1"], world.lasts_s = "200", 0.01
        for n in range(40):
            old = n % 2 == 0
            at_ms = BASE_MS - (8 if old else 2) * DAY_MS
            world.produce(f"{'old' if old else 'new'}{n}", "idem-1", at_ms=at_ms)
        await world.come_to_rest()

    world = simulate(scenario)

    rows = {key: world.oracle.row(key) for key in world.oracle.owed}
    old = [row for key, row in rows.items() if key.startswith(b"old")]
    new = [row for key, row in rows.items() if key.startswith(b"new")]
    assert {(Phase.DEAD, "expired", 0)} == {(r.phase, r.code, r.attempts) for r in old}
    assert {(Phase.SENT, 1)} == {(r.phase, r.attempts) for r in new}
    assert (20, 20, 20) == (len(old), len(new), len(world.script.calls))


def test_d14_a_target_that_is_left_alone_costs_no_attempts():
    """
    D14, O-033: a delivery that comes while the target is known to be down waits, and has as many
    attempts as calls were made; the target comes back and is told.
    """

    async def scenario(world):
        world.answers["idem-1"], world.lasts_s = "refused", 0.01
        for n in range(FAULTS_TO_OPEN):
            world.produce(f"f{n}", "idem-1")
        await world.until(lambda: len(world.script.calls) >= FAULTS_TO_OPEN)
        world.produce("x1", "idem-1")
        await asyncio.sleep(40)
        world.answers["idem-1"] = "200"
        await world.come_to_rest()

    world = simulate(scenario, max_attempts=12)

    row = row_of(world, "x1", "idem-1")
    made = [call for call in world.script.calls if call.key.startswith(b"x1\x00")]
    assert (Phase.SENT, len(made)) == (row.phase, row.attempts)
    down = [call for call in world.script.calls if call.answer == "refused"]
    assert len(down) < 40  # ten deliveries of twelve attempts would be 120
