"""Whether a trigger still means something, and what a row owes the world outside the ledger."""

from __future__ import annotations

from streams.model.ledger import ActivityRow, FailurePhase, Phase, Row
from streams.model.receipt import DeadLetter, Letter, Outcome, Receipt
from streams.rules.redaction import bound, redact_url

TARGET_BYTES = 200
"""Bound of a dead letter's `target` and `summary` (interface.md §3)."""

_EXHAUSTED = frozenset({"attempts_exhausted", "elapsed_exhausted", "retry_after_too_long"})
_QUEUED = Phase.QUEUED
_SENT = Phase.SENT
_TOLD_SENT = Outcome.SENT


def is_wanted_by_source(row: Row | None) -> bool:
    """Whether a source record may claim: the delivery has no row, or was redriven (ledger.md)."""
    return row is None or row.phase is _QUEUED


def is_wanted_by_retry(
    row: Row | None, *, fence: int, attempts: int, budget: int | None = None
) -> bool:
    """Whether a retry record may claim (rule 8): only when its fence and count are the row's.

    A delivery deferred before its first claim has no row and carries the fence `NEVER`; one that was
    redriven and then deferred is queued. The count keeps a retry of an earlier budget out, and before
    the first claim, where there is nothing to count, the budget does: what was redriven waits for its
    replay (D-066).

    Args:
        budget: That the retry carries; None where it carries none.
    """
    if budget is not None and budget != (1 if row is None else row.budget):
        return False
    if row is None:
        return fence < 0 and attempts == 0
    open_phase = row.phase in (Phase.WAITING, Phase.QUEUED)
    return open_phase and row.fence == fence and row.attempts == attempts


def receipt_of(row: Row, activity_id: str, tenant: str) -> Receipt | None:
    """The receipt that a settled row owes its producer; None for one that is still open."""
    if not row.phase.is_settled:
        return None
    return Receipt(
        activity_id=activity_id,
        tenant=tenant,
        verdict=_outcome(row),
        delivery_id=row.delivery_id,
        target=row.target,
        attempts=row.attempts,
        status=row.status,
        code=row.code,
        provider_message_id=row.provider_message_id,
        started_ms=row.first_claim_ms,
        settled_ms=row.settled_ms,
    )


def _outcome(row: Row) -> Outcome:
    if row.phase is _SENT:
        return _TOLD_SENT
    if row.phase is Phase.SKIPPED:
        return Outcome.SKIPPED
    if row.reconciliation_required:
        return Outcome.AMBIGUOUS
    if row.code == "expired":
        return Outcome.EXPIRED
    if row.code in _EXHAUSTED:
        return Outcome.EXHAUSTED
    return Outcome.REFUSED


def letters_of(activity: ActivityRow, rows: list[Row]) -> DeadLetter | None:
    """The dead letter that an activity's rows add up to; None when none of them is given up.

    Derived from the folded rows alone, so that any owner writes the same one (rule 10).
    """
    dead = [_letter(row) for row in rows if row.phase is Phase.DEAD]
    if not dead:
        return None
    return DeadLetter(
        activity_id=activity.activity_id,
        queue=activity.queue,
        tenant=activity.tenant,
        ledger_entry_id=activity.ledger_entry_id,
        deliveries=tuple(sorted(dead, key=lambda letter: letter.delivery_id)),
    )


def _letter(row: Row) -> Letter:
    return Letter(
        dead_letter_id=row.letter_id,
        delivery_id=row.delivery_id,
        target=_shown(row.target),
        failure_phase=row.failure_phase or FailurePhase.CLAIM,
        code=row.code,
        attempts=row.attempts,
        generation=row.generation,
        reconciliation_required=row.reconciliation_required,
        summary=bound(_summary(row), TARGET_BYTES),
        created_ms=row.settled_ms,
        cause=row.cause,
    )


def _shown(target: str) -> str:
    """A registered target's name as it is; of an inbox URL no more than operators may see (F07)."""
    return redact_url(target) if "://" in target else bound(target, TARGET_BYTES)


def _summary(row: Row) -> str:
    """One line for a person, made of codes and numbers only, so that there is nothing to redact."""
    seen = f"HTTP {row.status}" if row.status else (row.cause or row.code)
    count = f"{row.attempts} attempt{'' if row.attempts == 1 else 's'}"
    doubt = ""
    if row.reconciliation_required:
        doubt = "; the effect is unknown"
    elif row.effect_unknown:
        doubt = "; an earlier attempt may have taken effect"
    return f"{seen} after {count}: {row.code}{doubt}"
