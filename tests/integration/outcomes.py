"""What a producer and an operator read of deliveries: receipts, dead letters, quarantine, waiting retries."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from streams.errors import RecordError
from streams.model.receipt import DeadLetter, Receipt
from streams.topics import Topics
from streams.wire.codec import decode_dead_letter, decode_receipt
from streams.wire.records import RetryItem, read_retry_headers


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """A waiting retry as it lies in a delay topic."""

    bucket: str
    key: bytes
    due_ms: int
    items: tuple[RetryItem, ...]
    value: bytes


class Outcomes:
    """Reads the topics of one prefix from their beginning, and goes on until it is closed.

    Attributes:
        receipts: By activity ID, of whichever tenant.
        letters: Dead-letter key to what its last record says; None for a tombstone.
        letter_records: Every record of the dead-letter topic.
        quarantined: By position, the records that hold the bytes; more than one where they are many.
        retries: Every readable record of the delay topics.
    """

    def __init__(self) -> None:
        self.receipts: defaultdict[str, list[Receipt]] = defaultdict(list)
        self.letters: dict[str, DeadLetter | None] = {}
        self.letter_records: list[ConsumerRecord[bytes, bytes]] = []
        self.quarantined: defaultdict[str, list[ConsumerRecord[bytes, bytes]]] = defaultdict(list)
        self.retries: list[Retry] = []

    async def follow(self, brokers: str, topics: Topics, partitions: int) -> None:
        """Start reading."""
        self._names = topics
        self._buckets = {topic: bucket for bucket, topic in topics.outbox_retries.items()}
        followed = (topics.receipts, topics.outbox_dead_letters, topics.quarantine, *self._buckets)
        self._consumer: AIOKafkaConsumer[bytes, bytes] = AIOKafkaConsumer(
            bootstrap_servers=brokers, auto_offset_reset="earliest", enable_auto_commit=False
        )
        await self._consumer.start()
        self._consumer.assign(
            [TopicPartition(topic, p) for topic in followed for p in range(partitions)]
        )
        self._reading = asyncio.create_task(self._read())

    def check(self) -> None:
        """Raise what ended the reading, where something did."""
        if self._reading.done():
            self._reading.result()

    async def unfollow(self) -> None:
        """Stop reading."""
        self._reading.cancel()
        await asyncio.wait({self._reading})
        await self._consumer.stop()

    async def _read(self) -> None:
        while True:
            fetched = await self._consumer.getmany(timeout_ms=200)
            for records in fetched.values():
                for record in records:
                    self._take(record)

    def _take(self, record: ConsumerRecord[bytes, bytes]) -> None:
        if record.topic == self._names.receipts:
            receipt = decode_receipt(record.value or b"")
            self.receipts[receipt.activity_id].append(receipt)
        elif record.topic == self._names.outbox_dead_letters:
            key = (record.key or b"").decode()
            self.letters[key] = None if record.value is None else decode_dead_letter(record.value)
            self.letter_records.append(record)
        elif record.topic == self._names.quarantine:
            self.quarantined[(record.key or b"").decode()].append(record)
        elif (retry := _retry(record, self._buckets[record.topic])) is not None:
            self.retries.append(retry)


def _retry(record: ConsumerRecord[bytes, bytes], bucket: str) -> Retry | None:
    """What a delay topic holds; None for what a test put there to be refused."""
    try:
        due_ms, items = read_retry_headers(record.headers)
    except RecordError:
        return None
    return Retry(
        bucket=bucket,
        key=record.key or b"",
        due_ms=due_ms,
        items=items,
        value=record.value or b"",
    )
