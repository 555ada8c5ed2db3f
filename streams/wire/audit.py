"""What an operator asked for, written in one transaction with what it does (D-065)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from streams.wire.avro import Codec
from streams.wire.values import convert, fields_of

_CODEC: Final = Codec("audit")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """One act of an operator (value of `outbox.audit`, key: the tenant). Holds no content.

    What the dead letter said goes along, so that its resolution outlives its tombstone. Times are
    epoch milliseconds.

    Attributes:
        action: `redrive`, `delivery.cancel`, `content.reveal`, `target.enable`, `target.disable`, `job.start`
            or `job.stop`.
        subject: Who asked, as the token says.
        reason: Redacted (D-074).
        target: A name, or of an inbox URL what operators may see (F07).
        generation: Of the letter, before it was reopened.
        job_id: The bulk redrive that it is part of, or that is started or stopped by it.
        detail: Of a job that starts: what it selects and how fast, as JSON; no content.
    """

    audit_id: str
    action: str
    tenant: str
    subject: str
    request_id: str
    at_ms: int
    reason: str
    target: str
    effect_mode: str = ""
    dead_letter_id: str = ""
    delivery_id: str = ""
    activity_key: str = ""
    activity_id: str = ""
    failure_phase: str = ""
    code: str = ""
    cause: str = ""
    attempts: int = 0
    generation: int = 1
    reconciliation_required: bool = False
    summary: str = ""
    created_ms: int = 0
    job_id: str = ""
    detail: str = ""


def encode_audit(record: AuditRecord) -> bytes:
    """Write an audit record."""
    return _CODEC.encode(fields_of(record))


def decode_audit(value: bytes) -> AuditRecord:
    """Read an audit record.

    Raises:
        RecordError: as `Codec.decode`.
    """
    return convert(_CODEC.decode(value), AuditRecord)
