"""What may be said of a target: one set of rules, for `outbox targets` and for the worker."""

from __future__ import annotations

import math
from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.edge.http.call import Wanted, wanted
from streams.errors import TargetError
from streams.model.policy import ACTIVITY, NOTIFICATION
from streams.model.target import Signing, Target, TargetRecord, Tls
from streams.model.values import replace
from streams.rules.targets import inbox_target, is_parked, registered_target

POLICIES = {"activity": ACTIVITY, "notification": NOTIFICATION}
RECORD = TargetRecord(name="crm", tenant="acme", url="https://crm.example/hook")


def put(**changes):
    return registered_target(replace(RECORD, **changes), POLICIES, ())


def test_a_target_without_further_fields_has_the_defaults():
    """
    C-03: not idempotent; C-02: the `notification` policy; C-09: unsigned without a secret.
    """
    expected = Target(
        key="crm",
        tenant="acme",
        url="https://crm.example/hook",
        idempotent=False,
        policy=NOTIFICATION,
    )

    assert expected == put()


def test_every_field_reaches_the_target():
    made = put(
        idempotent=True,
        policy="activity",
        policy_overrides={"max_attempts": 3},
        verdicts={409: "sent"},
        retryable=(429,),
        headers={"X-Team": "crm"},
        secret_refs=("env:CRM_NEW", "file:/run/secrets/crm"),
        signing="standard-webhooks-hmac",
        rate_per_s=2.5,
        message_id_from="json:/id",
        tls_cert_file="/tls/crm.pem",
        tls_key_file="/tls/crm.key",
        tls_ca_file="/tls/ca.pem",
        http2=True,
        enabled=False,
    )

    expected = Target(
        key="crm",
        tenant="acme",
        url="https://crm.example/hook",
        idempotent=True,
        policy=replace(ACTIVITY, max_attempts=3),
        verdicts={409: "sent"},
        retryable=frozenset({429}),
        headers=((b"x-team", b"crm"),),
        signing=Signing.WEBHOOKS_HMAC,
        secret_refs=("env:CRM_NEW", "file:/run/secrets/crm"),
        rate_per_s=2.5,
        message_id_from="json:/id",
        tls=Tls(cert_file="/tls/crm.pem", key_file="/tls/crm.key", ca_file="/tls/ca.pem"),
        http2=True,
        enabled=False,
    )
    assert expected == made


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"name": "a/b"}, "name"),
        ({"name": ""}, "name"),
        ({"tenant": "a|b"}, "tenant"),
        ({"url": "ftp://crm.example/"}, "url"),
        ({"url": "http://10.0.0.1/"}, "forbidden address"),
        ({"policy": "canary"}, "policy"),
        ({"policy_overrides": {"canary": 1}}, "policy field"),
        ({"policy_overrides": {"timeout_ms": 60_000}}, "lease_ms"),
        ({"verdicts": {99: "retry"}}, "verdicts"),
        ({"verdicts": {404: "skipped"}}, "verdicts"),
        ({"retryable": (503,)}, "retryable"),
        ({"signing": "canary"}, "signing"),
        ({"signing": "standard-webhooks-hmac"}, "secret_refs"),
        ({"secret_refs": ("whsec_canary",)}, "secret_refs"),
        ({"secret_refs": ("file:relative",)}, "secret_refs"),
        ({"signing": "rfc9421", "secret_refs": ("env:K",)}, "key_id"),
        ({"signing": "cavage", "secret_refs": ("env:K",), "key_id": 'a"b'}, "key_id"),
        ({"signing": "rfc9421", "secret_refs": ("env:K", "env:L"), "key_id": "k"}, "one key"),
        ({"rate_per_s": -1.0}, "rate_per_s"),
        ({"rate_per_s": math.nan}, "rate_per_s"),
        ({"rate_per_s": math.inf}, "rate_per_s"),
        ({"message_id_from": "/id"}, "message_id_from"),
        ({"message_id_from": "header:"}, "message_id_from"),
        ({"tls_cert_file": "/a.pem"}, "together"),
        ({"tls_ca_file": "ca.pem"}, "absolute"),
        ({"tls_ca_file": "/ca.pem", "url": "http://crm.example/"}, "https"),
    ],
)
def test_a_broken_rule_is_named(changes, rule):
    """
    Issue 5: the same validation everywhere, and one clear message.
    """
    with pytest.raises(TargetError, match=rule):
        put(**changes)


@pytest.mark.parametrize(
    "name",
    [
        "Host", "content-length", "Transfer-Encoding", "connection", "accept-encoding",
        "content-type", "user-agent", "webhook-id", "Webhook-Anything", "idempotency-key",
        "outbox-attempt", "signature", "signature-input", "content-digest", "digest", "date",
        "expect", "upgrade",
    ],
)  # fmt: skip
def test_a_header_that_the_worker_writes_is_refused(name):
    """
    Interface §4: said twice, the target would read one and a proxy the other.
    """
    with pytest.raises(TargetError, match="written by the worker itself"):
        put(headers={name: "x"})


@pytest.mark.parametrize("name", ["Authorization", "X-Api-Key", "Cookie"])
def test_a_header_that_would_hold_a_credential_is_refused(name):
    """
    D-042: the registry holds references to secrets and none of them.
    """
    with pytest.raises(TargetError, match="credential") as refused:
        put(headers={name: "canary"})

    assert "canary" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value"), [("a b", "c"), ("a", "c\r\nd: e"), ("a", ""), ("a", "ü"), ("", "b")]
)
def test_a_header_that_is_none_is_refused(name, value):
    """
    C-14: a line break would forge a header, or a whole request.
    """
    with pytest.raises(TargetError, match="headers"):
        put(headers={name: value})


def test_a_private_address_is_taken_where_a_setting_allows_it():
    """
    C-10.
    """
    record = replace(RECORD, url="http://10.0.0.1/")

    assert registered_target(record, POLICIES, (ip_network("10.0.0.0/8"),)).url == record.url


@given(st.text(max_size=40) | st.from_regex(r"(header|json):\S{0,20}", fullmatch=True))
def test_what_the_rule_takes_the_transport_can_read(text):
    """
    D-071: one rule, at admission; no call may fail for it later.
    """
    try:
        target = put(message_id_from=text)
    except TargetError:
        return

    assert (wanted(target.message_id_from) == Wanted()) is (target.message_id_from is None)


def test_an_inbox_is_idempotent_and_has_the_activity_policy():
    """
    C-03, C-02.
    """
    made = inbox_target("https://b.example/inbox", "default", POLICIES)

    assert (True, ACTIVITY) == (made.idempotent, made.policy)


@pytest.mark.parametrize(
    ("enabled", "updated_ms", "disabled", "disabled_ms", "parked"),
    [
        (True, 5, False, 0, False),
        (False, 5, False, 0, True),
        (True, 5, True, 6, True),
        (True, 5, True, 5, False),
        (True, 7, True, 6, False),
        (True, 5, False, 6, False),
    ],
)
def test_an_operators_newer_record_wins_over_our_own_state(
    enabled, updated_ms, disabled, disabled_ms, parked
):
    """
    Spec §3: a 410 disables; who puts the target anew has seen to it.
    """
    assert parked == is_parked(
        enabled=enabled, updated_ms=updated_ms, disabled=disabled, disabled_ms=disabled_ms
    )
