"""What others ask of a partition's owner: reopen a dead letter, cancel, note a report that came late."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import structlog

from streams.engine.delivery import Targets
from streams.engine.lanes import Lane, Record
from streams.engine.letters import Letters
from streams.engine.partition import Partition
from streams.engine.ports import Time
from streams.engine.telling import Teller
from streams.engine.work import Tasks
from streams.errors import RecordError
from streams.model.activity import Recipient
from streams.model.ledger import SEPARATOR, Kind, Phase, Row
from streams.model.policy import ACTIVITY
from streams.model.receipt import Receipt
from streams.model.verdict import Judgement
from streams.rules.decide import CancelAsked, Judged, RedriveAsked, decide, is_cancelled
from streams.rules.identity import activity_key_of
from streams.rules.triggers import receipt_of
from streams.wire.commands import Cancel, LateReport, Redrive, decode_command
from streams.wire.records import position_of

log = structlog.get_logger(__name__)


class Receipts(Protocol):
    """Tells producers; `FollowUps` does."""

    async def tell(self, partition: Partition, activity_key: bytes, receipt: Receipt) -> None:
        """Write a receipt; done when durable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandAgent:
    """Works through one worker's commands. Each is applied at most once, however often it comes."""

    partitions: dict[int, Partition]
    targets: Targets
    letters: Letters
    receipts: Receipts
    tasks: Tasks
    teller: Teller
    time: Time

    async def work(self, lane: Lane, record: Record) -> None:
        """Take one command."""
        try:
            command = decode_command(record.value or b"")
        except RecordError as error:
            # Written by ourselves or the API only: nothing that a producer owns is lost with it.
            self.teller.rejected(
                position_of(record.topic, record.partition, record.offset), error.code
            )
            lane.settle(record)
            return
        partition = self.partitions[record.partition]
        match command:
            case LateReport():
                self.tasks.spawn(self._late(lane, record, partition, command))
            case Redrive():
                self.tasks.spawn(self._redrive(lane, record, partition, command))
            case Cancel():
                self.tasks.spawn(self._cancel(lane, record, partition, command))

    async def _late(
        self, lane: Lane, record: Record, partition: Partition, report: LateReport
    ) -> None:
        """Settle the claim that the report names, if the row is still claimed under it (rule 4)."""
        partition.foreign.heard(report)
        while await partition.until_led(lane.assignment):
            async with partition.locks.hold(report.delivery_key):
                row = partition.row(report.delivery_key)
                if row is None or row.phase is not Phase.CLAIMED or row.token != report.token:
                    if await partition.barrier() and partition.row(report.delivery_key) == row:
                        break
                    continue
                settled = self._settled(partition, report.delivery_key, row, report.judgement)
                claim = partition.adopted(report.delivery_key, row)
                if await partition.settle(claim, settled, report.judgement):
                    break
        else:
            return
        partition.foreign.forget(report.token)
        lane.settle(record)

    def _settled(self, partition: Partition, key: bytes, row: Row, judgement: Judgement) -> Row:
        activity = partition.activity(activity_key_of(key))
        tenant = "default" if activity is None else activity.tenant
        is_inbox = "://" in row.target
        recipient = Recipient(inbox=row.target) if is_inbox else Recipient(target=row.target)
        settled = decide(
            row,
            Judged(judgement),
            now_ms=self.time.now_ms(),
            jitter=self.time.jitter(),
            policy=self.targets.policy_of(tenant, recipient),
            idempotent=row.idempotent,
        )
        assert settled is not None, "a claimed delivery can always be judged"
        return settled

    async def _redrive(
        self, lane: Lane, record: Record, partition: Partition, command: Redrive
    ) -> None:
        """Reopen the dead letter that the command names; a second copy finds another budget (rule 11)."""
        activity_key = record.key or b""
        while await partition.until_led(lane.assignment):
            found = partition.letter(activity_key, command.letter_id)
            if found is None:
                is_fresh = await partition.barrier()
                if is_fresh and partition.letter(activity_key, command.letter_id) is None:
                    break
                continue
            async with partition.locks.hold(found):
                row = partition.row(found)
                if row is None:
                    continue
                reopened = decide(
                    row,
                    RedriveAsked(command.letter_id, command.mode),
                    now_ms=self.time.now_ms(),
                    jitter=0.0,
                    policy=ACTIVITY,
                    idempotent=False,
                )
                if reopened is None:
                    continue
                if not await partition.write(Kind.REDRIVE, found, reopened):
                    continue
            self.teller.redriven(command.letter_id, command.audit_id)
            break
        else:
            return
        # Also for a command that was applied before: the crash may have come between the two.
        await self.letters.write(partition, activity_key)
        lane.settle(record)

    async def _cancel(
        self, lane: Lane, record: Record, partition: Partition, command: Cancel
    ) -> None:
        """Skip the delivery that the command names, once no claim of it stands."""
        activity_key = record.key or b""
        while await partition.until_led(lane.assignment):
            if partition.closing:
                return  # not acknowledged: comes again to the next owner
            found = _named(partition, activity_key, command.letter_id)
            if found is None:
                is_fresh = await partition.barrier()
                if is_fresh and _named(partition, activity_key, command.letter_id) is None:
                    break
                continue
            # A call of ours that is in flight holds the lock: this waits until it is settled.
            async with partition.locks.hold(found):
                if not await self._cancel_row(partition, found, command):
                    continue
            await self._tell_cancelled(partition, activity_key, found, command)
            break
        else:
            return
        lane.settle(record)

    async def _cancel_row(self, partition: Partition, key: bytes, command: Cancel) -> bool:
        """Under the delivery's lock, take the one step that its row calls for; False to look anew."""
        row = partition.row(key)
        if row is None:
            return False
        if row.phase is Phase.CLAIMED:
            await self._adopt(partition, key, row)
            return False
        cancelled = decide(
            row,
            CancelAsked(command.letter_id),
            now_ms=self.time.now_ms(),
            jitter=0.0,
            policy=ACTIVITY,
            idempotent=False,
        )
        if cancelled is None:
            return await partition.barrier() and partition.row(key) == row
        return await partition.write(Kind.REPORT, key, cancelled)

    async def _adopt(self, partition: Partition, key: bytes, row: Row) -> None:
        """Settle a claim that no task of ours holds: it is never cancelled over.

        What the settled row owes the world is written by the trigger that the claim was made for: it was
        not acknowledged, and comes again.
        """
        await partition.adopt(key, row, lambda seen: self._settled(partition, key, row, seen))

    async def _tell_cancelled(
        self, partition: Partition, activity_key: bytes, key: bytes, command: Cancel
    ) -> None:
        """Write the receipt, also of what was cancelled before: the crash may have come between the two."""
        row, activity = partition.row(key), partition.activity(activity_key)
        if row is None or activity is None or not is_cancelled(row, command.letter_id):
            return
        receipt = receipt_of(row, activity.activity_id, activity.tenant)
        assert receipt is not None, "what is skipped is settled"
        await self.receipts.tell(partition, activity_key, receipt)
        log.info("delivery.cancelled", delivery_id=row.delivery_id, audit_id=command.audit_id)


def _named(partition: Partition, activity_key: bytes, letter_id: str) -> bytes | None:
    """The ledger key of the delivery in the budget that a command names, or None."""
    for key, _ in partition.store.under(activity_key + SEPARATOR):
        row = partition.row(key)
        if row is not None and row.letter_id == letter_id:
            return key
    return None
