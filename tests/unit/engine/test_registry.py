"""The registry of one worker: what it finds, what it parks, what it writes, and what waits for a secret."""

from __future__ import annotations

from base64 import b64encode

import pytest
from structlog.testing import capture_logs

from streams.engine.outfit import Equipped
from streams.model.ledger import FailurePhase
from streams.model.policy import ACTIVITY
from streams.rules.decide import Turned
from streams.wire.targets import TargetState, encode_target_state
from tests.unit.engine.fakes import RegistryWorld

SECRET = f"whsec_{b64encode(b'canary-' * 4).decode()}"
SIGNED = {"signing": "standard-webhooks-hmac", "secret_refs": ("env:CRM_SECRET",)}


@pytest.fixture
def world():
    return RegistryWorld()


async def test_a_name_that_nobody_put_is_turned_away(world):
    """
    Issue 5: `admission`/`unknown_target`.
    """
    assert Turned(FailurePhase.ADMISSION, "unknown_target") == await world.find()


async def test_a_target_is_found_ready_to_be_called(world):
    world.put(headers={"x-team": "crm"}, message_id_from="header:x-id")

    found = await world.find()

    assert isinstance(found, Equipped)
    assert ("crm", True, "header:x-id") == (found.key, found.enabled, found.message_id_from)
    assert ((b"user-agent", b"outbox/1"), (b"x-team", b"crm")) == found.outfit.headers
    assert found is await world.find(), "made once, not for each delivery"


async def test_a_target_of_another_tenant_is_another_target(world):
    world.put(tenant="acme")

    assert isinstance(await world.find(), Turned)
    assert isinstance(await world.find(tenant="acme"), Equipped)


async def test_a_changed_target_is_found_changed(world):
    """
    Issue 5: hot reload without restart.
    """
    world.put()
    before = await world.find()
    world.put(url="https://new.example/hook")

    assert "https://crm.example/hook" == before.url
    assert "https://new.example/hook" == (await world.find()).url


async def test_the_longest_lease_is_that_of_any_target_since_the_start(world):
    """
    faust.md §8: a delivery may take its lease; a target that is gone may still be called for so long.
    """
    before = world.registry.longest_lease_ms
    world.put(policy_overrides={"lease_ms": 400_000, "timeout_ms": 300_000})
    world.take("default/crm", None)

    assert (ACTIVITY.lease_ms, 400_000) == (before, world.registry.longest_lease_ms)


async def test_a_removed_target_is_unknown(world):
    world.put()
    world.take("default/crm", None)

    assert isinstance(await world.find(), Turned)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"headers": {"host": "x"}}, "target_invalid"),
        ({"signing": "canary"}, "target_invalid"),
        ({"url": "http://10.0.0.1/"}, "address_forbidden"),
    ],
)
async def test_a_record_that_breaks_a_rule_is_turned_away(world, fields, code):
    """
    Issue 5: the worker holds a record to the rules of `outbox targets`, whoever wrote it.
    """
    world.put(**fields)

    with capture_logs() as lines:
        found = await world.find()
        await world.find()

    assert Turned(FailurePhase.ADMISSION, code) == found
    assert ["target.invalid"] == [line["event"] for line in lines], "one line, not one a delivery"


# ── Parked ──


async def test_a_disabled_target_is_found_disabled(world):
    world.put(enabled=False)

    assert not (await world.find()).enabled


async def test_a_410_disables_the_target_at_once_and_for_all_workers(world):
    """
    Spec §3: by an event under a key of our own.
    """
    world.put(updated_ms=5)
    world.registry.gone(await world.find(), "http_410")

    assert not (await world.find()).enabled
    assert {
        "default/crm/state": TargetState(disabled=True, code="http_410", at_ms=world.time.now_ms())
    } == world.states


async def test_a_410_is_written_once(world):
    """
    O-005: twenty calls under way may all come back with it.
    """
    world.put()
    found = await world.find()
    world.registry.gone(found, "http_410")
    world.registry.gone(found, "http_410")

    assert 1 == len(world.written)


async def test_a_410_of_the_url_before_changes_nothing(world):
    """
    The operator has put another URL while the call was under way.
    """
    world.put()
    before = await world.find()
    world.put(url="https://new.example/hook")
    world.registry.gone(before, "http_410")

    assert [] == world.written


async def test_an_inbox_that_is_gone_is_not_disabled(world):
    """
    Nobody could enable it again: its deliveries would wait for nothing.
    """
    world.registry.gone(await world.find_inbox(), "http_410")

    assert [] == world.written
    assert isinstance(await world.find_inbox(), Equipped)


async def test_a_state_of_ours_holds_over_a_restart(world):
    """
    Issue 5: it is read before the first delivery, before or after the operator's record.
    """
    state = encode_target_state(TargetState(disabled=True, code="http_410", at_ms=6))
    world.take("default/crm/state", state)
    world.put(updated_ms=5)

    assert not (await world.find()).enabled


async def test_a_410_outdates_a_record_of_the_future(world):
    """
    The clock of whoever put it is ahead; the 410 is later all the same.
    """
    world.put(updated_ms=world.time.now_ms() + 60_000)
    world.registry.gone(await world.find(), "http_410")
    world.echo()

    assert not (await world.find()).enabled


@pytest.mark.parametrize("way", ["put", "tombstone"])
async def test_an_operators_newer_word_releases(world, way):
    """
    Issue 5: `outbox targets put` clears the state; a newer record wins over an older one.
    """
    world.put(updated_ms=5)
    world.registry.gone(await world.find(), "http_410")
    world.echo()
    if way == "put":
        world.put(updated_ms=world.time.now_ms() + 1)
    else:
        world.take("default/crm/state", None)

    assert (await world.find()).enabled
    assert ["crm"] == world.released


async def test_enabling_releases_and_other_changes_do_not(world):
    world.put(updated_ms=1)
    world.put(updated_ms=2)
    world.put(updated_ms=3, enabled=False)
    world.put(updated_ms=4, enabled=False)

    assert [] == world.released

    world.put(updated_ms=5)

    assert ["crm"] == world.released


async def test_a_target_named_state_is_a_target(world):
    world.put(name="state")

    assert isinstance(await world.find("state"), Equipped)


async def test_an_unreadable_record_leaves_the_target_as_it_was(world):
    world.put()
    with capture_logs() as lines:
        world.take("default/crm", b"canary")

    assert isinstance(await world.find(), Equipped)
    assert "canary" not in str(lines)
