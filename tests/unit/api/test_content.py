"""The one content view: masked, for administrators, in the audit before it is answered (D-044..047)."""

from __future__ import annotations

import json
from base64 import b64encode

import pytest

from streams.api.content import UNREACHED, masked
from streams.api.writer import UNAVAILABLE
from tests.unit.api.desk import BASE, CANARY


def record(activity_id="urn:1", tenant="acme", **content):
    given = content or {
        "activity": {"type": "Note", "content": "hello", "api_key": CANARY, "n": [1, 2]}
    }
    head = {"activity_id": activity_id, "tenant": tenant, "recipients": [{"target": "crm"}]}
    return json.dumps(head | given).encode()


async def reveal(world, delivery_id, token="t-admin", **params):
    async with world.client(token) as client:
        return await client.get(
            f"{BASE}/deliveries/{delivery_id}/content", params={"reveal": "masked"} | params
        )


async def test_content_is_shown_masked_and_the_audit_says_who_looked(world):
    """Issue 7, D-044."""
    seen = world.deliver(1)
    world.contents.values[0] = record()
    answer = await reveal(world, seen.delivery_id, reason="ticket 7, password=hunter2canary")

    assert 200 == answer.status_code
    facts = answer.json()
    assert ("hello", [1, 2]) == (facts["content"]["content"], facts["content"]["n"])
    assert CANARY not in answer.text
    (audit,) = world.log.audits
    assert ("content.reveal", "al", seen.delivery_id, "urn:1") == (
        audit.action,
        audit.subject,
        audit.delivery_id,
        audit.activity_id,
    )
    assert facts["audit_id"] == audit.audit_id
    assert "hunter2canary" not in audit.reason


async def test_without_an_audit_nothing_is_shown(world):
    """Fails closed, as a redrive does (D-065)."""
    seen = world.deliver(1)
    world.contents.values[0] = record()
    world.log.fails = UNAVAILABLE
    answer = await reveal(world, seen.delivery_id)

    assert (503, "audit_unavailable") == (answer.status_code, answer.json()["code"])
    assert "hello" not in answer.text


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"\xff",
        b'{"activity_id": "urn:1"}',
        record("urn:2"),
        record(tenant="other"),
    ],
)
async def test_where_the_record_is_gone_or_anothers_that_is_said(world, value):
    """Issue 7: a clear problem; and a topic that was made anew shows nobody else's content."""
    seen = world.deliver(1)
    if value is not None:
        world.contents.values[0] = value
    answer = await reveal(world, seen.delivery_id)

    assert (404, "content_gone") == (answer.status_code, answer.json()["code"])
    assert [] == world.log.audits


async def test_where_kafka_does_not_answer_that_is_said(world):
    """Neither gone nor shown."""
    seen = world.deliver(1)
    world.contents.fails = UNREACHED

    assert 503 == (await reveal(world, seen.delivery_id)).status_code


@pytest.mark.parametrize(
    ("token", "params", "status"),
    [
        ("t-reader", {}, 403),
        ("t-other", {}, 404),
        ("nobody", {}, 401),
        ("t-admin", {"reveal": "all"}, 400),
        ("t-admin", {"reason": "x" * 513}, 400),
    ],
)
async def test_who_may_not_look_sees_nothing(world, token, params, status):
    """Scope `notification:admin`; there is no unmasked view."""
    seen = world.deliver(1)
    world.contents.values[0] = record()
    answer = await reveal(world, seen.delivery_id, token, **params)

    assert status == answer.status_code
    assert "hello" not in answer.text
    assert [] == world.log.audits


@pytest.mark.parametrize(
    ("body", "shown"),
    [(b'{"a": {"token": "x"}}', {"a": {"token": "***"}}), (b"plain text", "plain text")],
)
def test_json_and_text_are_masked(body, shown):
    """D-044."""
    assert shown == masked(body)


def test_what_is_neither_json_nor_text_is_not_shown():
    """D-045: closed where nothing can be told apart."""
    shown = masked(b"\xff\x00")

    assert isinstance(shown, dict)
    assert ({"bytes", "sha256"}, 2) == (set(shown), shown["bytes"])


async def test_a_body_of_another_type_is_decoded_before_it_is_masked(world):
    """Base64 would carry a secret past every mask."""
    seen = world.deliver(1)
    body = b64encode(json.dumps({"password": CANARY}).encode()).decode()
    world.contents.values[0] = record(body=body, content_type="application/json")
    answer = await reveal(world, seen.delivery_id)

    assert 200 == answer.status_code
    assert CANARY not in answer.text
    assert body not in answer.text
