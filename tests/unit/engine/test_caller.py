"""The request that a target sees, byte for byte (interface.md §4), and what is told of the answer."""

from __future__ import annotations

import time
from base64 import b64encode

import pytest
import standardwebhooks

from streams.edge.telemetry import Metrics
from streams.engine.caller import HttpCaller
from streams.model.verdict import Verdict
from tests.unit.engine.fakes import NOW_MS, RegistryWorld, activity, claimed

SECRET = f"whsec_{b64encode(b'canary-' * 4).decode()}"


@pytest.fixture
def world():
    return RegistryWorld()


@pytest.fixture
def gone():
    return []


@pytest.fixture
def caller(world, gone):
    return HttpCaller(world.time, Metrics(), on_gone=lambda *told: gone.append(told))


async def test_a_request_carries_what_the_contract_says(world, caller):
    """
    Interface §4; C-12: id and idempotency key are one.
    """
    world.put(headers={"X-Team": "crm"})
    await caller.call(await world.find(), activity(b"{}"), claimed(attempts=3))
    (call,) = world.poster.calls

    assert (
        (b"content-type", b"application/activity+json"),
        (b"webhook-id", b"dlv_1-1"),
        (b"idempotency-key", b"dlv_1-1"),
        (b"webhook-timestamp", b"%d" % (NOW_MS // 1_000 + 1_000)),
        (b"outbox-attempt", b"3"),
        (b"user-agent", b"outbox/1"),
        (b"x-team", b"crm"),
    ) == call.headers
    assert b"{}" == call.body


async def test_a_request_is_signed_where_the_target_has_a_secret(world, caller, monkeypatch):
    """
    Interface §4, C-09: over the very id, time and body that are sent.
    """
    monkeypatch.setenv("CRM_SECRET", SECRET)
    world.put(secret_refs=("env:CRM_SECRET",))
    world.time.s = time.time() - NOW_MS / 1_000
    await caller.call(await world.find(), activity(), claimed())
    (call,) = world.poster.calls
    headers = {name.decode(): value.decode() for name, value in call.headers}

    assert {"type": "Create"} == standardwebhooks.Webhook(SECRET).verify(call.body, headers)


async def test_what_the_target_says_of_its_call_reaches_the_transport(world, caller):
    """
    D-071, C-02: where the message id stands, and how long a call may take.
    """
    world.put(message_id_from="json:/id", policy_overrides={"timeout_ms": 1_234})
    await caller.call(await world.find(), activity(), claimed())
    (call,) = world.poster.calls

    assert ("json:/id", 1_234, "default\x00crm") == (
        call.message_id_from,
        call.timeout_ms,
        call.target,
    )


async def test_a_410_is_told(world, caller, gone):
    """
    Spec §3: the target is disabled.
    """
    world.put()
    world.poster.status = 410
    target = await world.find()
    judgement = await caller.call(target, activity(), claimed())

    assert Verdict.REFUSED is judgement.verdict
    assert [(target, "http_410")] == gone


async def test_a_410_that_the_target_reads_otherwise_is_not_told(world, caller, gone):
    """
    C-04: its own verdict wins.
    """
    world.put(verdicts={410: "sent"})
    world.poster.status = 410
    await caller.call(await world.find(), activity(), claimed())

    assert [] == gone
