"""Reads every topic of a round while it runs: compaction must not take what was never seen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from streams.topics.catalogue import Topics
from tests.chaos.history import (
    OWNER_KEY,
    ZERO,
    Command,
    Entry,
    History,
    LetterRecord,
    Receipt,
    Retry,
    read_avro,
    read_calls,
    read_items,
    read_source,
)

Record: TypeAlias = ConsumerRecord[bytes, bytes]


class Recorder:
    """Fills a `History` from the topics of one prefix.

    Args:
        log: The receiver's.
        keeps: Which activities, by their key, go into the history.
        keeps_path: Which calls do.
        sees: Is shown every record, kept or not.
    """

    def __init__(
        self,
        brokers: str,
        topics: Topics,
        partitions: int,
        history: History,
        log: Path,
        *,
        keeps: Callable[[str], bool] = lambda _activity: True,
        keeps_path: Callable[[str], bool] = lambda _path: True,
        sees: Callable[[Record], None] = lambda _record: None,
    ) -> None:
        self.history = history
        history.outbox = topics.outbox
        self._brokers = brokers
        self._topics = topics
        self._retries = frozenset(topics.outbox_retries.values())
        self._log = log
        self._keeps, self._keeps_path, self._sees = keeps, keeps_path, sees
        read = (
            topics.outbox,
            topics.ledger,
            topics.receipts,
            topics.outbox_dead_letters,
            topics.commands,
            *self._retries,
        )
        self._places = [TopicPartition(topic, p) for topic in read for p in range(partitions)]
        self._read: dict[TopicPartition, int] = dict.fromkeys(self._places, 0)
        self._came = asyncio.Event()

    async def start(self) -> None:
        """Follow from the beginning."""
        self._consumer = self._reader()
        await self._consumer.start()
        self._consumer.assign(self._places)
        self._reading = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        """Stop following."""
        self._reading.cancel()
        await asyncio.wait({self._reading})
        await self._consumer.stop()

    def _reader(self) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            bootstrap_servers=self._brokers,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            request_timeout_ms=15_000,
        )

    async def _follow(self) -> None:
        while True:
            fetched = await self._consumer.getmany(timeout_ms=300)
            for tp, records in fetched.items():
                for record in records:
                    self._take(record)
                self._read[tp] = records[-1].offset + 1
            self._came.set()

    def _take(self, record: Record) -> None:
        t, h, value = self._topics, self.history, record.value
        activity = (record.key or b"").decode(errors="replace")
        at = {"partition": record.partition, "offset": record.offset, "t_ms": record.timestamp}
        self._sees(record)
        if record.key != OWNER_KEY and not self._keeps(activity):
            return
        if record.topic == t.ledger:
            h.ledger.append(_entry(record))
        elif record.topic == t.outbox:
            h.sources.append(read_source(value=value or b"", **at))
        elif record.topic == t.receipts:
            fields = read_avro("receipt", value or b"")
            h.receipts.append(Receipt(t_ms=record.timestamp, activity=activity, fields=fields))
        elif record.topic == t.outbox_dead_letters:
            letter = None if value is None else tuple(read_avro("dead-letter", value)["deliveries"])
            derived = any(name == "ledger-offset" for name, _ in record.headers)
            h.letters.append(
                LetterRecord(activity=activity, deliveries=letter, is_derived=derived, **at)
            )
        elif record.topic == t.commands:
            fields = read_avro("command", value or b"")
            h.commands.append(Command(activity=activity, fields=fields, **at))
        else:
            due_ms, items = read_items(record.headers)
            h.retries.append(
                Retry(topic=record.topic, activity=activity, due_ms=due_ms, items=items, **at)
            )

    async def until_owned(self, partitions: int) -> None:
        """Wait until every partition of the ledger has had its first OWNER."""
        while len({entry.partition for entry in self.history.ledger}) < partitions:
            self._came.clear()
            await self._came.wait()

    async def look(self) -> None:
        """Bring the history up to now: group offsets and calls first, then all that the topics hold.

        In this order the consequences of what is committed, and the claim of each call, were read.

        Raises:
            KafkaError: a broker does not answer now.
        """
        self.history.committed = await self._committed()
        self.history.calls = read_calls(self._log, self._keeps_path)
        ends = await self._consumer.end_offsets(self._places)
        async with asyncio.timeout(30):
            while any(self._read[tp] < end for tp, end in ends.items()):
                if self._reading.done():
                    self._reading.result()
                self._came.clear()
                await self._came.wait()
        consumed = {self._topics.outbox, self._topics.commands, *self._retries}
        self.history.ends = {
            (tp.topic, tp.partition): end for tp, end in ends.items() if tp.topic in consumed
        }

    async def _committed(self) -> dict[tuple[str, int], int]:
        admin = AIOKafkaAdminClient(bootstrap_servers=self._brokers, request_timeout_ms=10_000)
        try:
            await admin.start()
            found = await admin.list_consumer_group_offsets(self._topics.group)
        finally:
            await admin.close()
        return {(tp.topic, tp.partition): meta.offset for tp, meta in found.items()}

    async def read_compacted(self) -> None:
        """Read the ledger once more from its beginning, as compaction has left it."""
        ledger = [tp for tp in self._places if tp.topic == self._topics.ledger]
        consumer = self._reader()
        await consumer.start()
        try:
            consumer.assign(ledger)
            ends = await consumer.end_offsets(ledger)
            await consumer.seek_to_beginning(*ledger)
            entries: list[Entry] = []
            while True:
                at = [await consumer.position(tp) >= ends[tp] for tp in ledger]
                if all(at):
                    break
                for records in (await consumer.getmany(timeout_ms=300)).values():
                    entries += map(_entry, records)
            self.history.compacted = [e for e in entries if e.offset < ends[_tp(self, e)]]
        finally:
            await consumer.stop()


def _tp(recorder: Recorder, entry: Entry) -> TopicPartition:
    return TopicPartition(recorder._topics.ledger, entry.partition)


def _entry(record: Record) -> Entry:
    headers = dict(record.headers)
    key = record.key or b""
    row = None
    if record.value is not None and key != OWNER_KEY:
        row = read_avro("ledger-delivery" if ZERO in key else "ledger-activity", record.value)
    return Entry(
        partition=record.partition,
        offset=record.offset,
        t_ms=record.timestamp,
        key=key,
        kind=headers["k"].decode(),
        epoch=int(headers["e"]) if "e" in headers else None,
        token=headers["t"],
        row=row,
    )
