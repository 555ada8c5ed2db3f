"""What answers show of what the view holds: codes, counts and times, never content (D-043)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from streams.api.redriving import resolution
from streams.api.shapes import REACH_OF, Reach, SeenActivity, SeenDelivery, SeenLetter, Status
from streams.model.target import TargetRecord, TargetState
from streams.rules.redaction import redact_url
from streams.rules.targets import is_parked

PROVIDER: Final = "http"
"""Every target is called over HTTP: the channel of its identity (D-002)."""

NO_STATE: Final = TargetState(disabled=False, code="", at_ms=0)


def delivery_facts(seen: SeenDelivery) -> dict[str, Any]:
    """One delivery (D-008, D-009, D-070); times are epoch milliseconds, null for "not yet"."""
    return {
        "delivery_id": seen.delivery_id,
        "activity_id": seen.activity_id,
        "target": seen.target,
        "status": seen.status.value,
        "reach": REACH_OF[seen.status].value,
        "phase": seen.phase.value,
        "attempts": seen.attempts,
        "generation": seen.generation,
        "failure_phase": seen.failure_phase,
        "code": seen.code or None,
        "cause": seen.cause or None,
        "http_status": seen.http_status or None,
        "reconciliation_required": seen.reconciliation_required,
        "effect_unknown": seen.effect_unknown,
        "provider_message_id": seen.provider_message_id,
        "dead_letter_id": seen.letter_id if seen.is_dead else None,
        "admitted_ms": seen.admitted_ms,
        "first_claim_ms": seen.first_claim_ms or None,
        "claimed_ms": seen.claimed_ms or None,
        "due_ms": seen.due_ms or None,
        "settled_ms": seen.settled_ms or None,
    }


def letter_facts(letter: SeenLetter, *, is_open: bool) -> dict[str, Any]:
    """One dead letter (D-057..059)."""
    resolved = None if is_open else _resolved(letter)
    return {
        "dead_letter_id": letter.dead_letter_id,
        "delivery_id": letter.delivery_id,
        "activity_id": letter.activity_id,
        "provider_id": PROVIDER,
        "integration_id": letter.target,
        "target": letter.target,
        "failure_phase": letter.failure_phase,
        "code": letter.code,
        "cause": letter.cause or None,
        "summary": letter.summary,
        "attempts": letter.attempts,
        "generation": letter.generation,
        "reconciliation_required": letter.reconciliation_required,
        "state": "open" if is_open else "resolved",
        "created_ms": letter.created_ms,
        "resolved_ms": None if resolved is None else resolved["resolved_ms"],
        "resolution": None if resolved is None else resolved["resolution"],
    }


def _resolved(letter: SeenLetter) -> dict[str, Any]:
    by = resolution(letter)
    audit = next((each for each in letter.audits if each.audit_id == by), None)
    return {
        "resolved_ms": letter.resolved_ms or (audit.at_ms if audit else None),
        "resolution": None
        if audit is None
        else {
            "audit_id": audit.audit_id,
            "effect_mode": audit.effect_mode,
            "asked_ms": audit.at_ms,
        },
    }


def activity_facts(
    activity: SeenActivity, deliveries: Sequence[SeenDelivery], most: int
) -> dict[str, Any]:
    """One activity with its deliveries: not yet, never or done (O-022), without any log.

    A delivery that was never claimed has no row: it is counted as queued and not listed.
    """
    counts = Counter(seen.status for seen in deliveries)
    unclaimed = max(0, activity.owed - len(deliveries))
    counts[Status.QUEUED] += unclaimed
    reached = {REACH_OF[status] for status, count in counts.items() if count}
    whole = next((each for each in (Reach.NOT_YET, Reach.NEVER) if each in reached), Reach.DONE)
    return {
        "activity_id": activity.activity_id,
        "tenant": activity.tenant,
        "queue": activity.queue,
        "ledger_entry_id": activity.ledger_entry_id,
        "first_seen_ms": activity.first_seen_ms,
        "reach": whole.value,
        "owed": activity.owed,
        "unclaimed": unclaimed,
        "counts": {status.value: counts[status] for status in Status},
        "deliveries": [delivery_facts(seen) for seen in deliveries[:most]],
        "is_truncated": len(deliveries) > most,
    }


def target_facts(record: TargetRecord, state: TargetState | None) -> dict[str, Any]:
    """One registered target: no credential, its URL as operators may see it (F07)."""
    known = state or NO_STATE
    return {
        "name": record.name,
        "tenant": record.tenant,
        "url": redact_url(record.url),
        "idempotent": record.idempotent,
        "policy": record.policy,
        "policy_overrides": record.policy_overrides,
        "verdicts": {str(status): verdict for status, verdict in record.verdicts.items()},
        "retryable": None if record.retryable is None else list(record.retryable),
        "header_names": sorted(record.headers),
        "signing": record.signing,
        "secret_refs": list(record.secret_refs),
        "rate_per_s": record.rate_per_s,
        "http2": record.http2,
        "enabled": record.enabled,
        "parked": parked(record, known),
        "disabled_code": known.code if known.disabled else None,
        "updated_ms": record.updated_ms,
    }


def parked(record: TargetRecord, state: TargetState | None) -> bool:
    """Whether what is owed to the target waits."""
    known = state or NO_STATE
    return is_parked(
        enabled=record.enabled,
        updated_ms=record.updated_ms,
        disabled=known.disabled,
        disabled_ms=known.at_ms,
    )
