"""Audit records: bytes ↔ values."""

from __future__ import annotations

import pytest

from streams.errors import RecordError
from streams.wire.audit import AuditRecord, decode_audit, encode_audit

RECORD = AuditRecord(
    audit_id="a1",
    action="redrive",
    tenant="acme",
    subject="al",
    request_id="r1",
    at_ms=1_767_225_600_000,
    reason="CRM was down",
    target="crm",
    effect_mode="reconcile_replay",
    dead_letter_id="dlv_1.1",
    delivery_id="dlv_1",
    activity_key="acme|urn:1",
    activity_id="urn:1",
    failure_phase="rejected_permanent",
    code="http_400",
    cause="http_400",
    attempts=3,
    generation=2,
    reconciliation_required=True,
    summary="HTTP 400 after 3 attempts: http_400",
    created_ms=1_767_225_500_000,
)
JOB = AuditRecord(
    audit_id="a2",
    action="job.start",
    tenant="acme",
    subject="al",
    request_id="r2",
    at_ms=1_767_225_600_000,
    reason="CRM was down",
    target="",
    effect_mode="reconcile_replay",
    job_id="j1",
    detail='{"filter":{"target":"crm"},"rate_per_s":10,"replica":"api-0"}',
)


@pytest.mark.parametrize("record", [RECORD, JOB], ids=["redrive", "job"])
def test_an_audit_record_is_read_as_it_was_written(record):
    """D-065: what the letter said is in it, so that its resolution outlives the letter."""
    assert record == decode_audit(encode_audit(record))


def test_what_is_no_audit_record_is_refused():
    with pytest.raises(RecordError):
        decode_audit(b"{}")
