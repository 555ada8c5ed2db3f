"""Bulk redrive over a view filled by hand: what it selects, how fast, and what a restart changes."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from streams.api.jobs import PAUSE_S
from streams.api.writer import UNAVAILABLE
from streams.wire.audit import encode_audit
from tests.unit.api.desk import BASE, NOW_MS, Record, World, dead_row, row

WISH = {"reason": "CRM was down", "effect_mode": "reconcile_replay"}
PLACE = f"{BASE}/redrive-jobs"
URL = "https://b.example/inbox?key=canary-7f3a"


@asynccontextmanager
async def working(world: World):
    """What works jobs through runs."""
    world.app()
    task = asyncio.create_task(world.jobs.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def ask(world, method, path=PLACE, token="t-admin", **body):
    async with world.client(token) as client:
        return await client.request(method, path, json=body or None)


async def started(world, **changes):
    answer = await ask(world, "POST", **(WISH | {"filter": {"target": "crm"}} | changes))
    assert 202 == answer.status_code, answer.text
    return answer.json()


async def until_ended(world, job_id):
    for _ in range(500):
        facts = (await ask(world, "GET", f"{PLACE}/{job_id}")).json()
        if facts["state"] != "running":
            return facts
        await asyncio.sleep(0.005)
    raise AssertionError(facts)


async def until_paused(world):
    for _ in range(500):
        if PAUSE_S in world.pauses:
            return
        await asyncio.sleep(0)
    raise AssertionError(world.pauses)


def redriven(world):
    return {audit.dead_letter_id for audit in world.log.audits if audit.action == "redrive"}


async def test_a_job_redrives_what_its_filter_finds_each_with_its_own_audit(world):
    """Issue 7."""
    crm = [world.deliver(n, dead_row(n)).letter_id for n in range(1, 6)]
    world.deliver(10, dead_row(10, target="mail"))
    world.deliver(11, row(11))
    world.deliver(12, dead_row(12), tenant="other")
    async with working(world):
        facts = await until_ended(world, (await started(world))["job_id"])

    assert set(crm) == redriven(world)
    assert ("done", 5, 0) == (facts["state"], facts["redriven"], facts["left"])
    audits = [audit for audit in world.log.audits if audit.action == "redrive"]
    assert [("al", "CRM was down", facts["job_id"])] * 5 == [
        (each.subject, each.reason, each.job_id) for each in audits
    ]
    assert facts["ended_ms"] is not None


@pytest.mark.parametrize(
    ("wanted", "numbers"),
    [
        ({"code": "http_404"}, {2}),
        ({"failure_phase": "connect"}, {3}),
        ({"activity_id": "urn:1"}, {1}),
        ({"target": URL}, {4}),
        ({"created_to_ms": NOW_MS + 1_002}, {1, 2}),
        ({"created_from_ms": NOW_MS + 1_003, "code": "http_400"}, {3, 4}),
    ],
)
async def test_all_that_a_filter_names_must_fit(world, wanted, numbers):
    """Issue 7: by target, code, phase, activity, time."""
    world.deliver(1, dead_row(1))
    world.deliver(2, dead_row(2, code="http_404"))
    world.deliver(3, dead_row(3, failure_phase="connect"))
    world.deliver(4, dead_row(4, target=URL))
    async with working(world):
        await until_ended(world, (await started(world, filter=wanted))["job_id"])

    assert {f"dlv_{n:032x}.1" for n in numbers} == redriven(world)
    assert "canary" not in "".join(audit.detail for audit in world.log.audits)


async def test_a_job_goes_no_faster_than_it_was_told(world):
    """Issue 7: a bounded rate."""
    for n in range(4):
        world.deliver(n, dead_row(n))
    async with working(world):
        await until_ended(world, (await started(world, rate_per_s=4))["job_id"])

    assert [0.25] * 4 == world.pauses


async def test_a_job_goes_on_after_a_restart_with_what_is_still_open(world, tmp_path):
    """Issue 7: from the audit topic alone; nothing is asked for twice that was applied."""
    letters = [world.deliver(n, dead_row(n)).letter_id for n in range(1, 6)]
    job_id = (await started(world))["job_id"]
    async with world.client() as client:
        await client.post(f"{BASE}/dead-letters/{letters[0]}:redrive", json=WISH)
    again = World(tmp_path / "again")
    try:
        for n in range(1, 6):
            known = world.rows[f"dlv_{n:032x}"][1]
            again.deliver(n, known)
        again.view.take_audit(
            [Record(encode_audit(audit), at) for at, audit in enumerate(world.log.audits)]
        )
        async with working(again):
            facts = await until_ended(again, job_id)
    finally:
        again.close()

    assert set(letters[1:]) == redriven(again)
    assert ("done", 4) == (facts["state"], facts["redriven"])


async def test_a_job_of_another_replica_is_left_to_it(world):
    """Two that work through one job would write each audit twice."""
    world.deliver(1, dead_row(1))
    job_id = (await started(world))["job_id"]
    world.jobs._replica = "api2"
    async with working(world):
        for _ in range(20):
            await asyncio.sleep(0)
        facts = (await ask(world, "GET", f"{PLACE}/{job_id}")).json()

    assert ("running", 0, None) == (facts["state"], facts["redriven"], facts["left"])


async def test_what_dies_again_is_not_redriven_again(world):
    """A job is for what was given up before it: else it would call a dead target for ever."""
    first = world.deliver(1, dead_row(1))
    later = world.deliver(2, dead_row(2, settled_ms=NOW_MS + 60_000))
    async with working(world):
        await until_ended(world, (await started(world))["job_id"])

    assert {first.letter_id} == redriven(world)
    assert later.letter_id not in redriven(world)


async def test_a_job_waits_where_nothing_can_be_written_and_goes_on(world):
    """D-065: no audit, no redrive; and nothing is left out for it."""
    letter = world.deliver(1, dead_row(1)).letter_id
    async with working(world):
        job_id = (await started(world))["job_id"]
        world.log.fails = UNAVAILABLE
        await until_paused(world)
        assert set() == redriven(world)
        world.log.fails = None
        await until_ended(world, job_id)

    assert {letter} == redriven(world)


async def test_a_stopped_job_asks_for_no_further_letter(world):
    """Issue 7; stopped twice it is a conflict."""
    for n in range(50):
        world.deliver(n, dead_row(n))
    job_id = (await started(world))["job_id"]
    answer = await ask(world, "POST", f"{PLACE}/{job_id}:stop", reason="wrong filter")
    again = await ask(world, "POST", f"{PLACE}/{job_id}:stop", reason="wrong filter")
    async with working(world):
        for _ in range(20):
            await asyncio.sleep(0)

    assert (200, "stopped", 409) == (answer.status_code, answer.json()["state"], again.status_code)
    assert set() == redriven(world)


@pytest.mark.parametrize(
    ("token", "changes", "status", "code"),
    [
        ("t-reader", {}, 403, "scope_missing"),
        ("t-admin", {"filter": {}}, 422, "filter_empty"),
        ("t-admin", {"filter": {"colour": "red"}}, 422, "body_invalid"),
        ("t-admin", {"filter": {"target": None}}, 422, "body_invalid"),
        ("t-admin", {"rate_per_s": 1_000}, 422, "body_invalid"),
        ("t-admin", {"rate_per_s": "10"}, 422, "body_invalid"),
        ("t-admin", {"effect_mode": "again"}, 422, "effect_mode_invalid"),
        ("t-admin", {"reason": " "}, 422, "reason_invalid"),
    ],
)
async def test_a_job_that_breaks_a_rule_is_not_started(world, token, changes, status, code):
    """The selection is said, never guessed: an empty filter would be everything."""
    body = WISH | {"filter": {"target": "crm"}} | changes
    answer = await ask(world, "POST", token=token, **body)

    assert (status, code) == (answer.status_code, answer.json()["code"])
    assert [] == world.log.audits


async def test_another_tenants_job_is_unknown(world):
    """C-13."""
    world.deliver(1, dead_row(1))
    job_id = (await started(world))["job_id"]

    assert 404 == (await ask(world, "GET", f"{PLACE}/{job_id}", "t-other")).status_code
    stop = await ask(world, "POST", f"{PLACE}/{job_id}:stop", "t-other", reason="x")
    assert 404 == stop.status_code
    assert [] == (await ask(world, "GET", token="t-other")).json()["items"]
    assert [job_id] == [each["job_id"] for each in (await ask(world, "GET")).json()["items"]]
