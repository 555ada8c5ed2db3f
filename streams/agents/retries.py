"""Waiting retries: each wakes when its bucket says, is held or hops while time is left, then is tried."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from streams.agents.rejecting import reject
from streams.engine.held import SLICE, Held
from streams.engine.lanes import Lane, Record
from streams.engine.outputs import FollowUps, KafkaOutputs
from streams.engine.partition import Partition
from streams.engine.ports import Time
from streams.engine.released import Released
from streams.engine.retry_writer import RetryRecord
from streams.engine.telling import Teller
from streams.engine.trigger import Carried, Trigger
from streams.engine.work import Runner, Tasks
from streams.errors import RecordError
from streams.model.activity import Activity
from streams.rules.buckets import Fire, Hold, Hop, hop, wake_ms
from streams.rules.identity import delivery_id, delivery_key
from streams.rules.pacing import parked_ms
from streams.wire.activity import read_activity
from streams.wire.records import (
    PARKED,
    RetryItem,
    carried_headers,
    read_retry_headers,
    retry_headers,
)

SLEEP_MAX_S = 1.0
"""Longest single sleep: the wall clock may be set while we sleep by the monotonic one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryAgent:
    """Works through one worker's delay topics.

    Attributes:
        buckets: Topic name to bucket name.
        max_held_bytes: Bound on what is held in memory between waking and due.
        max_bytes: Bound of an activity's record.
        max_depth: Bound of its JSON's depth.
        released: Targets whose parked deliveries go at once.
    """

    buckets: dict[str, str]
    partitions: dict[int, Partition]
    held: Held
    max_held_bytes: int
    max_bytes: int
    max_depth: int
    runner: Runner
    tasks: Tasks
    kafka: KafkaOutputs
    follow_ups: FollowUps
    teller: Teller
    time: Time
    released: Released = field(default_factory=Released)

    async def work(self, lane: Lane, record: Record) -> None:
        """Wait until the head of the bucket wakes, then place it: the order of waking is the topic's."""
        try:
            due_ms, items = read_retry_headers(record.headers)
        except RecordError as error:
            self.tasks.spawn(reject(self.follow_ups, self.teller, lane, record, error.code))
            return
        wakes_ms = wake_ms(self.buckets[record.topic], record.timestamp)
        left_ms = wakes_ms - self.time.now_ms()
        while left_ms > 0:
            await asyncio.sleep(min(left_ms / 1000, SLEEP_MAX_S))
            left_ms = wakes_ms - self.time.now_ms()
            if self._release(lane) and self.released.frees(items):
                await self._fire(lane, record, due_ms, items)
                return
        if not record.offset % SLICE:
            # From here on a lane of a thousand that wake together waits for nothing.
            await asyncio.sleep(0)
        cost = self.held.cost_of(record)
        now_ms = self.time.now_ms()
        match hop(due_ms, now_ms, self.held.bytes, cost, self.max_held_bytes):
            case Fire():
                await self._fire(lane, record, due_ms, items)
            case Hold(until_ms=until_ms):
                self.held.hold(until_ms, lane, record)
            case Hop(bucket=bucket):
                self.tasks.spawn(self._hop(lane, record, bucket, due_ms, items))

    def waits(self, topic: str, lane: Lane, offset: int) -> bool:
        """Whether a record of the lane waits for its time: its bucket's turn, or in memory until due."""
        if self.held.holds(lane, offset):
            return True
        record = lane.at_work
        if topic not in self.buckets or record is None or record.offset != offset:
            return False
        return self.time.now_ms() < wake_ms(self.buckets[topic], record.timestamp)

    def release(self, target: str) -> None:
        """A target was enabled: what is parked for it goes as soon as it is come upon."""
        self.released.note(target, self.time.monotonic())

    def _release(self, lane: Lane) -> bool:
        """Start what waits in the lane for nothing any more; say whether anything is released at all."""
        if not self.released.has_any(self.time.monotonic()):
            return False
        for record in lane.take_out(self._is_free):
            due_ms, items = read_retry_headers(record.headers)
            self.tasks.spawn(self._fire(lane, record, due_ms, items))
        return True

    def _is_free(self, record: Record) -> bool:
        if not any(name == PARKED for name, _ in record.headers):
            return False
        try:
            return self.released.frees(read_retry_headers(record.headers)[1])
        except RecordError:
            return False  # it is rejected in its turn

    def fire_held(self, lane: Lane, record: Record) -> None:
        """A held record is due."""
        due_ms, items = read_retry_headers(record.headers)
        self.tasks.spawn(self._fire(lane, record, due_ms, items))

    async def _hop(
        self, lane: Lane, record: Record, bucket: str, due_ms: int, items: tuple[RetryItem, ...]
    ) -> None:
        await self.kafka.append_retry(
            RetryRecord(
                bucket=bucket,
                partition=record.partition,
                key=record.key or b"",
                value=record.value or b"",
                headers=retry_headers(due_ms, items, carried_headers(record.headers)),
                timestamp_ms=self.time.now_ms(),
            )
        )
        lane.settle(record)

    async def _fire(
        self, lane: Lane, record: Record, due_ms: int, items: tuple[RetryItem, ...]
    ) -> None:
        self.teller.fired(self.time.now_ms() - due_ms)
        try:
            activity = read_activity(
                record.value or b"", max_bytes=self.max_bytes, max_depth=self.max_depth
            )
            triggers = self._triggers(lane, record, activity, items)
        except RecordError as error:
            await reject(self.follow_ups, self.teller, lane, record, error.code)
            return
        await self.runner.run(lane, record, triggers)

    def _triggers(
        self, lane: Lane, record: Record, activity: Activity, items: tuple[RetryItem, ...]
    ) -> list[Trigger]:
        partition = self.partitions[record.partition]
        now_ms = self.time.now_ms()
        known = {recipient.key: recipient for recipient in activity.recipients}
        row = partition.activity(activity.key)
        carried = Carried(
            activity=activity, value=record.value or b"", headers=carried_headers(record.headers)
        )
        triggers = []
        for item in items:
            recipient = known.get(item.target)
            if recipient is None or delivery_id(activity, recipient) != item.delivery_id:
                raise RecordError(
                    "retry_foreign",
                    "a retry record names a delivery that its activity does not owe",
                )
            triggers.append(
                Trigger(
                    partition=partition,
                    assignment=lane.assignment,
                    key=delivery_key(activity, recipient),
                    delivery_id=item.delivery_id,
                    carried=carried,
                    recipient=recipient,
                    fence=item.fence,
                    attempts=item.attempt,
                    budget=item.budget,
                    admitted_ms=record.timestamp if row is None else row.first_seen_ms,
                    parked_ms=parked_ms(item.parked_ms, item.parked_since_ms, now_ms),
                )
            )
        return triggers
