"""What others ask of a partition's owner: reopen a dead letter, note a report that came late."""

from __future__ import annotations

from dataclasses import dataclass

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
from streams.model.ledger import Kind, Phase, Row
from streams.model.policy import ACTIVITY
from streams.rules.decide import Judged, RedriveAsked, decide
from streams.rules.identity import activity_key_of
from streams.wire.commands import LateReport, Redrive, decode_command
from streams.wire.records import position_of

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandAgent:
    """Works through one worker's commands. Each is applied at most once, however often it comes."""

    partitions: dict[int, Partition]
    targets: Targets
    letters: Letters
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

    async def _late(
        self, lane: Lane, record: Record, partition: Partition, report: LateReport
    ) -> None:
        """Settle the claim that the report names, if the row is still claimed under it (rule 4)."""
        partition.heard_late(report)
        while await partition.until_led(lane.assignment):
            async with partition.locks.hold(report.delivery_key):
                row = partition.row(report.delivery_key)
                if row is None or row.phase is not Phase.CLAIMED or row.token != report.token:
                    if await partition.barrier() and partition.row(report.delivery_key) == row:
                        break
                    continue
                settled = self._settled(partition, report, row)
                claim = partition.adopted(report.delivery_key, row)
                if await partition.settle(claim, settled, report.judgement):
                    break
        else:
            return
        partition.forget_claim(report.token)
        lane.settle(record)

    def _settled(self, partition: Partition, report: LateReport, row: Row) -> Row:
        activity = partition.activity(activity_key_of(report.delivery_key))
        tenant = "default" if activity is None else activity.tenant
        is_inbox = "://" in row.target
        recipient = Recipient(inbox=row.target) if is_inbox else Recipient(target=row.target)
        settled = decide(
            row,
            Judged(report.judgement),
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
