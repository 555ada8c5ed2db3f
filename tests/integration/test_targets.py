"""Targets as operators change them under a running worker: gone and back, unsigned never, paced, unknown."""

from __future__ import annotations

import asyncio
import json
import time
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import standardwebhooks

from streams.model.ledger import FailurePhase
from streams.model.receipt import Outcome
from streams.rules.decide import EffectMode
from streams.wire.commands import Redrive, encode_command
from tests.integration.world import Produced, World

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]

SECRET = f"whsec_{b64encode(b'canary-' * 4).decode()}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with World(kafka, tmp_path_factory.mktemp("targets")) as world:
        await world.work()
        yield world


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def parked(world: World, *activities: Produced) -> bool:
    """Whether a parked record of each waits in the delay topic."""
    keys = {r.key for r in world.retries if all(item.parked_since_ms for item in r.items)}
    return keys >= {activity.key for activity in activities}


async def test_a_410_parks_what_is_owed_until_the_target_is_put_anew(world: World) -> None:
    """Spec §3, C-17: nothing is called, lost or spent; enabled again, it goes within seconds."""
    first = world.to_target("urn:gone:1", "gone")
    others = [world.to_target(f"urn:gone:{n}", "gone") for n in (2, 3, 4)]
    await world.register("gone", "/status/410/gone", updated_ms=now_ms())

    await world.produce(first)
    await world.until_settled(first)
    await world.produce(*others)
    await world.until(lambda: parked(world, *others), "a parked record of each")

    assert ("http_410", FailurePhase.REJECTED_PERMANENT) == (
        world.letter(first).code,
        world.letter(first).failure_phase,
    )
    assert 1 == len(world.calls("/status/410/gone"))

    await world.register("gone", "/ok/back", updated_ms=now_ms())
    await world.until(lambda: len(world.calls("/ok/back")) == 3, "the calls", within_s=15)
    await world.until_settled(*others)

    receipts = [world.receipts[activity.activity_id] for activity in others]
    assert [[(Outcome.SENT, 1)]] * 3 == [[(r.verdict, r.attempts) for r in rs] for rs in receipts]


async def test_a_410_writes_a_state_of_our_own(world: World) -> None:
    """Issue 5: under its own key, so that the operator's record stands as it was put."""
    activity = world.to_target("urn:state:1", "state")
    await world.register("state", "/status/410/state", updated_ms=now_ms())
    await world.produce(activity)
    await world.until_settled(activity)
    shown = await asyncio.to_thread(world.command, "targets", "show", "state", "--json")

    facts = json.loads(shown.stdout)
    assert ("http_410", world.url("/status/410/state")) == (facts["disabled"], facts["url"])


async def test_an_operator_parks_and_releases_a_target(world: World) -> None:
    """Issue 5: `enabled`, without a restart."""
    activity = world.to_target("urn:off:1", "off")
    await world.register("off", "/ok/off", enabled=False, updated_ms=1)
    await world.produce(activity)
    await world.until(lambda: parked(world, activity), "a parked record")

    assert [] == world.calls("/ok/off")

    await world.register("off", "/ok/off", updated_ms=2)
    await world.until_settled(activity)

    assert [1] == [call.attempt for call in world.calls("/ok/off")]


async def test_what_cannot_be_signed_waits_until_it_can(world: World, tmp_path: Path) -> None:
    """Issue 5, C-09, D-042: never sent unsigned; the line names the reference and not the secret."""
    place = tmp_path / "crm"
    activity = world.to_target("urn:signed:1", "signed")
    await world.register(
        "signed",
        "/ok/signed",
        signing="standard-webhooks-hmac",
        secret_refs=(f"file:{place}",),
    )
    await world.produce(activity)
    worker = world.workers[0]
    await world.until(lambda: worker.events("target.secret_unavailable"), "the ERROR line")
    await world.until(
        lambda: any(r.key == activity.key for r in world.retries), "a record that waits"
    )

    assert [] == world.calls("/ok/signed")
    (line,) = worker.events("target.secret_unavailable")
    assert ("error", f"file:{place}" in line["reason"]) == (line["level"], True)

    place.write_text(f"{SECRET}\n")
    await world.until_settled(activity)

    (call,) = world.calls("/ok/signed")
    standardwebhooks.Webhook(SECRET).verify(call.body, dict(call.headers), json_parse=False)
    assert 1 == call.attempt
    assert "canary" not in worker.output
    assert SECRET not in worker.output


async def test_a_target_is_called_no_faster_than_it_was_told(world: World) -> None:
    """Issue 5: `rate_per_s`; over the rate a delivery steps aside and spends no attempt."""
    activities = [world.to_target(f"urn:paced:{n}", "paced") for n in range(12)]
    await world.register("paced", "/ok/paced", rate_per_s=5.0)
    await world.produce(*activities)
    await world.until_settled(*activities)

    calls = world.calls("/ok/paced")
    at = sorted(call.t for call in calls)
    assert [1] * 12 == [call.attempt for call in calls]
    # Ten gaps of 200 ms and a tenth of slack for the way; a worker without a rate takes 50 ms.
    assert at[-1] - at[0] >= 2.0


async def test_headers_and_message_id_of_a_target_are_used(world: World) -> None:
    """Interface §4: its own headers go along, none of ours is lost."""
    activity = world.to_target("urn:headers:1", "headers")
    await world.register("headers", "/ok/headers", headers={"X-Team": "crm"})
    await world.produce(activity)
    await world.until_settled(activity)

    (call,) = world.calls("/ok/headers")
    sent = dict(call.headers)
    assert "crm" == sent["x-team"]
    assert {"webhook-id", "webhook-timestamp", "idempotency-key", "outbox-attempt"} <= sent.keys()


async def test_an_unknown_target_is_delivered_once_it_exists_and_is_redriven(world: World) -> None:
    """Issue 5, D-066: dead-lettered `admission`/`unknown_target`; redriven and replayed, it goes."""
    activity = world.to_target("urn:late:1", "late")
    await world.produce(activity)
    await world.until_settled(activity)
    await world.until(lambda: activity.key.decode() in world.letters, "the dead letter")
    letter = world.letter(activity)

    assert (FailurePhase.ADMISSION, "unknown_target") == (letter.failure_phase, letter.code)

    await world.register("late", "/ok/late")
    command = Redrive(
        letter_id=letter.dead_letter_id, mode=EffectMode.RECONCILE_REPLAY, audit_id="a"
    )
    await world.write(
        [(activity.key, world.home(activity), encode_command(command))], world.topics.commands
    )
    await world.until(lambda: world.letters[activity.key.decode()] is None, "the tombstone")
    await world.produce(activity)
    await world.until(lambda: world.calls("/ok/late"), "the call")

    assert 1 == len(world.calls("/ok/late"))
