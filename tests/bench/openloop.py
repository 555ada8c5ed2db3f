"""An open loop: activities at their times, whoever is slow, and which call came of which."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaProducer

from streams.model.activity import Activity
from streams.rules.identity import delivery_id
from streams.wire.activity import read_activity
from tests.bench.preload import Record
from tests.bench.receivers import Place


@asynccontextmanager
async def producing(options: Mapping[str, Any]) -> AsyncIterator[AIOKafkaProducer]:
    """A producer that holds nothing back to gather more."""
    producer = AIOKafkaProducer(**options, enable_idempotence=True, linger_ms=0)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


async def send(
    producer: Any, topic: str, records: Sequence[Record], rate: float, late_ms: list[float]
) -> list[float]:
    """Send each record at its time; give those times, epoch seconds, whether they were kept or not.

    Args:
        rate: Records a second.
        late_ms: Gets how late this process itself was with each.
    """
    loop = asyncio.get_running_loop()
    began, wall = loop.time(), time.time()
    sent = 0
    futures = []
    while sent < len(records):
        due = min(len(records), int((loop.time() - began) * rate) + 1)
        for record in records[sent:due]:
            late_ms.append((loop.time() - began - sent / rate) * 1e3)
            future = await producer.send(
                topic, record.value, key=record.key, partition=record.partition
            )
            futures.append(future)
            sent += 1
        await asyncio.sleep(0.001)
    await asyncio.gather(*futures)
    return [wall + n / rate for n in range(len(records))]


async def calls_of(place: Place, records: Sequence[Record], sent: Sequence[float]) -> list[float]:
    """How long after its time each record's first call came, in milliseconds.

    Raises:
        BenchError: one of them was never called.
    """
    ids = [message_id(record) for record in records]
    calls = await place.until_told(ids)
    at = {call.id: call.t for call in reversed(calls)}  # the first call of each counts
    # A clock of whole milliseconds says when a call came at the earliest.
    return [(at[i] + place.resolution_s - t) * 1e3 for i, t in zip(ids, sent, strict=True)]


def message_id(record: Record) -> str:
    """The `webhook-id` of an activity's first and only delivery."""
    activity: Activity = read_activity(record.value or b"", max_bytes=1 << 20, max_depth=32)
    return f"{delivery_id(activity, activity.recipients[0])}-1"
