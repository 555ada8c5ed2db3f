"""What the read model keeps: rows fit to be shown, so that its files hold nothing that is not."""

from __future__ import annotations

from enum import StrEnum
from hashlib import sha256
from typing import Final

import msgspec

from streams.model.ledger import ActivityRow, Phase, Row
from streams.model.receipt import DeadLetter, Letter
from streams.model.target import NAME_PATTERN
from streams.rules.triggers import letters_of
from streams.wire.audit import AuditRecord

UNREADABLE: Final = "rec_"
"""How the ids of records begin that could not be read: they have a dead letter and no ledger row."""


class Status(StrEnum):
    """D-008: queued -> running -> exactly one of sent, failed, skipped."""

    QUEUED = "queued"
    RUNNING = "running"
    SENT = "sent"
    FAILED = "failed"
    SKIPPED = "skipped"


STATUS_OF: Final = {
    Phase.QUEUED: Status.QUEUED,
    Phase.CLAIMED: Status.RUNNING,
    Phase.WAITING: Status.RUNNING,
    Phase.SENT: Status.SENT,
    Phase.DEAD: Status.FAILED,
    Phase.SKIPPED: Status.SKIPPED,
}
"""A waiting retry is running still: it was claimed, and is none of the ends yet."""


class Reach(StrEnum):
    """O-022: what tells "not yet" from "never"."""

    NOT_YET = "not_yet"
    NEVER = "never"
    DONE = "done"


REACH_OF: Final = {
    Status.QUEUED: Reach.NOT_YET,
    Status.RUNNING: Reach.NOT_YET,
    Status.SENT: Reach.DONE,
    Status.FAILED: Reach.NEVER,
    Status.SKIPPED: Reach.DONE,
}


class SeenActivity(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """One activity, of its ledger row.

    Attributes:
        owed: How many deliveries it owes or owed, those without a row included.
        source_offset: Of the last record that brought it, in its partition of the outbox topic; -1 where
            its row names none.
    """

    activity_id: str
    tenant: str
    queue: str
    first_seen_ms: int
    ledger_entry_id: str | None
    owed: int
    source_offset: int


class SeenDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """One delivery, of its ledger row; the destination as operators may see it.

    Attributes:
        activity_hash: Names its activity in the read model.
        target_hash: 8 bytes by which it is found by target, an inbox URL included.
        partition: Of the ledger.
    """

    delivery_id: str
    activity_id: str
    tenant: str
    activity_hash: bytes
    target: str
    target_hash: bytes
    partition: int
    phase: Phase
    attempts: int
    generation: int
    budget: int
    admitted_ms: int
    first_claim_ms: int
    claimed_ms: int
    due_ms: int
    settled_ms: int
    http_status: int
    code: str
    cause: str
    failure_phase: str | None
    reconciliation_required: bool
    effect_unknown: bool
    provider_message_id: str | None

    @property
    def status(self) -> Status:
        """Where it stands, in the words of D-008."""
        return STATUS_OF[self.phase]

    @property
    def letter_id(self) -> str:
        """Id of its dead letter in this budget (ledger.md, rule 11)."""
        return f"{self.delivery_id}.{self.budget}"

    @property
    def is_dead(self) -> bool:
        """Whether its dead letter is open."""
        return self.phase is Phase.DEAD


class SeenAudit(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """One redrive that was asked for, in the order of the audit topic."""

    audit_id: str
    effect_mode: str
    at_ms: int


class JobEnd(StrEnum):
    """How a bulk redrive ended."""

    DONE = "done"
    STOPPED = "stopped"


class SeenJob(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """One bulk redrive, as the audit topic tells of it.

    Attributes:
        reason: Redacted.
        detail: See `jobs.Detail`.
        asked: Redrives of it that were committed.
        end: None while it goes on.
    """

    job_id: str
    tenant: str
    subject: str
    request_id: str
    reason: str
    effect_mode: str
    detail: str
    started_ms: int
    asked: int = 0
    end: JobEnd | None = None
    ended_ms: int = 0


class SeenLetter(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """One dead letter, open or resolved.

    Attributes:
        resolved_ms: When the ledger took the redrive, as far as that was seen; 0 where it was not.
        raised: Whether that redrive raised the generation; None where that was not seen.
        audits: Every redrive of it that was asked for.
    """

    dead_letter_id: str
    delivery_id: str
    activity_id: str
    tenant: str
    target: str
    failure_phase: str
    code: str
    cause: str
    attempts: int
    generation: int
    reconciliation_required: bool
    summary: str
    created_ms: int
    resolved_ms: int = 0
    raised: bool | None = None
    audits: tuple[SeenAudit, ...] = ()


def owner_of(activity_key: bytes) -> tuple[str, str]:
    """Tenant and activity ID as the key alone tells them (interface.md §3); the row knows better."""
    text = activity_key.decode(errors="replace")
    tenant, bar, own = text.partition("|")
    return (tenant, own) if bar and NAME_PATTERN.fullmatch(tenant) else ("default", text)


def activity_key(tenant: str, activity_id: str) -> bytes:
    """An activity's key (interface.md §3)."""
    return (activity_id if tenant == "default" else f"{tenant}|{activity_id}").encode()


def short_hash(text: bytes, size: int) -> bytes:
    """Bytes that stand for a key or a name, so that indexes are short and hold no URL."""
    return sha256(text).digest()[:size]


def seen_activity(row: ActivityRow) -> SeenActivity:
    """What is kept of an activity's row."""
    return SeenActivity(
        activity_id=row.activity_id,
        tenant=row.tenant,
        queue=row.queue,
        first_seen_ms=row.first_seen_ms,
        ledger_entry_id=row.ledger_entry_id,
        owed=row.deliveries,
        source_offset=max((each.offset for each in row.admissions), default=-1),
    )


def letter_of_row(row: Row, owner: tuple[str, str]) -> SeenLetter:
    """The letter of a dead row, derived by the rule that its owner writes it by (rule 10)."""
    tenant, activity_id = owner
    activity = ActivityRow(canonical_hash=b"", activity_id=activity_id, tenant=tenant)
    derived = letters_of(activity, [row])
    assert derived is not None, "a dead row has a letter"
    return letter_of(derived, derived.deliveries[0])


def letter_of(dead: DeadLetter, letter: Letter) -> SeenLetter:
    """What is kept of one delivery's dead letter."""
    return SeenLetter(
        dead_letter_id=letter.dead_letter_id,
        delivery_id=letter.delivery_id,
        activity_id=dead.activity_id,
        tenant=dead.tenant,
        target=letter.target,
        failure_phase=letter.failure_phase,
        code=letter.code,
        cause=letter.cause,
        attempts=letter.attempts,
        generation=letter.generation,
        reconciliation_required=letter.reconciliation_required,
        summary=letter.summary,
        created_ms=letter.created_ms,
    )


def letter_of_audit(record: AuditRecord) -> SeenLetter:
    """A letter as its redrive's audit record remembers it."""
    return SeenLetter(
        dead_letter_id=record.dead_letter_id,
        delivery_id=record.delivery_id,
        activity_id=record.activity_id,
        tenant=record.tenant,
        target=record.target,
        failure_phase=record.failure_phase,
        code=record.code,
        cause=record.cause,
        attempts=record.attempts,
        generation=record.generation,
        reconciliation_required=record.reconciliation_required,
        summary=record.summary,
        created_ms=record.created_ms,
    )


def job_told(job: SeenJob | None, record: AuditRecord) -> SeenJob | None:
    """A bulk redrive after one more audit record of it; None where nobody told of its start."""
    if record.action == "job.start" and job is None:
        return SeenJob(
            job_id=record.job_id,
            tenant=record.tenant,
            subject=record.subject,
            request_id=record.request_id,
            reason=record.reason,
            effect_mode=record.effect_mode,
            detail=record.detail,
            started_ms=record.at_ms,
        )
    if job is None:
        return None
    if record.action == "job.stop" and job.end is None:
        end = JobEnd(record.code) if record.code in list(JobEnd) else JobEnd.STOPPED
        return msgspec.structs.replace(job, end=end, ended_ms=record.at_ms)
    return msgspec.structs.replace(job, asked=job.asked + (record.action == "redrive"))
