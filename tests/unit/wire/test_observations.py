"""Observations survive the wire."""

from streams.model.observation import Stage
from streams.model.verdict import Verdict
from streams.wire.avro import Codec
from streams.wire.observations import ObservationRecord, decode_observation, encode_observation
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
    G16: never as success, never as a fault before the call.
    """
    value = Codec("observation").encode({**fields_of(SEEN), "verdict": "new", "stage": "new"})

    read = decode_observation(value)

    assert (Verdict.AMBIGUOUS, Stage.PROTOCOL) == (read.verdict, read.stage)
