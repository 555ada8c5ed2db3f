"""What a producer consumes to learn that a delivery is done, and what operators see of one given up."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from streams.model.ledger import FailurePhase
from streams.model.words import Word


class Outcome(Word):
    """A receipt's verdict (interface.md §3)."""

    SENT = "sent"
    REFUSED = "refused"
    AMBIGUOUS = "ambiguous"
    EXHAUSTED = "exhausted"
    EXPIRED = "expired"
    SKIPPED = "skipped"
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """How one delivery ended, or why an activity was not taken. Times are epoch milliseconds.

    `delivery_id` and `target` are None where the receipt speaks of a whole activity
    (`duplicate`, `conflict`).
    """

    activity_id: str
    delivery_id: str | None = None
    target: str | None = None
    verdict: Outcome
    attempts: int = 0
    status: int = 0
    provider_message_id: str | None = None
    started_ms: int = 0
    settled_ms: int = 0
    tenant: str
    code: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """One delivery given up, within its activity's dead letter. Holds no content.

    `target` and `summary` are at most 200 bytes of UTF-8 each. `code` says why it was given up, `cause`
    what its last attempt saw.
    """

    dead_letter_id: str
    delivery_id: str
    target: str
    failure_phase: FailurePhase
    code: str
    attempts: int
    generation: int
    reconciliation_required: bool
    summary: str
    created_ms: int
    cause: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """Every delivery of one activity that was given up and is not resolved (interface.md §3)."""

    activity_id: str
    queue: str
    tenant: str
    ledger_entry_id: str | None
    deliveries: tuple[Letter, ...]
