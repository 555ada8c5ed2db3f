"""Observations survive the wire."""

import pytest

from streams.model.ledger import FailurePhase, Phase
from streams.model.observation import Stage
from streams.model.observed import About, Downstream, Engagement, ProviderEvent
from streams.model.verdict import Verdict
from streams.wire.avro import Codec
from streams.wire.observations import (
    ADOPTED,
    PROVIDER,
    AttemptEncoder,
    ObservationRecord,
    decode_observation,
    encode_observation,
    event_of,
)
from streams.wire.values import fields_of

SEEN = ObservationRecord(
    activity_id="a",
    tenant="acme",
    delivery_id="dlv_1",
    target="crm",
    generation=1,
    attempt=2,
    verdict=Verdict.RETRY,
    code="connect_refused",
    observed_ms=9,
    stage=Stage.CONNECT,
    duration_ms=12,
)


def test_an_observation_comes_back_as_it_was_written():
    assert decode_observation(encode_observation(SEEN)) == SEEN


def test_what_a_newer_version_saw_is_read_as_effect_unknown():
    """
    G16: never as success, never as a fault before the call, never as a state that we know.
    """
    new = dict.fromkeys(
        ("verdict", "stage", "failure_phase", "state", "engagement", "about"), "new"
    )
    value = Codec("observation").encode({**fields_of(SEEN), **new})

    read = decode_observation(value)

    assert (
        Verdict.AMBIGUOUS,
        Stage.PROTOCOL,
        FailurePhase.AMBIGUOUS_POST_CALL,
        Downstream.UNKNOWN,
        Engagement.NONE,
        About.NOTHING,
    ) == (
        read.verdict,
        read.stage,
        read.failure_phase,
        read.state,
        read.engagement,
        read.about,
    )


@pytest.mark.parametrize(
    ("source", "stage", "failure_phase", "message_id"),
    [
        ("attempt", None, None, "m1"),
        (ADOPTED, Stage.READ, FailurePhase.AMBIGUOUS_POST_CALL, None),
    ],
)
def test_the_quick_writer_writes_what_the_plain_one_does(source, stage, failure_phase, message_id):
    """
    The worker's hot path: another way to the same bytes.
    """
    plain = encode_observation(
        ObservationRecord(
            activity_id="ü",
            tenant="acme",
            delivery_id="dlv_1",
            target="crm",
            generation=2,
            attempt=3,
            verdict=Verdict.SENT,
            code="http_200",
            observed_ms=1_767_225_600_000,
            source=source,
            status=200,
            stage=stage,
            duration_ms=7,
            budget=4,
            phase=Phase.SENT,
            failure_phase=failure_phase,
            provider_message_id=message_id,
            worker="w1",
        )
    )
    quick = AttemptEncoder("w1").encode(
        ("ü", "acme", "dlv_1", "crm"),
        (2, 3, source, Verdict.SENT, "http_200", 200, stage),
        (7, 1_767_225_600_000),
        (4, Phase.SENT, failure_phase),
        message_id,
    )

    assert plain == quick


def test_only_a_providers_entry_is_a_providers_event():
    """
    D-048: what an attempt of ours saw says nothing of a mailbox.
    """
    told = ProviderEvent(
        event_id="evt_1",
        provider="mail",
        provider_event_id="e",
        kind="bounce",
        subject="s",
        state=Downstream.BOUNCED,
        engagement=Engagement.OPENED,
        about=About.RECIPIENT,
        provider_code="5.1.1",
        summary="bounced",
        provider_ms=8,
        observed_ms=9,
        generation=2,
    )
    entry = ObservationRecord(
        activity_id="a",
        tenant="acme",
        delivery_id="dlv_1",
        target="",
        attempt=0,
        verdict=Verdict.SENT,
        code="",
        source=PROVIDER,
        **fields_of(told),
    )

    assert (None, told) == (event_of(SEEN), event_of(decode_observation(encode_observation(entry))))
