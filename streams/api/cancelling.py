"""Cancel: an audited command, and what the owner's ledger made of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from streams.api.auth import owned
from streams.api.owners import Owners
from streams.api.problems import Problem
from streams.api.shapes import SeenDelivery, activity_key
from streams.api.tokens import Positions, ledger_name
from streams.api.writer import REASON_BYTES_MAX
from streams.model.ledger import Phase
from streams.rules.decide import CODE_CANCELLED
from streams.rules.redaction import redact
from streams.wire.audit import AuditRecord
from streams.wire.commands import Cancel

SETTLED: Final = Problem(
    409, "already_settled", "The delivery is settled already: there is nothing left to cancel."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unwanted:
    """Who wants which delivery cancelled, and why."""

    tenant: str
    delivery_id: str
    reason: str
    subject: str
    request_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """What a cancel came to.

    Attributes:
        delivery: As it stands now; None while the owner has not answered.
        visible_at: What a view must have read to show it.
    """

    delivery: SeenDelivery | None
    audit_id: str
    visible_at: Positions


class Canceller:
    """Cancels deliveries, each by one caller at a time."""

    def __init__(self, owners: Owners) -> None:
        self._owners = owners
        self._view = owners.view

    async def cancel(self, asked: Unwanted) -> Cancelled:
        """Do it, also where the caller goes away meanwhile.

        Raises:
            Problem: 404, 409 or 503.
        """
        return await self._owners.alone(asked.delivery_id, lambda: self._cancel(asked))

    async def _cancel(self, asked: Unwanted) -> Cancelled:
        before = owned(self._view.db.delivery(asked.delivery_id), asked.tenant, "delivery")
        if before.phase.is_settled:
            raise SETTLED
        audit = self._audit(asked, before)
        audit_id = audit.audit_id
        command = Cancel(letter_id=before.letter_id, audit_id=audit_id)
        await self._owners.tell(audit, before.partition, command)
        await self._owners.until(lambda: self._is_answered(before))
        after = self._view.db.delivery(asked.delivery_id)
        if not self._is_answered(before):
            return Cancelled(delivery=None, audit_id=audit_id, visible_at=Positions({}))
        if after is None or after.phase is not Phase.SKIPPED or after.code != CODE_CANCELLED:
            raise SETTLED
        visible_at = self._view.positions().only(ledger_name(after.partition))
        return Cancelled(delivery=after, audit_id=audit_id, visible_at=visible_at)

    def _is_answered(self, before: SeenDelivery) -> bool:
        after = self._view.db.delivery(before.delivery_id)
        return after is None or after.phase.is_settled or after.budget != before.budget

    def _audit(self, asked: Unwanted, before: SeenDelivery) -> AuditRecord:
        return AuditRecord(
            audit_id=self._owners.new_id(),
            action="delivery.cancel",
            tenant=before.tenant,
            subject=asked.subject,
            request_id=asked.request_id,
            at_ms=self._owners.now_ms(),
            reason=redact(asked.reason, REASON_BYTES_MAX),
            target=before.target,
            delivery_id=before.delivery_id,
            activity_key=activity_key(before.tenant, before.activity_id).decode(),
            activity_id=before.activity_id,
            code=before.code,
            cause=before.cause,
            attempts=before.attempts,
            generation=before.generation,
        )
