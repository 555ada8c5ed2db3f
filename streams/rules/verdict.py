"""What an attempt's observation means: the table of spec §3, as data.

Where a field case knows more than the spec allows (501, 505, Cloudflare's 52x, 413 with
Retry-After, 421), the spec wins and a target's own `verdicts` say the rest: `docs/codes.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from streams.model.ledger import FailurePhase
from streams.model.observation import Fault, Observation, Stage
from streams.model.target import Target
from streams.model.verdict import Judgement, Verdict

GONE: Final = 410
"""The one status that speaks of the target and not of the request (O-026)."""

SERVICE_UNAVAILABLE: Final = 503

RETRYABLE: Final = frozenset({408, 425, 429})
"""The 4xx that say "not now"; what `Target.retryable` replaces."""

_BANDS: Final = (
    # A final 1xx is no answer to a request; whether it was acted on is unknown (C-05).
    (range(100, 200), Verdict.AMBIGUOUS),
    (range(200, 300), Verdict.SENT),
    (range(300, 400), Verdict.REFUSED),
    (range(400, 500), Verdict.REFUSED),
    (range(500, 600), Verdict.AMBIGUOUS),
    # No HTTP status at all, yet llhttp reads any three digits: RFC 9110 §15 treats them as 5xx.
    (range(600, 1000), Verdict.AMBIGUOUS),
)

STATUSES: Final[Mapping[int, Verdict]] = MappingProxyType(
    {status: verdict for band, verdict in _BANDS for status in band}
    | dict.fromkeys(RETRYABLE, Verdict.RETRY)
)
"""Spec §3 for every status that fits in three digits, before a target has its say."""

_CODES: Final = {status: f"http_{status}" for status in STATUSES}
"""Made once: the code is looked up in six tables, and a text that is new has to be hashed for it."""

STAGES: Final[Mapping[Stage, tuple[Verdict, FailurePhase]]] = MappingProxyType(
    {
        Stage.ADDRESS: (Verdict.REFUSED, FailurePhase.ADMISSION),
        Stage.POOL: (Verdict.RETRY, FailurePhase.CONNECT),
        Stage.NAME: (Verdict.RETRY, FailurePhase.CONNECT),
        Stage.CONNECT: (Verdict.RETRY, FailurePhase.CONNECT),
        Stage.TLS: (Verdict.RETRY, FailurePhase.CONNECT),
        Stage.WRITE: (Verdict.AMBIGUOUS, FailurePhase.AMBIGUOUS_POST_CALL),
        Stage.READ: (Verdict.AMBIGUOUS, FailurePhase.AMBIGUOUS_POST_CALL),
        Stage.PROTOCOL: (Verdict.AMBIGUOUS, FailurePhase.AMBIGUOUS_POST_CALL),
    }
)
"""Spec §3 for every stage in which a fault can strike."""

PHASES: Final[Mapping[Verdict, FailurePhase]] = MappingProxyType(
    {
        Verdict.RETRY: FailurePhase.REJECTED_TRANSIENT,
        Verdict.REFUSED: FailurePhase.REJECTED_PERMANENT,
        Verdict.AMBIGUOUS: FailurePhase.AMBIGUOUS_POST_CALL,
    }
)
"""The failure phase of a verdict that a status led to; `sent` has none (D-009)."""

OVERRIDES: Final = frozenset({Verdict.SENT, *PHASES})
"""What `Target.verdicts` may say of a status (C-04); whoever reads a target checks against it."""


_SENT: Final = Verdict.SENT
_REFUSED: Final = Verdict.REFUSED
_AMBIGUOUS: Final = Verdict.AMBIGUOUS

_RETURNING: Final = frozenset({Verdict.RETRY, Verdict.AMBIGUOUS})
"""Verdicts after which a further call may come: it honours what the target asked for (D-018)."""


def judge(observation: Observation, target: Target) -> Judgement:
    """Say what one attempt's observation means for `target`.

    Total: every status, fault and target has an answer, and nothing is raised. An ambiguous result
    stays ambiguous for an idempotent target too; `may_repeat` says whether it is tried again.
    """
    if observation.fault is not None:
        return _judge_fault(observation.fault, observation.duration_ms)
    status = observation.status or 0
    verdict = _verdict_of(status, observation, target)
    return Judgement(
        verdict=verdict,
        code=_CODES.get(status) or f"http_{status}",
        phase=PHASES.get(verdict),
        status=status,
        retry_after=observation.retry_after if verdict in _RETURNING else (),
        disables_target=status == GONE and verdict is _REFUSED,
        provider_message_id=(observation.provider_message_id if verdict is _SENT else None),
        duration_ms=observation.duration_ms,
    )


def may_repeat(judgement: Judgement, idempotent: bool) -> bool:
    """Whether what is known of the last try permits another call (D-005, D-010, O-028).

    What did not happen may be repeated; what may have happened only where the target recognises a
    repeated id. Says nothing of budgets: that is `backoff.schedule`.
    """
    if judgement.verdict is Verdict.AMBIGUOUS:
        return idempotent
    return judgement.verdict is Verdict.RETRY


def _judge_fault(fault: Fault, duration_ms: int) -> Judgement:
    verdict, phase = STAGES[fault.stage]
    return Judgement(verdict=verdict, code=fault.code, phase=phase, duration_ms=duration_ms)


def _verdict_of(status: int, observation: Observation, target: Target) -> Verdict:
    override = target.verdicts.get(status)
    if override in OVERRIDES:
        return Verdict(override)
    if target.retryable is not None and 400 <= status < 500:
        return Verdict.RETRY if status in target.retryable else Verdict.REFUSED
    # The field alone says "I refused this, come back": a value we cannot read does not unsay it.
    if status == SERVICE_UNAVAILABLE and any(v.strip() for v in observation.retry_after):
        return Verdict.RETRY
    return STATUSES.get(status, _AMBIGUOUS)
