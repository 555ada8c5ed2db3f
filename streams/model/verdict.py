"""What an observation means."""

from __future__ import annotations

import msgspec

from streams.model.ledger import FailurePhase
from streams.model.words import Word


class Verdict(Word):
    """Spec §1: what an attempt's observation means."""

    SENT = "sent"
    RETRY = "retry"
    """Did not happen; may be tried again."""
    REFUSED = "refused"
    """Did not happen, and will not; no further call."""
    AMBIGUOUS = "ambiguous"
    """Unknown whether it happened; only an idempotent target is tried again."""
    SKIPPED = "skipped"


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict with its reason.

    Attributes:
        verdict: What it means.
        phase: Where it failed, None for `sent` and `skipped`.
        code: Stable code (`docs/codes.md`), e.g. `http_503`, `connect_refused`.
        status: HTTP status, 0 when there was none.
        retry_after: `Retry-After` values that the schedule must honour.
        disables_target: 410: the target is gone.
        provider_message_id: Kept from a `sent` answer.
        duration_ms: Wall time of the call; 0 where there was none, or where it came as a late report.
    """

    verdict: Verdict
    code: str
    phase: FailurePhase | None = None
    status: int = 0
    retry_after: tuple[str, ...] = ()
    disables_target: bool = False
    provider_message_id: str | None = None
    duration_ms: int = 0
