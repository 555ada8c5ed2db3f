"""What a target is called with: its secrets, waited for and never told; its own transport."""

from __future__ import annotations

from base64 import b64encode

import pytest
from structlog.testing import capture_logs

from streams.engine import outfit
from streams.engine.outfit import LOOK_AGAIN_S, SAY_AGAIN_S, UNAVAILABLE, Equipped, InboxSigning
from streams.model.target import Signing
from streams.wire.signatures.http_message import HttpMessage
from tests.unit.engine.fakes import RegistryWorld, until
from tests.unit.wire.signature_vectors import ED25519_KEY

SECRET = f"whsec_{b64encode(b'canary-' * 4).decode()}"
SIGNED = {"signing": "standard-webhooks-hmac", "secret_refs": ("env:CRM_SECRET",)}


@pytest.fixture
def world():
    return RegistryWorld()


async def test_a_secret_is_looked_for_until_it_is_there(world, monkeypatch):
    """
    Issue 5, C-09: never called unsigned meanwhile.
    """
    world.put(**SIGNED)
    assert UNAVAILABLE == await world.find()

    monkeypatch.setenv("CRM_SECRET", SECRET)
    assert UNAVAILABLE == await world.find(), "not looked for at each delivery"

    world.time.s += LOOK_AGAIN_S
    found = await world.find()
    assert isinstance(found, Equipped)
    assert found.outfit.signer is not None


async def test_a_missing_secret_is_told_once_a_minute(world):
    """
    O-005: 20,000 deliveries that wait are one line.
    """
    world.put(**SIGNED)
    with capture_logs() as lines:
        for _ in range(int(SAY_AGAIN_S / LOOK_AGAIN_S)):
            await world.find()
            world.time.s += LOOK_AGAIN_S
        assert 1 == len(lines)
        await world.find()

    assert 2 == len(lines)
    assert ("error", "default/crm", "secret env:CRM_SECRET: is not set, or empty") == (
        lines[0]["log_level"],
        lines[0]["target"],
        lines[0]["reason"],
    )


async def test_a_wrong_secret_is_not_told(world, monkeypatch):
    """
    D-042, D-043: the line says what it must be, and nothing of what it is.
    """
    monkeypatch.setenv("CRM_SECRET", "whsec_canary")
    world.put(**SIGNED)
    with capture_logs() as lines:
        assert UNAVAILABLE == await world.find()

    assert "canary" not in str(lines)


async def test_a_record_put_anew_is_looked_at_at_once(world, monkeypatch):
    world.put(**SIGNED)
    await world.find()
    monkeypatch.setenv("OTHER_SECRET", SECRET)
    world.put(**SIGNED | {"secret_refs": ("env:OTHER_SECRET",)})

    assert isinstance(await world.find(), Equipped)


async def test_a_secret_is_read_again_when_its_record_changes(world, tmp_path):
    """
    C-09: rotation without a restart.
    """
    place = tmp_path / "crm"
    references = {"signing": "standard-webhooks-hmac", "secret_refs": (f"file:{place}",)}
    place.write_text(SECRET)
    world.put(**references)
    before = await world.find()
    place.write_text(f"whsec_{b64encode(b'another' * 4).decode()}")
    world.put(**references)
    after = await world.find()

    assert before.outfit.signer is not after.outfit.signer


async def test_a_disabled_target_needs_no_secret(world):
    world.put(**SIGNED, enabled=False)

    with capture_logs() as lines:
        assert not (await world.find()).enabled

    assert [] == lines


async def test_tls_files_that_are_missing_are_waited_for(world):
    """
    The client certificate is a secret too: never called without it.
    """
    world.put(tls_cert_file="/none.pem", tls_key_file="/none.key")

    assert UNAVAILABLE == await world.find()


async def test_inboxes_wait_for_their_key_and_are_signed_by_it(tmp_path):
    """
    C-09: RFC 9421 for ActivityPub inboxes.
    """
    place = tmp_path / "key.pem"
    world = RegistryWorld(
        InboxSigning(
            key_id="https://a.example/al#main-key",
            reference=f"file:{place}",
            signing=Signing.RFC9421,
        )
    )
    assert UNAVAILABLE == await world.find_inbox()

    place.write_text(ED25519_KEY)
    world.time.s += LOOK_AGAIN_S
    found = await world.find_inbox()

    assert isinstance(found.outfit.signer, HttpMessage)
    assert found is await world.find_inbox(), "made once"


async def test_inboxes_are_unsigned_without_a_key(world):
    assert (await world.find_inbox()).outfit.signer is None


async def test_inboxes_of_one_server_share_their_connections(world):
    """
    1,000 inboxes of one server need no 1,000 connections.
    """
    keys = {
        (await world.find_inbox(f"https://b.example/users/{n}/inbox")).outfit.pool_key
        for n in range(3)
    }

    assert {"default\x00https://b.example:443"} == keys


# ── HTTP/2 ──


async def test_a_target_over_http2_has_a_transport_of_its_own(world):
    world.put(http2=True)

    found = await world.find()

    assert found.outfit.poster is not world.poster
    await found.outfit.poster.close()


async def test_a_replaced_transport_is_closed_after_its_longest_call(world, monkeypatch):
    """
    A change of the record must not cut off the calls under way.
    """
    monkeypatch.setattr(outfit, "RETIRE_MARGIN_S", 0.0)
    world.put(http2=True, policy_overrides={"timeout_ms": 1})
    before = await world.find()
    closed: list[bool] = []
    before.outfit.poster._transport.aclose = _noting(closed)
    world.put()

    assert [] == closed
    await until(lambda: closed)


def _noting(closed):
    async def close():
        closed.append(True)

    return close


async def test_keys_stand_in_no_repr(world, monkeypatch):
    """
    D-043: a target may be printed by a test, a debugger, a log line.
    """
    monkeypatch.setenv("CRM_SECRET", SECRET)
    world.put(**SIGNED)

    assert "outfit" not in repr(await world.find())
