"""What rows owe the world outside the ledger: retries, dead letters, receipts; and the rejected."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass, replace
from typing import Final

from streams.edge.appender import Appender
from streams.edge.failpoint import failpoint
from streams.engine.durable import durable
from streams.engine.letters import Letters
from streams.engine.partition import Partition
from streams.engine.ports import Time
from streams.engine.retry_writer import RetryRecord, RetryWriter
from streams.engine.trigger import Trigger
from streams.model.ledger import NEVER, FailurePhase, Phase, Row
from streams.model.receipt import DeadLetter, Letter, Outcome, Receipt
from streams.rules.triggers import receipt_of
from streams.wire.codec import encode_dead_letter, encode_receipt
from streams.wire.records import RetryItem, ledger_offset_header

PART_BYTES: Final = 1024 * 1024
"""A quarantined value goes on in a further record from here: one that was compressed on its way in can
be larger than any topic takes, and must stop no partition (C-14)."""

_DEAD: Final = Phase.DEAD


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputTopics:
    """Full names of the topics that follow-ups are written to.

    Attributes:
        retries: Bucket name to topic name.
    """

    retries: dict[str, str]
    dead_letters: str
    receipts: str
    quarantine: str


@dataclass(frozen=True, slots=True)
class KafkaOutputs:
    """Appends follow-ups to their topics. Implements `RetryLog` and `LetterLog`."""

    appender: Appender
    topics: OutputTopics

    def append_retry(self, record: RetryRecord) -> asyncio.Future[int]:
        """See `RetryLog`."""
        return self.appender.append(
            self.topics.retries[record.bucket],
            record.partition,
            key=record.key,
            value=record.value,
            headers=record.headers,
            timestamp_ms=record.timestamp_ms,
        )

    def append_letter(
        self, partition: int, key: bytes, value: bytes | None, ledger_offset: int
    ) -> asyncio.Future[int]:
        """See `LetterLog`."""
        headers = [ledger_offset_header(ledger_offset)]
        return self.appender.append(
            self.topics.dead_letters, partition, key=key, value=value, headers=headers
        )

    def append_receipt(self, partition: int, key: bytes, receipt: Receipt) -> asyncio.Future[int]:
        """Append to `outbox.receipts`."""
        return self.appender.append(
            self.topics.receipts, partition, key=key, value=encode_receipt(receipt)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """A record that cannot be read as what its topic promises.

    Attributes:
        position: `topic/partition/offset`.
        code: The rule broken.
        value: Its bytes, None for a tombstone.
    """

    position: str
    partition: int
    code: str
    value: bytes | None
    queue: str = "outbox"

    def letter(self, now_ms: int) -> DeadLetter:
        """Its dead letter: hash and position, none of its bytes."""
        digest = hashlib.sha256(self.value or b"").hexdigest()
        return DeadLetter(
            activity_id=self.position,
            queue=self.queue,
            tenant="default",
            ledger_entry_id=None,
            deliveries=(
                Letter(
                    dead_letter_id=f"rec_{digest[:32]}.1",
                    delivery_id=f"rec_{digest[:32]}",
                    target="",
                    failure_phase=FailurePhase.ADMISSION,
                    code=self.code,
                    attempts=0,
                    generation=1,
                    reconciliation_required=False,
                    summary=f"{len(self.value or b'')} bytes, sha256 {digest}",
                    created_ms=now_ms,
                    cause=self.code,
                ),
            ),
        )


class FollowUps:
    """Writes a row's current follow-up. Implements `delivery.Outputs`."""

    def __init__(
        self, kafka: KafkaOutputs, retries: RetryWriter, letters: Letters, time: Time
    ) -> None:
        self._kafka = kafka
        self._retries = retries
        self._letters = letters
        self._time = time

    async def follow_up(self, trigger: Trigger, row: Row | None) -> None:
        """See `delivery.Outputs`."""
        if row is None:
            return
        activity = trigger.carried.activity
        receipt = receipt_of(row, activity.activity_id, activity.tenant)
        if receipt is not None:
            appended = self._kafka.append_receipt(trigger.partition.index, activity.key, receipt)
            if row.phase is _DEAD:
                failpoint("letter_unwritten")
                await self._letters.write(trigger.partition, activity.key)
            await durable(appended)
        elif row.phase is Phase.WAITING:
            failpoint("retry_unwritten")
            await self._retries.write(trigger, _item(trigger, row), row.due_ms)
            failpoint("retry_written")

    async def put_aside(self, trigger: Trigger, row: Row, wait_ms: int) -> None:
        """See `delivery.Outputs`."""
        item = replace(_item(trigger, row), parked_ms=trigger.parked_ms)
        await self._retries.write(trigger, item, self._time.now_ms() + wait_ms)

    async def park(self, trigger: Trigger, row: Row, wait_ms: int) -> None:
        """See `delivery.Outputs`."""
        now_ms = self._time.now_ms()
        item = replace(_item(trigger, row), parked_ms=trigger.parked_ms, parked_since_ms=now_ms)
        await self._retries.write(trigger, item, now_ms + wait_ms)

    async def tell(self, partition: Partition, activity_key: bytes, receipt: Receipt) -> None:
        """Write a receipt that no trigger stands behind: `duplicate`, `conflict`, a cancelled delivery."""
        await durable(self._kafka.append_receipt(partition.index, activity_key, receipt))

    async def reject(self, record: Rejected) -> None:
        """Dead-letter a record that cannot be read, its bytes to quarantine (C-14); done when durable."""
        key = record.position.encode()
        appender, topics = self._kafka.appender, self._kafka.topics
        kept = [
            durable(
                appender.append(
                    topics.quarantine, record.partition, key=key, value=part, headers=headers
                )
            )
            for part, headers in _in_parts(record.value or b"")
        ]
        letter = encode_dead_letter(record.letter(self._time.now_ms()))
        # No `ledger-offset` header: no row stands behind it, so reading it back changes nothing.
        told = appender.append(topics.dead_letters, record.partition, key=key, value=letter)
        await asyncio.gather(*kept, durable(told))


def _in_parts(value: bytes) -> list[tuple[bytes, list[tuple[str, bytes]]]]:
    """A value as records that a topic takes, each saying which part it is; most are one record."""
    parts = [value[at : at + PART_BYTES] for at in range(0, len(value), PART_BYTES)] or [b""]
    if len(parts) == 1:
        return [(value, [])]
    return [
        (part, [("part", b"%d/%d" % (number, len(parts)))])
        for number, part in enumerate(parts, start=1)
    ]


def not_taken(
    activity_id: str, tenant: str, outcome: Outcome, *, admitted_ms: int, now_ms: int
) -> Receipt:
    """The receipt of an activity record of which nothing is sent."""
    return Receipt(
        activity_id=activity_id,
        tenant=tenant,
        verdict=outcome,
        code=outcome.value,
        started_ms=admitted_ms,
        settled_ms=now_ms,
    )


def _item(trigger: Trigger, row: Row) -> RetryItem:
    return RetryItem(
        delivery_id=trigger.delivery_id,
        target=trigger.recipient.key,
        attempt=row.attempts,
        fence=row.fence,
        budget=row.budget if row.fence == NEVER else None,
    )
