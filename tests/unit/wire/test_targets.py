"""The registry's records survive the wire."""

import pytest

from streams.errors import RecordError
from streams.wire.avro import Codec
from streams.wire.targets import (
    TargetRecord,
    TargetState,
    decode_target,
    decode_target_state,
    encode_target,
    encode_target_state,
)

TARGET = TargetRecord(
    name="crm",
    tenant="acme",
    url="https://crm.example/hook",
    idempotent=True,
    policy="activity",
    policy_overrides={"max_attempts": 3},
    verdicts={404: "retry"},
    retryable=(429, 503),
    headers={"x-team": "crm"},
    secret_refs=("crm-new", "crm-old"),
    signing="standard-webhooks",
    rate_per_s=2.5,
    message_id_from="/id",
    http2=True,
    enabled=False,
    updated_ms=3,
)


def test_a_target_comes_back_as_it_was_written():
    assert decode_target(encode_target(TARGET)) == TARGET


@pytest.mark.parametrize("retryable", [None, (), (503,), (429, 503)])
def test_no_set_of_statuses_differs_from_an_empty_one(retryable):
    """
    C-04, O-027: an empty retryable set gives the strict rule, none the table's.
    """
    target = TargetRecord(name="crm", tenant="acme", url="https://x.example/", retryable=retryable)

    assert retryable == decode_target(encode_target(target)).retryable


def test_a_target_whose_statuses_are_no_numbers_is_refused():
    value = Codec("target").encode({"name": "crm", "verdicts": {"canary": "retry"}})

    with pytest.raises(RecordError) as refused:
        decode_target(value)

    assert "record_invalid" == refused.value.code
    assert "canary" not in str(refused.value)


def test_a_targets_state_comes_back_as_it_was_written():
    state = TargetState(disabled=True, code="http_410", at_ms=1_767_225_600_000)

    assert decode_target_state(encode_target_state(state)) == state
