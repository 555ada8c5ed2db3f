"""Ledger rows, dead letters and receipts survive the wire."""

import pytest

from streams.errors import RecordError
from streams.model.ledger import ActivityRow, Admission, FailurePhase, Phase, Row
from streams.model.receipt import DeadLetter, Letter, Outcome, Receipt
from streams.model.values import replace
from streams.wire.avro import Codec
from streams.wire.codec import (
    decode_activity_row,
    decode_dead_letter,
    decode_ledger_value,
    decode_receipt,
    decode_row,
    encode_activity_row,
    encode_dead_letter,
    encode_receipt,
    encode_row,
)
from streams.wire.values import fields_of

ROW = Row(
    phase=Phase.DEAD,
    delivery_id="dlv_1",
    target="https://b.example/inbox",
    attempts=12,
    generation=2,
    budget=3,
    token=b"\x00" * 16,
    fence=2**40,
    admitted_ms=1_767_225_600_000,
    first_claim_ms=1_767_225_600_001,
    claimed_ms=1_767_225_600_002,
    due_ms=1_767_225_600_003,
    settled_ms=1_767_225_600_004,
    status=503,
    code="attempts_exhausted",
    cause="http_503",
    failure_phase=FailurePhase.REJECTED_TRANSIENT,
    reconciliation_required=True,
    provider_message_id="né-1",
    idempotent=True,
    lease_ms=45_000,
)
ACTIVITY_ROW = ActivityRow(
    canonical_hash=b"\x01" * 32,
    activity_id="https://a.example/1",
    tenant="acme",
    queue="inbox",
    first_seen_ms=5,
    ledger_entry_id="https://a.example/ledger/9",
    admissions=(Admission(offset=7, targets=b"x" * 16), Admission(offset=9, targets=b"y" * 8)),
)
LETTER = Letter(
    dead_letter_id="dlv_1.1",
    delivery_id="dlv_1",
    target="crm",
    failure_phase=FailurePhase.CONNECT,
    code="attempts_exhausted",
    attempts=12,
    generation=1,
    reconciliation_required=False,
    summary="refused",
    created_ms=8,
    cause="connect_refused",
)
DEAD_LETTER = DeadLetter(
    activity_id="https://a.example/1",
    queue="outbox",
    tenant="acme",
    ledger_entry_id=None,
    deliveries=(LETTER, replace(LETTER, delivery_id="dlv_2")),
)
RECEIPT = Receipt(
    activity_id="https://a.example/1",
    tenant="acme",
    verdict=Outcome.SENT,
    delivery_id="dlv_1",
    target="crm",
    attempts=2,
    status=202,
    code="http_202",
    provider_message_id="m-1",
    started_ms=1,
    settled_ms=2,
)


def test_a_row_comes_back_as_it_was_written():
    assert decode_row(encode_row(ROW)) == ROW


def test_a_row_that_was_never_claimed_comes_back_as_it_was_written():
    row = Row(phase=Phase.QUEUED, delivery_id="dlv_1", target="crm")

    assert decode_row(encode_row(row)) == row


def test_an_activitys_row_comes_back_as_it_was_written():
    assert decode_activity_row(encode_activity_row(ACTIVITY_ROW)) == ACTIVITY_ROW


def test_either_row_of_the_ledger_is_told_by_its_bytes():
    """
    ledger.md, "Records": one topic holds both.
    """
    values = [encode_row(ROW), encode_activity_row(ACTIVITY_ROW)]

    assert [ROW, ACTIVITY_ROW] == [decode_ledger_value(value) for value in values]


def test_a_dead_letter_comes_back_as_it_was_written():
    assert decode_dead_letter(encode_dead_letter(DEAD_LETTER)) == DEAD_LETTER


def test_a_receipt_comes_back_as_it_was_written():
    assert decode_receipt(encode_receipt(RECEIPT)) == RECEIPT


def test_a_receipt_of_a_whole_activity_names_no_delivery():
    receipt = Receipt(activity_id="a", tenant="default", verdict=Outcome.CONFLICT)

    assert decode_receipt(encode_receipt(receipt)) == receipt


def test_a_new_failure_phase_is_read_as_effect_unknown():
    """
    G16: a reader that meets a new symbol must not stop, and must not take it for harmless.
    """
    value = Codec("ledger-delivery").encode({**fields_of(ROW), "failure_phase": "of_tomorrow"})

    assert FailurePhase.AMBIGUOUS_POST_CALL is decode_row(value).failure_phase


def test_a_new_failure_phase_in_a_dead_letter_is_read_as_effect_unknown():
    """G16."""
    letter = {**fields_of(LETTER), "failure_phase": "of_tomorrow"}
    value = Codec("dead-letter").encode({**fields_of(DEAD_LETTER), "deliveries": [letter]})

    [read] = decode_dead_letter(value).deliveries

    assert FailurePhase.AMBIGUOUS_POST_CALL is read.failure_phase


def test_a_new_verdict_of_a_receipt_is_never_read_as_success():
    """G16."""
    value = Codec("receipt").encode({**fields_of(RECEIPT), "verdict": "of_tomorrow"})

    assert Outcome.AMBIGUOUS is decode_receipt(value).verdict


def test_a_new_phase_of_a_row_is_refused():
    """
    A guess at where a delivery stands would be written back into the ledger as a fact.
    """
    value = Codec("ledger-delivery").encode({**fields_of(ROW), "phase": "of_tomorrow"})

    with pytest.raises(RecordError) as refused:
        decode_row(value)

    assert "record_invalid" == refused.value.code
    assert "of_tomorrow" not in str(refused.value)


def test_one_record_is_not_read_as_another():
    with pytest.raises(RecordError) as refused:
        decode_row(encode_receipt(RECEIPT))

    assert "schema_unknown" == refused.value.code
