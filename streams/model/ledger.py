"""What the ledger knows: a row for each delivery and one for each activity."""

from __future__ import annotations

from typing import Final

import msgspec

from streams.model.words import Word

OWNER_KEY: Final = b"\x00owner"
"""Ledger key of the OWNER records; no activity key starts with a zero byte."""

SEPARATOR: Final = b"\x00"
"""Stands between activity key and target in a delivery's ledger key."""

NEVER: Final = -1
"""Fence of a delivery that was never claimed."""


class Kind(Word):
    """What a ledger record is, its header `k` (ledger.md, "Records")."""

    OWNER = "OWNER"
    CLAIM = "CLAIM"
    REPORT = "REPORT"
    REPAIR = "REPAIR"
    REDRIVE = "REDRIVE"
    ADMIT = "ADMIT"
    """An activity's own row; valid under the same rule as any other record."""


class Phase(Word):
    """Where a delivery stands. D-008: queued -> running -> exactly one of sent, failed, skipped."""

    QUEUED = "queued"
    """Redriven; waits for its trigger to be produced again. (A new delivery has no row.)"""
    CLAIMED = "claimed"
    WAITING = "waiting"
    """A retry is scheduled."""
    SENT = "sent"
    DEAD = "dead"
    SKIPPED = "skipped"

    @property
    def is_settled(self) -> bool:
        """Whether nothing more happens to it by itself."""
        return self in _SETTLED


_SETTLED = frozenset({Phase.SENT, Phase.DEAD, Phase.SKIPPED})


class FailurePhase(Word):
    """D-009: decides whether a retry may happen at all."""

    ADMISSION = "admission"
    CLAIM = "claim"
    HYDRATE = "hydrate"
    CONNECT = "connect"
    REJECTED_TRANSIENT = "rejected_transient"
    REJECTED_PERMANENT = "rejected_permanent"
    AMBIGUOUS_POST_CALL = "ambiguous_post_call"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What the ledger knows of one delivery. Times are epoch milliseconds; 0 means "not yet".

    A Struct and not a dataclass: changing a field of a frozen dataclass of this size costs 8.6 µs, of a
    Struct 0.5 (timeit), and each delivery changes its row three times.

    Attributes:
        phase: Where it stands.
        delivery_id: Stable public id (`rules.identity`).
        target: The target's key: registered name or inbox URL.
        attempts: Claims granted in this budget. Counted when the claim is granted (C-01).
        generation: Which intended effect this is; starts at 1, grows with `new_external_send` (C-12).
        budget: The claims between two redrives; starts at 1, grows with every redrive.
        token: 16 bytes of the claim that stands, or stood last; empty before the first.
        fence: Offset of the last valid claim; `NEVER` before the first. Set by `fold`, not by writers.
        admitted_ms: When the delivery was first seen in this budget; its age counts from here (C-17).
        first_claim_ms: When this budget's first claim was made; the elapsed limit counts from here.
        claimed_ms: When the last claim was made.
        due_ms: When the scheduled retry may start.
        settled_ms: When it became sent, dead or skipped.
        status: The last HTTP status, 0 when there was none.
        code: Stable code of the last outcome; of a dead delivery, why it was given up.
        cause: Code of the last attempt that failed: what a dead letter must not hide (E05).
        failure_phase: Of the last failure, None when there was none.
        reconciliation_required: An effect is possible and unproved; never sent again by itself (D-012).
        provider_message_id: See `Observation`.
        idempotent: Whether the target was idempotent when the claim was made: the rule for a lost claim.
        lease_ms: How long the claim stands, fixed when it was made.
        effect_unknown: An attempt of this generation may have taken effect unseen; what later attempts
            saw does not unsay it (field case B04).
    """

    phase: Phase
    delivery_id: str
    target: str
    attempts: int = 0
    generation: int = 1
    budget: int = 1
    token: bytes = b""
    fence: int = NEVER
    admitted_ms: int = 0
    first_claim_ms: int = 0
    claimed_ms: int = 0
    due_ms: int = 0
    settled_ms: int = 0
    status: int = 0
    code: str = ""
    cause: str = ""
    failure_phase: FailurePhase | None = None
    reconciliation_required: bool = False
    provider_message_id: str | None = None
    idempotent: bool = False
    lease_ms: int = 0
    effect_unknown: bool = False

    @property
    def letter_id(self) -> str:
        """Id of the dead letter of this delivery and budget (ledger.md, rule 11)."""
        return f"{self.delivery_id}.{self.budget}"

    @property
    def message_id(self) -> str:
        """The `webhook-id`: stable over all attempts of one generation, new with the next."""
        return f"{self.delivery_id}-{self.generation}"


class Admission(msgspec.Struct, frozen=True, kw_only=True):
    """One source record's part of an activity: which recipients it brought.

    Attributes:
        offset: The source record's offset in its outbox partition: tells a redelivery from a duplicate.
        targets: 8-byte hashes of the recipients' ledger keys, joined.
    """

    offset: int
    targets: bytes


class ActivityRow(msgspec.Struct, frozen=True, kw_only=True):
    """What the ledger knows of one activity.

    Attributes:
        canonical_hash: SHA-256 of the canonical form (`rules.identity`), 32 bytes.
        activity_id: As produced.
        tenant: Whose it is.
        queue: `outbox` or `inbox`.
        first_seen_ms: When it was admitted.
        ledger_entry_id: O-023: the `object.id` when `object.type` is `CaseLedgerEntry`.
        admissions: Which record brought which recipients, oldest first.
    """

    canonical_hash: bytes
    activity_id: str
    tenant: str
    queue: str = "outbox"
    first_seen_ms: int = 0
    ledger_entry_id: str | None = None
    admissions: tuple[Admission, ...] = ()

    @property
    def deliveries(self) -> int:
        """How many deliveries the activity owes or owed."""
        return sum(len(a.targets) for a in self.admissions) // 8
