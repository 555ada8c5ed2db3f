"""`outbox targets` against a real broker, read back as a worker reads it (interface.md §1)."""

from __future__ import annotations

import asyncio
import json

import pytest
from typer.testing import CliRunner

from streams import topics
from streams.__main__ import build
from streams.cli.targets import write_registry
from streams.edge.addresses import Resolver
from streams.edge.clock import Clock
from streams.edge.http.transport import Transport
from streams.edge.receiver import Receiver
from streams.engine.outfit import Outfitter
from streams.engine.registry import Registry
from streams.errors import TargetError
from streams.model.activity import Recipient
from streams.model.target import Target
from streams.rules.decide import Turned
from streams.wire.targets import TargetState, encode_target_state
from tests.conftest import SettingsFor


@pytest.fixture
def settings(settings_for: SettingsFor, kafka: str, prefix: str):
    found = settings_for(
        brokers=kafka, prefix=prefix, partitions=1, replication=1, allow_networks="127.0.0.0/8"
    )
    asyncio.run(topics.apply(found))
    return found


@pytest.fixture
def targets(settings):
    """Run `outbox targets …` in this process: a test of several commands stays quick."""

    def run(*arguments):
        return CliRunner().invoke(build(), ["targets", *arguments])

    return run


async def found_by_a_worker(settings, tenant, name):
    clock, resolver = Clock(), Resolver(allowed_networks=settings.allow_networks)
    transport = Transport(resolver=resolver)
    registry = Registry(
        topics.names(settings.prefix).targets,
        settings.kafka_options(),
        settings.policies,
        settings.allow_networks,
        outfitter=Outfitter(transport, resolver, clock),
        append=lambda _key, _value: None,
        time=clock,
    )
    await registry.load()
    found = await registry.find(tenant, Recipient(target=name))
    await transport.close()
    return found


def test_what_is_put_is_what_a_worker_calls(targets, settings):
    """C-02, C-03, C-04: URL, policy with its overrides, idempotence and verdicts, per tenant."""
    put = targets(
        *("put", "crm", "--url", "http://127.0.0.1:9000/ok", "--tenant", "acme", "--idempotent"),
        *("--policy", "activity", "--set", "max_attempts=3", "--set", "verdict.503=retry"),
        *("--set", "retryable=408", "--json"),
    )

    target = asyncio.run(found_by_a_worker(settings, "acme", "crm"))
    other = asyncio.run(found_by_a_worker(settings, "default", "crm"))
    assert (0, "") == (put.exit_code, put.stderr)
    assert ("acme", {"max_attempts": 3}) == (
        (facts := json.loads(put.stdout))["tenant"],
        facts["policy_overrides"],
    )
    assert isinstance(target, Target)
    assert ("http://127.0.0.1:9000/ok", True, 3, {503: "retry"}, {408}) == (
        target.url,
        target.idempotent,
        target.policy.max_attempts,
        target.verdicts,
        set(target.retryable or ()),
    )
    assert isinstance(other, Turned)


def test_put_replaces_and_update_keeps(targets):
    """A full replacement is what a deployment wants; `--update` is for one field."""
    whole = ("put", "crm", "--url", "http://127.0.0.1:9000/ok")
    targets(*whole, "--idempotent", "--set", "max_attempts=3")
    updated = targets("put", "crm", "--update", "--set", "timeout_ms=1000", "--json")
    replaced = targets(*whole, "--json")
    unknown = targets("put", "new", "--update", "--idempotent")
    without_url = targets("put", "new")

    assert {"max_attempts": 3, "timeout_ms": 1000} == (facts := json.loads(updated.stdout))[
        "policy_overrides"
    ]
    assert facts["idempotent"] is True
    assert ({}, False) == (
        (facts := json.loads(replaced.stdout))["policy_overrides"],
        facts["idempotent"],
    )
    assert (1, 2) == (unknown.exit_code, without_url.exit_code)


def test_what_a_worker_would_refuse_is_not_put(targets):
    """C-10: the rule that is broken, and exit 1; nothing is written."""
    refused = targets("put", "crm", "--url", "http://127.1.2.3:9000/ok", "--policy", "sometimes")
    forbidden = targets("put", "crm", "--url", "http://10.0.0.1/ok")
    listed = targets("list", "--json")

    assert [] == json.loads(listed.stdout)
    assert "policy: must be one of" in str(refused.exception)
    assert "forbidden address" in str(forbidden.exception)
    assert isinstance(refused.exception, TargetError)


def test_targets_are_listed_shown_and_removed_per_tenant(targets, settings):
    """interface.md §1; an unknown name is a clear line and exit 1."""
    for tenant in ("default", "acme"):
        targets("put", "crm", "--url", f"http://127.0.0.1:9000/ok/{tenant}", "--tenant", tenant)
    everyone = targets("list")
    acme = targets("list", "--tenant", "acme", "--json")
    shown = targets("show", "crm", "--tenant", "acme")
    removed = targets("remove", "crm", "--tenant", "acme")
    gone = targets("show", "crm", "--tenant", "acme")
    twice = targets("remove", "crm", "--tenant", "acme")

    assert 2 == len(everyone.stdout.splitlines())
    assert [("acme", "crm")] == [(t["tenant"], t["name"]) for t in json.loads(acme.stdout)]
    assert "url=http://127.0.0.1:9000/ok/acme" in shown.stdout.splitlines()
    assert (0, 1, 1) == (removed.exit_code, gone.exit_code, twice.exit_code)
    assert "there is no target crm of tenant acme: outbox targets list" == str(gone.exception)
    assert isinstance(asyncio.run(found_by_a_worker(settings, "acme", "crm")), Turned)


def test_a_target_that_was_left_alone_is_called_again_once_it_is_put(targets, settings):
    """spec §3: a 410 disables it; putting it anew is how an operator enables it."""
    put = ("put", "crm", "--url", "http://127.0.0.1:9000/ok", "--json")
    targets(*put)
    later = TargetState(disabled=True, code="http_410", at_ms=2**50)
    state = encode_target_state(later)
    asyncio.run(write_registry(settings, {"default/crm/state": state}))
    before = targets("show", "crm", "--json")
    targets(*put)
    after = targets("show", "crm", "--json")

    assert ("http_410", None) == tuple(
        json.loads(run.stdout)["disabled"] for run in (before, after)
    )


def test_a_target_named_state_is_a_target(targets, settings):
    """Our own knowledge of a target lies under `tenant/name/state`: no name may hide there."""
    targets("put", "state", "--url", "http://127.0.0.1:9000/ok")

    assert isinstance(asyncio.run(found_by_a_worker(settings, "default", "state")), Target)


async def test_a_test_call_is_one_marked_call(targets):
    """interface.md §1: shows what came back; exit 1 unless it was a 2xx; no answer is kept (D-043)."""
    async with Receiver() as receiver:
        results = {}
        for name in ("ok", "status/503", "reset"):
            put = ("put", "crm", "--url", receiver.url(f"/{name}"), "--set", "header.X-Team=al")
            await asyncio.to_thread(targets, *put)
            results[name] = await asyncio.to_thread(targets, "test", "crm", "--json")
        text = await asyncio.to_thread(targets, "test", "crm")
        calls = receiver.calls

    facts = {name: json.loads(run.stdout) for name, run in results.items()}
    assert [0, 1, 1] == [run.exit_code for run in results.values()]
    assert [(200, "sent"), (503, "ambiguous"), (None, "ambiguous")] == [
        (each["status"], each["verdict"]) for each in facts.values()
    ]
    assert {"stage": "read", "code": "read_reset"} == facts["reset"]["fault"]
    assert "default/crm fault=read/read_reset verdict=ambiguous" in text.stdout
    headers = dict(calls[0].headers)
    assert (4, b'{"type":"OutboxTest"}', "1", "al") == (
        len(calls),
        calls[0].body,
        headers["outbox-test"],
        headers["x-team"],
    )
    assert headers["webhook-id"].startswith("test_")
