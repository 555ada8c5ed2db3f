"""Cancel over a view filled by hand: who may, what is written, what is answered."""

from __future__ import annotations

import pytest

from streams.api.writer import UNAVAILABLE
from streams.model.ledger import Phase
from streams.wire.commands import Cancel, decode_command
from tests.unit.api.desk import BASE, dead_row, row


async def cancel(world, delivery_id, token="t-admin", **body):
    async with world.client(token) as client:
        return await client.post(
            f"{BASE}/deliveries/{delivery_id}:cancel", json=body or {"reason": "not wanted"}
        )


async def test_a_waiting_delivery_is_cancelled_with_an_audit_that_names_it(world):
    """Issue 7: one write of both; the answer is what the owner's ledger says."""
    waiting = world.deliver(1, row(1))
    answer = await cancel(world, waiting.delivery_id)

    facts = answer.json()
    assert (200, "skipped", "cancelled") == (
        answer.status_code,
        facts["delivery"]["status"],
        facts["delivery"]["code"],
    )
    (audit,), (record,) = world.log.audits, world.log.records
    command = decode_command(record.value)
    assert Cancel(letter_id=f"{waiting.delivery_id}.1", audit_id=audit.audit_id) == command
    assert ("delivery.cancel", "al", waiting.delivery_id) == (
        audit.action,
        audit.subject,
        audit.delivery_id,
    )


@pytest.mark.parametrize("phase", [Phase.SENT, Phase.SKIPPED])
async def test_what_is_settled_is_not_cancelled(world, phase):
    """D-008: exactly one end."""
    settled = world.deliver(1, row(1, phase=phase))
    answer = await cancel(world, settled.delivery_id)

    assert (409, "already_settled") == (answer.status_code, answer.json()["code"])
    assert [] == world.log.audits


async def test_a_dead_delivery_is_not_cancelled(world):
    """It has its letter; that is redriven or left."""
    answer = await cancel(world, world.deliver(1, dead_row(1)).delivery_id)

    assert 409 == answer.status_code


async def test_a_call_that_settles_first_wins(world):
    """Issue 7: a claim in flight is waited for; where it is sent, the cancel was too late."""
    claimed = world.deliver(1, row(1, phase=Phase.CLAIMED))
    world.log.has_owner = False
    early = await cancel(world, claimed.delivery_id)
    world.put(b"acme|urn:1", row(1, phase=Phase.SENT))
    late = await cancel(world, claimed.delivery_id)

    assert [202, 409] == [early.status_code, late.status_code]
    assert early.headers["location"].endswith(claimed.delivery_id)


async def test_without_an_audit_nothing_is_cancelled(world):
    """D-065."""
    waiting = world.deliver(1, row(1))
    world.log.fails = UNAVAILABLE

    assert 503 == (await cancel(world, waiting.delivery_id)).status_code
    assert [] == world.log.records


@pytest.mark.parametrize(
    ("token", "body", "status"),
    [
        ("t-reader", {"reason": "x"}, 403),
        ("t-other", {"reason": "x"}, 404),
        ("nobody", {"reason": "x"}, 401),
        ("t-admin", {"reason": ""}, 422),
        ("t-admin", {"reason": "x", "more": "y"}, 422),
    ],
)
async def test_who_may_not_cancel_changes_nothing(world, token, body, status):
    """D-060, C-13, for cancel."""
    waiting = world.deliver(1, row(1))

    assert status == (await cancel(world, waiting.delivery_id, token, **body)).status_code
    assert [] == world.log.audits
