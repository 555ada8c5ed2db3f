"""Source records become deliveries: read, admit, start. What cannot be read never stops a partition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec
import structlog

from streams.agents.rejecting import reject
from streams.edge.appender import Appender
from streams.edge.deathmark import Deathmark
from streams.engine.lanes import Lane, Record
from streams.engine.outputs import FollowUps, not_taken
from streams.engine.partition import Partition
from streams.engine.ports import Time
from streams.engine.telling import Teller
from streams.engine.trigger import Carried, Trigger
from streams.engine.work import Runner, Tasks
from streams.errors import RecordError
from streams.model.activity import Activity
from streams.model.ledger import ActivityRow, FailurePhase
from streams.model.receipt import Outcome
from streams.rules.admission import AdmissionDecision, Admitted, admit
from streams.rules.decide import CODE_EXPIRED, Turned
from streams.rules.identity import (
    canonical_hash,
    delivery_id,
    delivery_key,
    partition_of,
    target_hash,
)
from streams.wire.activity import read_activity
from streams.wire.records import carried_headers, position_of

log = structlog.get_logger(__name__)

TOO_OLD = Turned(FailurePhase.ADMISSION, CODE_EXPIRED)

_NEW: Final = Admitted.NEW
_IS_TOO_OLD: Final = Admitted.TOO_OLD
_TOO_MANY: Final = Admitted.TOO_MANY


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What an activity's record may be.

    Attributes:
        max_bytes: Of its value.
        max_depth: Of its JSON.
        partitions: Of every partitioned topic.
        dedupe_window_ms: How long a settled activity is remembered.
    """

    max_bytes: int
    max_depth: int
    partitions: int
    dedupe_window_ms: int


class _Taken(msgspec.Struct, frozen=True, kw_only=True):
    """A record that could be read.

    Attributes:
        keys: The ledger key of each recipient's delivery, in order.
    """

    lane: Lane
    record: Record
    activity: Activity
    keys: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxAgent:
    """Works through one worker's outbox records."""

    topic: str
    partitions: dict[int, Partition]
    limits: Limits
    runner: Runner
    tasks: Tasks
    deathmark: Deathmark
    appender: Appender
    follow_ups: FollowUps
    teller: Teller
    time: Time

    async def work(self, lane: Lane, record: Record) -> None:
        """Take one record: read it, admit it, start its deliveries."""
        position = position_of(record.topic, record.partition, record.offset)
        try:
            activity = self._read(record, position)
        except RecordError as error:
            self.tasks.spawn(reject(self.follow_ups, self.teller, lane, record, error.code))
            return
        home = partition_of(activity.key, self.limits.partitions)
        if home != record.partition:
            self.tasks.spawn(self._forward(lane, record, activity.key, home))
            return
        keys = tuple([delivery_key(activity, recipient) for recipient in activity.recipients])
        await self._admit(_Taken(lane=lane, record=record, activity=activity, keys=keys))

    def _read(self, record: Record, position: str) -> Activity:
        if self.deathmark.is_deadly(position):
            raise RecordError("killed_reader", "reading the record ended the worker three times")
        self.deathmark.mark(position)
        try:
            return read_activity(
                record.value, max_bytes=self.limits.max_bytes, max_depth=self.limits.max_depth
            )
        finally:
            self.deathmark.clear()

    async def _forward(self, lane: Lane, record: Record, key: bytes, home: int) -> None:
        """Send a record on to the partition of its activity: one activity must have one owner (C-14)."""
        # Of its headers what a retry would carry too: they may be more than a topic takes unpacked.
        headers = carried_headers(record.headers)
        appended = self.appender.append(
            self.topic, home, key=key, value=record.value, headers=headers
        )
        await appended
        self.teller.forwarded()
        lane.settle(record)

    async def _admit(self, taken: _Taken) -> None:
        lane, record = taken.lane, taken.record
        partition = self.partitions[record.partition]
        if not await partition.until_led(lane.assignment):
            return
        decision = self._decide(partition, taken)
        if decision.kind is _TOO_MANY:
            self.tasks.spawn(
                reject(self.follow_ups, self.teller, lane, record, "too_many_deliveries")
            )
            return
        wanted = _wanted(partition, taken, decision)
        if wanted:
            await self._start(taken, decision, wanted)
        else:
            self.tasks.spawn(self._turn_down(taken))

    def _decide(self, partition: Partition, taken: _Taken) -> AdmissionDecision:
        """What the record is, as far as the rows are folded."""
        record, activity = taken.record, taken.activity
        seen = ActivityRow(
            canonical_hash=canonical_hash(activity),
            activity_id=activity.activity_id,
            tenant=activity.tenant,
            first_seen_ms=self.time.now_ms(),
            ledger_entry_id=activity.ledger_entry_id,
        )
        return admit(
            partition.activity(activity.key),
            seen,
            tuple(map(target_hash, taken.keys)),
            offset=record.offset,
            record_ms=record.timestamp,
            now_ms=seen.first_seen_ms,
            dedupe_window_ms=self.limits.dedupe_window_ms,
        )

    async def _start(self, taken: _Taken, decision: AdmissionDecision, wanted: list[int]) -> None:
        """Write the activity's row and start the deliveries that the record is a trigger of."""
        lane, record, activity = taken.lane, taken.record, taken.activity
        partition = self.partitions[record.partition]
        if decision.kind is _NEW or decision.kind is _IS_TOO_OLD:
            partition.admit(activity.key, decision.row)
        carried = Carried(
            activity=activity, value=record.value or b"", headers=carried_headers(record.headers)
        )
        triggers = [
            Trigger(
                partition=partition,
                assignment=lane.assignment,
                key=taken.keys[i],
                delivery_id=delivery_id(activity, activity.recipients[i]),
                carried=carried,
                recipient=activity.recipients[i],
                admitted_ms=decision.row.first_seen_ms,
                turned=TOO_OLD if decision.kind is _IS_TOO_OLD else None,
            )
            for i in wanted
        ]
        await self.runner.run(lane, record, triggers)

    async def _turn_down(self, taken: _Taken) -> None:
        """Nothing is to be sent: say so to the producer, but on a fresh view only (rule 7)."""
        lane, record, activity = taken.lane, taken.record, taken.activity
        partition = self.partitions[record.partition]
        while not await partition.barrier():
            if not await partition.until_led(lane.assignment):
                return
        decision = self._decide(partition, taken)
        wanted = _wanted(partition, taken, decision)
        if wanted:
            # It was redriven a moment ago: this is the replay, which must not pass for a duplicate.
            await self._start(taken, decision, wanted)
            return
        is_conflict = decision.kind is Admitted.CONFLICT
        outcome = Outcome.CONFLICT if is_conflict else Outcome.DUPLICATE
        receipt = not_taken(
            activity.activity_id,
            activity.tenant,
            outcome,
            admitted_ms=decision.row.first_seen_ms,
            now_ms=self.time.now_ms(),
        )
        await self.follow_ups.tell(partition, activity.key, receipt)
        self.teller.not_taken(outcome)
        lane.settle(record)


def _wanted(partition: Partition, taken: _Taken, decision: AdmissionDecision) -> list[int]:
    """Positions of the recipients whose deliveries the record is a trigger of.

    Those that it brought; and, of those that another record brought, the ones that were ever redriven:
    it may be their replay (D-066), which is told from a duplicate by nothing. As a trigger it does what
    the row still calls for, and no more: a replay that came again after a crash must have a claim that
    was left standing adopted, and its dead letter written (rule 8).
    """
    again = [i for i in decision.repeated if _was_redriven(partition, taken.keys[i])]
    return sorted((*decision.owned, *again))


def _was_redriven(partition: Partition, key: bytes) -> bool:
    row = partition.row(key)
    return row is not None and row.budget > 1
