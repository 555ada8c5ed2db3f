"""What an event does to a delivery. Pure, total, idempotent: time and chance are arguments.

The shell reads, decides, appends, performs and acknowledges; it never looks at a phase to choose.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from streams.model.ledger import FailurePhase, Phase, Row
from streams.model.policy import Policy
from streams.model.verdict import Judgement, Verdict
from streams.model.words import Word
from streams.rules.backoff import GiveUp, Retry, schedule

CODE_EXPIRED: Final = "expired"
CODE_CANCELLED: Final = "cancelled"

_OPEN: Final = (Phase.QUEUED, Phase.WAITING)
"""Phases in which a delivery is neither claimed nor settled."""
_QUEUED: Final = Phase.QUEUED
_CLAIMED: Final = Phase.CLAIMED
_ROW_SENT: Final = Phase.SENT
_SENT: Final = Verdict.SENT

NOT_CALLED: Final = Judgement(verdict=Verdict.RETRY, code="not_called", phase=FailurePhase.CLAIM)
"""The claim took too long to be read back; no call was made (rule 3). The attempt is spent (C-01)."""

LOST: Final = Judgement(
    verdict=Verdict.AMBIGUOUS, code="lease_lost", phase=FailurePhase.AMBIGUOUS_POST_CALL
)
"""A foreign claim's lease ran out with no report: the call may have been made (C-07). To be decided with
what the claim was made under (`Row.idempotent`), not with what the registry says by now."""


class EffectMode(Word):
    """What a redrive asks for (D-064, C-12)."""

    RECONCILE_REPLAY = "reconcile_replay"
    """Same generation, same provider idempotency key."""
    NEW_EXTERNAL_SEND = "new_external_send"
    """A second effect is wanted: generation and key change."""


class ClaimAsked(msgspec.Struct, frozen=True):
    """A worker that holds the delivery's lock and a slot of its target asks to make the next attempt."""

    token: bytes


class Judged(msgspec.Struct, frozen=True):
    """The attempt under the standing claim was made and judged; or somebody else's late report of it."""

    judgement: Judgement


class Turned(msgspec.Struct, frozen=True):
    """The delivery cannot be called at all: unknown target, forbidden address, too old."""

    phase: FailurePhase
    code: str


class RedriveAsked(msgspec.Struct, frozen=True):
    """An audited command reopens the dead letter that it names (rule 11)."""

    letter_id: str
    mode: EffectMode


class CancelAsked(msgspec.Struct, frozen=True):
    """An audited command takes back a delivery that is not settled.

    Attributes:
        letter_id: Delivery and budget, as a dead letter's id names them: a second copy, or one that comes
            after a redrive, finds another (rule 11).
    """

    letter_id: str


Event = ClaimAsked | Judged | Turned | RedriveAsked | CancelAsked


class Fresh(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a delivery that has no row yet."""

    delivery_id: str
    target: str
    admitted_ms: int

    def row(self) -> Row:
        """The row that it would have, had it been written: queued, nothing spent."""
        return Row(
            phase=_QUEUED,
            delivery_id=self.delivery_id,
            target=self.target,
            admitted_ms=self.admitted_ms,
        )


def decide(
    row: Row, event: Event, *, now_ms: int, jitter: float, policy: Policy, idempotent: bool
) -> Row | None:
    """Say what `event` makes of `row`; None when it changes nothing.

    Args:
        row: The folded row, or `Fresh.row()` where there is none.
        event: What happened.
        now_ms: Wall clock, epoch milliseconds.
        jitter: Chance, uniform in 0..1.
        policy: The target's bounds.
        idempotent: Whether the target recognises a repeated id (C-03).

    Returns:
        The row to append, or None: a repeated, late or misplaced event changes nothing.
    """
    match event:
        case ClaimAsked(token=token) if row.phase in _OPEN:
            return _claim(row, token, now_ms, policy, idempotent)
        case Turned(phase=phase, code=code) if row.phase in _OPEN:
            return _dead(row, phase, code, now_ms)
        case Judged(judgement=judgement) if row.phase is _CLAIMED:
            return _settle(
                row,
                judgement,
                now_ms=now_ms,
                jitter=jitter,
                policy=policy,
                idempotent=idempotent,
            )
        case RedriveAsked(letter_id=letter_id, mode=mode) if row.phase is Phase.DEAD:
            return _requeue(row, mode, now_ms) if row.letter_id == letter_id else None
        case CancelAsked(letter_id=letter_id) if row.phase in _OPEN:
            return _cancel(row, now_ms) if row.letter_id == letter_id else None
        case _:
            return None


def _claim(row: Row, token: bytes, now_ms: int, policy: Policy, idempotent: bool) -> Row:
    """Count the attempt now, so that one lost in a crash is still spent (C-01)."""
    if now_ms > row.admitted_ms + policy.max_age_ms:
        return _dead(row, FailurePhase.CLAIM, CODE_EXPIRED, now_ms)
    if row.attempts >= policy.max_attempts:
        phase = row.failure_phase or FailurePhase.CLAIM
        return _dead(row, phase, "attempts_exhausted", now_ms)
    return replace(
        row,
        phase=_CLAIMED,
        attempts=row.attempts + 1,
        token=token,
        first_claim_ms=row.first_claim_ms or now_ms,
        claimed_ms=now_ms,
        due_ms=0,
        idempotent=idempotent,
        lease_ms=policy.lease_ms,
    )


def _settle(
    row: Row, seen: Judgement, *, now_ms: int, jitter: float, policy: Policy, idempotent: bool
) -> Row:
    if seen.verdict is _SENT:
        return replace(
            row,
            phase=_ROW_SENT,
            settled_ms=now_ms,
            status=seen.status,
            code=seen.code,
            failure_phase=None,
            provider_message_id=seen.provider_message_id,
            effect_unknown=False,
        )
    if seen.verdict is Verdict.AMBIGUOUS:
        row = replace(row, effect_unknown=True)
    match seen.verdict:
        case Verdict.SKIPPED:
            return replace(row, phase=Phase.SKIPPED, settled_ms=now_ms, code=seen.code)
        case Verdict.REFUSED:
            failed = replace(row, status=seen.status, cause=seen.code)
            return _dead(failed, seen.phase or FailurePhase.REJECTED_PERMANENT, seen.code, now_ms)
        case Verdict.AMBIGUOUS if not idempotent:
            failed = replace(row, status=seen.status, cause=seen.code, reconciliation_required=True)
            return _dead(failed, FailurePhase.AMBIGUOUS_POST_CALL, seen.code, now_ms)
        case Verdict.RETRY | Verdict.AMBIGUOUS:
            return _retry(row, seen, now_ms, jitter, policy)


def _retry(row: Row, seen: Judgement, now_ms: int, jitter: float, policy: Policy) -> Row:
    phase = seen.phase or FailurePhase.REJECTED_TRANSIENT
    failed = replace(row, status=seen.status, cause=seen.code, failure_phase=phase)
    when = schedule(
        policy,
        attempts=row.attempts,
        first_claim_ms=row.first_claim_ms,
        admitted_ms=row.admitted_ms,
        now_ms=now_ms,
        jitter=jitter,
        retry_after=seen.retry_after,
    )
    match when:
        case Retry(due_ms=due_ms):
            return replace(failed, phase=Phase.WAITING, due_ms=due_ms, code=seen.code)
        case GiveUp(code=code):
            return _dead(
                failed, FailurePhase.CLAIM if code == CODE_EXPIRED else phase, code, now_ms
            )


def _dead(row: Row, phase: FailurePhase, code: str, now_ms: int) -> Row:
    return replace(
        row, phase=Phase.DEAD, failure_phase=phase, code=code, due_ms=0, settled_ms=now_ms
    )


def _requeue(row: Row, mode: EffectMode, now_ms: int) -> Row:
    """A new budget; the fence stays, for it only grows. Nothing is sent until the trigger is replayed."""
    generation = row.generation + (mode is EffectMode.NEW_EXTERNAL_SEND)
    return replace(
        row,
        phase=Phase.QUEUED,
        attempts=0,
        budget=row.budget + 1,
        generation=generation,
        admitted_ms=now_ms,
        first_claim_ms=0,
        claimed_ms=0,
        due_ms=0,
        settled_ms=0,
        status=0,
        code="",
        cause="",
        failure_phase=None,
        reconciliation_required=False,
        provider_message_id=None,
        effect_unknown=row.effect_unknown and generation == row.generation,
    )


def _cancel(row: Row, now_ms: int) -> Row:
    """Skipped (D-008). What earlier attempts may have done stays said; a claim is waited out before."""
    return replace(
        row,
        phase=Phase.SKIPPED,
        code=CODE_CANCELLED,
        failure_phase=None,
        due_ms=0,
        settled_ms=now_ms,
    )


def is_cancelled(row: Row, letter_id: str) -> bool:
    """Whether `CancelAsked` of this delivery and budget was applied."""
    is_skipped = row.phase is Phase.SKIPPED and row.code == CODE_CANCELLED
    return is_skipped and row.letter_id == letter_id
