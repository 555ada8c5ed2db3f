"""Redrive: an audited command, and the outcome that the owner's ledger gives it (D-060..069, C-12, C-13)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from streams.api.auth import owned
from streams.api.owners import Owners
from streams.api.problems import Problem
from streams.api.shapes import UNREADABLE, SeenDelivery, SeenLetter, activity_key
from streams.api.tokens import Positions, ledger_name
from streams.api.writer import REASON_BYTES_MAX
from streams.edge.failpoint import failpoint
from streams.rules.decide import EffectMode
from streams.rules.identity import partition_of
from streams.rules.redaction import redact
from streams.wire.audit import AuditRecord
from streams.wire.commands import Redrive

RESOLVED: Final = Problem(409, "already_resolved", "The dead letter is resolved already.")
NOT_REDRIVABLE: Final = Problem(
    409,
    "not_redrivable",
    "The record could not be read, so there is no delivery to reopen: correct it and produce it again.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """Who wants which dead letter reopened, how and why; and as part of which job, if of any."""

    tenant: str
    letter_id: str
    mode: EffectMode
    reason: str
    subject: str
    request_id: str
    job_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reopened:
    """What a redrive came to.

    Attributes:
        letter: As it stands now.
        delivery: As it stands now; None while the owner has not answered.
        audit_id: Of the audit record.
        visible_at: What a view must have read to show it.
    """

    letter: SeenLetter
    delivery: SeenDelivery | None
    audit_id: str
    visible_at: Positions


class Redriver:
    """Reopens dead letters, each letter by one caller at a time."""

    def __init__(self, owners: Owners) -> None:
        self._owners = owners
        self._view = owners.view

    async def redrive(self, wish: Wish) -> Reopened:
        """Do it, also where the caller goes away meanwhile: what is half-way must not be cut off.

        Raises:
            Problem: 404, 409 or 503.
        """
        return await self._owners.alone(wish.letter_id, lambda: self._redrive(wish))

    async def _redrive(self, wish: Wish) -> Reopened:
        letter = self._open_letter(wish)
        audit = self._audit(wish, letter)
        audit_id = audit.audit_id
        partition = partition_of(audit.activity_key.encode(), self._view.partitions)
        command = Redrive(letter_id=letter.dead_letter_id, mode=wish.mode, audit_id=audit_id)
        await self._owners.tell(audit, partition, command)
        failpoint("redrive_committed")
        await self._owners.until(
            lambda: not self._view.is_open(letter) and self._is_audited(letter, audit_id)
        )
        return self._outcome(letter.dead_letter_id, audit_id)

    def _open_letter(self, wish: Wish) -> SeenLetter:
        letter = owned(self._view.letter(wish.letter_id), wish.tenant, "dead letter")
        if letter.dead_letter_id.startswith(UNREADABLE):
            raise NOT_REDRIVABLE
        if not self._view.is_open(letter):
            raise RESOLVED
        return letter

    def _audit(self, wish: Wish, letter: SeenLetter) -> AuditRecord:
        return AuditRecord(
            audit_id=self._owners.new_id(),
            action="redrive",
            tenant=letter.tenant,
            subject=wish.subject,
            request_id=wish.request_id,
            at_ms=self._owners.now_ms(),
            reason=redact(wish.reason, REASON_BYTES_MAX),
            target=letter.target,
            effect_mode=wish.mode,
            dead_letter_id=letter.dead_letter_id,
            delivery_id=letter.delivery_id,
            activity_key=activity_key(letter.tenant, letter.activity_id).decode(),
            activity_id=letter.activity_id,
            failure_phase=letter.failure_phase,
            code=letter.code,
            cause=letter.cause,
            attempts=letter.attempts,
            generation=letter.generation,
            reconciliation_required=letter.reconciliation_required,
            summary=letter.summary,
            created_ms=letter.created_ms,
            job_id=wish.job_id,
        )

    def _is_audited(self, letter: SeenLetter, audit_id: str) -> bool:
        seen = self._view.letter(letter.dead_letter_id)
        return seen is not None and any(each.audit_id == audit_id for each in seen.audits)

    def _outcome(self, letter_id: str, audit_id: str) -> Reopened:
        """What the ledger made of it.

        Raises:
            Problem: 409: the ledger took another replica's redrive of this letter.
        """
        letter = self._view.letter(letter_id)
        assert letter is not None, "the letter was there, and none is ever dropped"
        if self._view.is_open(letter) or not self._is_audited(letter, audit_id):
            return Reopened(
                letter=letter, delivery=None, audit_id=audit_id, visible_at=Positions({})
            )
        if resolution(letter) != audit_id:
            raise RESOLVED
        delivery = self._view.db.delivery(letter.delivery_id)
        names = [] if delivery is None else [ledger_name(delivery.partition)]
        visible_at = self._view.positions().only(*names)
        return Reopened(letter=letter, delivery=delivery, audit_id=audit_id, visible_at=visible_at)


def resolution(letter: SeenLetter) -> str | None:
    """The audit id of the redrive that resolved a letter: the same in every replica.

    The ledger applies one of several (rule 11), and its row tells by the generation in which mode.
    Among those of that mode the first in the audit topic is taken: their effect is the same.
    """
    fitting = [
        each.audit_id
        for each in letter.audits
        if letter.raised in (None, each.effect_mode == EffectMode.NEW_EXTERNAL_SEND)
    ]
    return fitting[0] if fitting else None
