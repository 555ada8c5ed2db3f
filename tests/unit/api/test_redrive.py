"""Redrive over a view filled by hand: who may, what is written, what is answered."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from streams.api.writer import UNAVAILABLE
from streams.rules.decide import EffectMode
from streams.wire.audit import encode_audit
from streams.wire.commands import Redrive, decode_command
from tests.unit.api.desk import BASE, Record, World, dead_row, row

WISH = {"reason": "CRM was down", "effect_mode": "reconcile_replay"}


async def redrive(world, letter_id, token="t-admin", **changes):
    async with world.client(token) as client:
        return await client.post(f"{BASE}/dead-letters/{letter_id}:redrive", json=WISH | changes)


async def shown(world, letter_id):
    async with world.client() as client:
        return (await client.get(f"{BASE}/dead-letters/{letter_id}")).json()


@pytest.mark.parametrize(
    ("mode", "generation"),
    [(EffectMode(m), g) for m, g in [("reconcile_replay", 1), ("new_external_send", 2)]],
)
async def test_a_redrive_resolves_the_letter_and_queues_its_delivery(world, mode, generation):
    """D-060..069, C-12, D-076."""
    letter_id = world.deliver(1, dead_row(1)).letter_id
    answer = await redrive(world, letter_id, effect_mode=mode.value)

    assert 200 == answer.status_code
    delivery = answer.json()["delivery"]
    assert ("queued", generation) == (delivery["status"], delivery["generation"])
    facts = await shown(world, letter_id)
    assert ("resolved", mode.value) == (facts["state"], facts["resolution"]["effect_mode"])


async def test_audit_and_command_name_each_other_and_go_together(world):
    """D-065: one write of both."""
    letter_id = world.deliver(1, dead_row(1)).letter_id
    answer = await redrive(world, letter_id)

    (audit,), (record,) = world.log.audits, world.log.records
    command = decode_command(record.value)
    assert isinstance(command, Redrive)
    assert answer.json()["audit_id"] == audit.audit_id == command.audit_id
    assert (b"acme|urn:1", "commands", letter_id) == (record.key, record.topic, command.letter_id)
    assert ("al", "acme", letter_id) == (audit.subject, audit.tenant, audit.dead_letter_id)
    assert answer.headers["x-request-id"] == audit.request_id


async def test_without_an_audit_nothing_happens(world):
    """D-065: 503, and the letter stands."""
    letter_id = world.deliver(1, dead_row(1)).letter_id
    world.log.fails = UNAVAILABLE
    answer = await redrive(world, letter_id)

    assert (503, "audit_unavailable") == (answer.status_code, answer.json()["code"])
    assert "open" == (await shown(world, letter_id))["state"]
    assert [] == world.log.records


async def test_an_owner_that_does_not_answer_gives_a_place_to_ask(world):
    """Interface §5: 202; the letter is open until the ledger says otherwise."""
    letter_id = world.deliver(1, dead_row(1)).letter_id
    world.log.has_owner = False
    answer = await redrive(world, letter_id)

    assert 202 == answer.status_code
    async with world.client() as client:
        assert "open" == (await client.get(answer.headers["location"])).json()["state"]
        world.apply(world.log.records[0])
        assert "resolved" == (await client.get(answer.headers["location"])).json()["state"]


async def test_of_fifty_at_once_one_succeeds(world):
    """Issue 7."""
    letter_id = world.deliver(1, dead_row(1)).letter_id
    answers = await asyncio.gather(*(redrive(world, letter_id) for _ in range(50)))
    async with world.client() as client:
        at_once = await asyncio.gather(
            *(client.post(f"{BASE}/dead-letters/{letter_id}:redrive", json=WISH) for _ in range(50))
        )

    codes = Counter(answer.status_code for answer in answers)
    assert 1 == codes[200]
    assert {409: 50} == Counter(answer.status_code for answer in at_once)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "body_invalid"),
        (b"[]", 422, "body_invalid"),
        (b'{"reason": "x"}', 422, "body_invalid"),
        (b'{"reason": 1, "effect_mode": "reconcile_replay"}', 422, "body_invalid"),
        (b'{"reason": "", "effect_mode": "reconcile_replay"}', 422, "reason_invalid"),
        (b'{"reason": "x", "effect_mode": "again"}', 422, "effect_mode_invalid"),
        (b'{"reason": "x", "effect_mode": "reconcile_replay", "y": "z"}', 422, "body_invalid"),
        (
            b'{"reason": "%s", "effect_mode": "reconcile_replay"}' % (b"x" * 513),
            422,
            "reason_invalid",
        ),
        (b'"%s"' % (b"x" * 20_000), 413, "body_too_large"),
    ],
)
async def test_a_wish_that_breaks_a_rule_changes_nothing(world, body, status, code):
    """D-062..064: a reason of 1 to 512 characters, exactly one mode."""
    letter_id = world.deliver(1, dead_row(1)).letter_id
    async with world.client() as client:
        answer = await client.post(f"{BASE}/dead-letters/{letter_id}:redrive", content=body)

    assert (status, code) == (answer.status_code, answer.json()["code"])
    assert [] == world.log.audits


async def test_a_reason_of_512_characters_is_taken_and_redacted(world):
    """D-062, D-074."""
    first = world.deliver(1, dead_row(1)).letter_id
    second = world.deliver(2, dead_row(2)).letter_id

    assert 200 == (await redrive(world, first, reason="x" * 512)).status_code
    await redrive(world, second, reason="password=hunter2canary")
    assert "hunter2canary" not in world.log.audits[1].reason


@pytest.mark.parametrize(
    ("token", "status"), [("t-reader", 403), ("t-other", 404), ("nobody", 401), ("", 401)]
)
async def test_who_may_not_redrive_changes_nothing(world, token, status):
    """D-060, C-13."""
    letter_id = world.deliver(1, dead_row(1)).letter_id
    answer = await redrive(world, letter_id, token)

    assert status == answer.status_code
    assert [] == world.log.audits


async def test_what_is_not_dead_has_no_letter(world):
    """C-13."""
    waiting = world.deliver(1, row(1))

    assert 404 == (await redrive(world, waiting.letter_id)).status_code


async def test_a_letter_of_an_earlier_budget_is_resolved(world):
    """Rule 11: the id names the budget; the letter after it is another one."""
    before = world.deliver(1, dead_row(1))
    await redrive(world, before.letter_id)
    again = dead_row(1, budget=2)
    world.put(b"acme|urn:1", again)

    assert 409 == (await redrive(world, before.letter_id)).status_code
    assert 200 == (await redrive(world, again.letter_id)).status_code


async def test_a_resolution_outlives_the_rows(world, tmp_path):
    """Issue 7: read from the audit topic alone, as after compaction."""
    letter_id = world.deliver(1, dead_row(1)).letter_id
    await redrive(world, letter_id)
    other = World(tmp_path / "other")
    try:
        other.view.take_audit([Record(encode_audit(world.log.audits[0]), 0)])
        facts = await shown(other, letter_id)
    finally:
        other.close()

    assert ("resolved", "http_400", 1) == (facts["state"], facts["code"], facts["attempts"])
    assert facts["resolved_ms"] is not None


async def test_a_target_is_switched_with_an_audit_and_only_where_that_changes_it(world):
    """Issue 7: parking keeps the backlog; what is so already is not written again."""
    world.register("crm")
    async with world.client() as client:
        place = f"{BASE}/targets/crm"
        answers = [
            await client.post(f"{place}:{how}", json={"reason": "noon"})
            for how in ("enable", "disable", "disable", "enable")
        ]

    assert [200] * 4 == [answer.status_code for answer in answers]
    assert [False, True, True, False] == [answer.json()["parked"] for answer in answers]
    assert ["target.disable", "target.enable"] == [audit.action for audit in world.log.audits]
