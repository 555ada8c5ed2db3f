"""What `--set` may say of a target, what is refused, and what is shown of one."""

from __future__ import annotations

from ipaddress import ip_network

import pytest
from aiokafka import ConsumerRecord

from streams.cli.target_fields import facts_of, line_of, lines_of, with_settings
from streams.cli.targets import RegistryView
from streams.errors import TargetError
from streams.model.policy import ACTIVITY, NOTIFICATION
from streams.rules.targets import registered_target
from streams.wire.targets import TargetRecord, TargetState, encode_target, encode_target_state

POLICIES = {"activity": ACTIVITY, "notification": NOTIFICATION}


def record(**fields):
    return TargetRecord(
        **{"name": "crm", "tenant": "default", "url": "https://crm.example/hook"} | fields
    )


def entry(key, value, offset=0):
    return ConsumerRecord("t", 0, offset, 0, 0, key, value, None, 0, 0, ())


def test_every_field_of_a_target_can_be_set():
    """interface.md §1: `--set k=v`."""
    pairs = (
        "max_attempts=3",
        "verdict.503=retry",
        "header.X-Team=al",
        "enabled=false",
        "rate_per_s=2.5",
        "message_id_from=json:/id",
        "retryable=429,408",
        "signing=rfc9421",
        "secret_refs=env:A,file:/b",
        "key_id=k",
        "tls_ca_file=/ca.pem",
        "http2=true",
    )

    assert record(
        policy_overrides={"max_attempts": 3},
        verdicts={503: "retry"},
        headers={"x-team": "al"},
        enabled=False,
        rate_per_s=2.5,
        message_id_from="json:/id",
        retryable=(408, 429),
        signing="rfc9421",
        secret_refs=("env:A", "file:/b"),
        key_id="k",
        tls_ca_file="/ca.pem",
        http2=True,
    ) == with_settings(record(), pairs)


def test_an_empty_value_takes_back_what_was_set():
    """With `--update` there is no other way to return to the policy's own value."""
    before = record(
        policy_overrides={"max_attempts": 3, "timeout_ms": 9},
        verdicts={503: "retry"},
        headers={"x-team": "al"},
        rate_per_s=2.5,
        message_id_from="json:/id",
        retryable=(408,),
    )
    names = ("max_attempts", "verdict.503", "header.X-Team", "rate_per_s", "message_id_from")

    assert record(policy_overrides={"timeout_ms": 9}) == with_settings(
        before, [f"{name}=" for name in (*names, "retryable")]
    )


def test_no_4xx_at_all_may_be_retried():
    """O-027: an empty set is the strict rule, and not the same as none set."""
    assert record(retryable=()) == with_settings(record(), ["retryable=none"])


@pytest.mark.parametrize(
    ("pair", "rule"),
    [
        ("max_attempts", "must be name=value"),
        ("max_attempts=many", "must be a whole number"),
        ("max_attempts=-1", "must be a whole number"),
        ("enabled=yes", "must be true or false"),
        ("rate_per_s=fast", "must be a number"),
        ("retryable=503", "must be statuses"),
        ("message_id_from=body", "must be header:NAME or json:/pointer"),
        ("header.X=a\r\nY: b", "must be those of an HTTP header"),
        ("header.webhook-id=a", "is written by the worker itself"),
        ("header.X-Api-Key=canary", "a credential must not stand in the registry"),
        ("secret_refs=canary", "must name where a secret is found"),
        ("signing=rot13", "signing: must be one of"),
        ("name=other", "must be enabled, header.NAME"),
    ],
)
def test_what_breaks_a_rule_is_refused_with_the_rule(pair, rule):
    """D-042: no credential in records; and none in the message either (D-043)."""
    with pytest.raises(TargetError, match=rule) as refused:
        registered_target(with_settings(record(), [pair]), POLICIES, ())

    assert "canary" not in str(refused.value)


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"name": "a/b"}, "name: must be"),
        ({"tenant": "a/b"}, "tenant: must be"),
        ({"url": "http://127.0.0.1/x"}, "forbidden address"),
        ({"url": "ftp://a.example/"}, "must start with http"),
        ({"policy": "sometimes"}, "policy: must be one of"),
        ({"verdicts": {503: "never"}}, "verdicts: must map"),
        ({"policy_overrides": {"timeout_ms": 60_000}}, "must not exceed lease_ms"),
    ],
)
def test_a_target_is_held_to_the_rules_that_a_worker_holds_it_to(fields, rule):
    """C-10, C-07: a target that is put is one that is called."""
    with pytest.raises(TargetError, match=rule):
        registered_target(record(**fields), POLICIES, ())


def test_an_allowed_network_may_be_called():
    """OUTBOX_ALLOW_NETWORKS, as in the worker."""
    url = "http://127.0.0.1:9000/ok"

    assert url == registered_target(record(url=url), POLICIES, [ip_network("127.0.0.0/8")]).url


def test_what_is_shown_of_a_target_hides_what_may_be_a_secret():
    """D-044, F07: a hook's URL can itself be the credential."""
    shown = facts_of(
        record(
            url="https://hooks.example/services/T0CANARY1/Zq3xCanaryCanary99?token=canary",
            headers={"x-secret": "canary", "x-team": "al"},
            secret_refs=("env:CRM_2026",),
        )
    )

    for text in (str(shown), line_of(shown), "\n".join(lines_of(shown))):
        assert "canary" not in text.lower()
    assert ("al", ["env:CRM_2026"]) == (shown["headers"]["x-team"], shown["secret_refs"])


def test_a_line_names_what_differs_from_the_policy():
    """`list` is read in a hurry."""
    shown = facts_of(
        record(
            policy_overrides={"max_attempts": 3},
            verdicts={503: "retry"},
            retryable=(),
            enabled=False,
        ),
        TargetState(disabled=True, code="http_410", at_ms=1),
    )

    assert (
        "default/crm url=https://crm.example/hook idempotent=false policy=notification"
        " max_attempts=3 verdict.503=retry retryable=none disabled=http_410 enabled=false"
    ) == line_of(shown)


def test_the_registry_is_what_its_last_records_say(capsys):
    """design.md §1: compacted by `tenant/name`, our own state under `tenant/name/state`."""
    view = RegistryView()
    crm, state = record(), TargetState(disabled=True, code="http_410", at_ms=1)

    view.take(
        [
            entry(b"default/crm", encode_target(record(policy="activity"))),
            entry(b"default/crm", encode_target(crm)),
            entry(b"default/crm/state", encode_target_state(state)),
            entry(b"acme/gone", encode_target(record(name="gone", tenant="acme"))),
            entry(b"acme/gone", None),
            entry(b"default/torn", b"\xc3", offset=7),
            entry(b"default/state", encode_target(record(name="state"))),
        ]
    )

    assert {"default/crm": crm, "default/state": record(name="state")} == view.targets
    assert {"default/crm": state} == view.states
    assert "t/0/7" in capsys.readouterr().err
    with pytest.raises(TargetError, match="there is no target gone of tenant acme"):
        view.find("acme", "gone")
