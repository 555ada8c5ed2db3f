"""Fixed inputs, written to Kafka as fast as it takes them, in the product's own forms.

A whole batch is built here and handed over with one future, as the product's appender does; what a
record says is made by `streams.wire` and `streams.rules`, so that a worker cannot tell it from its own.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from aiokafka import AIOKafkaProducer

from streams.model.activity import Activity
from streams.model.ledger import OWNER_KEY, ActivityRow, Admission, Kind, Phase, Row
from streams.model.values import replace
from streams.rules.identity import (
    canonical_hash,
    delivery_id,
    delivery_key,
    partition_of,
    target_hash,
)
from streams.wire.activity import read_activity
from streams.wire.codec import encode_activity_row, encode_row
from streams.wire.records import RetryItem, ledger_headers, retry_headers

PARTITIONS: Final = 8
BODY_BYTES: Final = 550
KNOWN_RECIPIENTS: Final = 10
"""Deliveries of each activity of a preloaded ledger."""

_BATCH_BYTES: Final = 256 * 1024
_ON_THE_WAY: Final = 16
_EPOCH: Final = 0
"""Of the preloaded rows: their OWNER record is the first of its partition."""


@dataclass(frozen=True, slots=True)
class Record:
    """One record to write."""

    partition: int
    key: bytes
    value: bytes | None
    headers: Sequence[tuple[str, bytes]] = ()
    timestamp_ms: int | None = None


async def append(options: Mapping[str, Any], topic: str, records: Iterable[Record]) -> float:
    """Write all records; done when all are acknowledged.

    Returns:
        CPU seconds of this process meanwhile, the making of lazy records included.
    """
    producer = AIOKafkaProducer(
        **options,
        enable_idempotence=True,
        acks="all",
        max_batch_size=_BATCH_BYTES,
        max_request_size=8 * _BATCH_BYTES,
    )
    await producer.start()
    try:
        began = time.process_time()
        await _append(producer, topic, records)
        return time.process_time() - began
    finally:
        await producer.stop()


async def _append(producer: Any, topic: str, records: Iterable[Record]) -> None:
    builders: dict[int, Any] = {}
    sent: deque[Any] = deque()

    async def hand_over(partition: int, builder: Any) -> None:
        builder.close()
        sent.append(await producer.send_batch(builder, topic, partition=partition))
        if len(sent) > _ON_THE_WAY:
            await sent.popleft()

    for record in records:
        builder = builders.get(record.partition)
        if builder is None:
            builder = builders[record.partition] = producer.create_batch()
        if not _add(builder, record):
            await hand_over(record.partition, builder)
            builder = builders[record.partition] = producer.create_batch()
            assert _add(builder, record), "a record is larger than a batch"
    for partition, builder in builders.items():
        await hand_over(partition, builder)
    for future in sent:
        await future


def _add(builder: Any, record: Record) -> bool:
    added = builder.append(
        timestamp=record.timestamp_ms,
        key=record.key,
        value=record.value,
        headers=list(record.headers),
    )
    return added is not None


def activities(run: str, count: int, to: Sequence[str], *, each: int = 1) -> list[Record]:
    """`count` activities whose body has exactly 550 bytes, the same ones for the same `run`.

    Args:
        run: Goes into the ids, so that no run repeats another's.
        to: Inbox URLs or names of registered targets, given to the activities in turn.
        each: Recipients of each activity.
    """
    return [_activity_record(f"{run}-{n:07d}", _recipients(to, n, each)) for n in range(count)]


def _recipients(to: Sequence[str], n: int, each: int) -> list[str]:
    return [to[(n * each + k) % len(to)] for k in range(each)]


def _activity_record(name: str, to: Sequence[str]) -> Record:
    activity_id = f"https://bench.example/activities/{name}"
    value = json.dumps(
        {
            "activity_id": activity_id,
            "actor": "https://bench.example/users/al",
            "recipients": [{"inbox" if "://" in one else "target": one} for one in to],
        }
    )
    key = activity_id.encode()
    return Record(
        partition_of(key, PARTITIONS), key, f'{value[:-1]}, "activity": {_body(name)}}}'.encode()
    )


def _body(name: str) -> str:
    """JSON of exactly `BODY_BYTES` ASCII bytes; every activity has another content."""
    told: dict[str, Any] = {
        "@context": "https://www.w3.org/ns/activitystreams",
        "type": "Create",
        "id": f"https://bench.example/activities/{name}",
        "actor": "https://bench.example/users/al",
        "published": "2026-11-30T10:00:00Z",
        "to": ["https://www.w3.org/ns/activitystreams#Public"],
        "object": {"type": "Note", "content": ""},
    }
    digest = sha256(name.encode()).hexdigest()
    told["object"]["content"] = (digest * 9)[: BODY_BYTES - len(json.dumps(told))]
    return json.dumps(told)


def known_values(first: int, last: int) -> Iterator[tuple[Record, Activity]]:
    """Activities that a preloaded ledger knows: those of its deliveries from `first` to `last`."""
    inboxes = [f"https://inbox{k}.bench.example/users/al/inbox" for k in range(KNOWN_RECIPIENTS)]
    for n in range(first // KNOWN_RECIPIENTS, max(1, last // KNOWN_RECIPIENTS)):
        record = _activity_record(f"known-{n:07d}", inboxes)
        assert record.value is not None
        yield record, read_activity(record.value, max_bytes=1 << 20, max_depth=32)


def known_rows(known: int, now_ms: int) -> Iterator[Record]:
    """Ledger records of `known` deliveries that wait for a retry, and of their activities.

    As compaction leaves a ledger: each key once. Must be the first records of the topic: each
    partition starts with the OWNER record whose offset, 0, is the epoch of all that follows.
    """
    for partition in range(PARTITIONS):
        token = sha256(b"owner%d" % partition).digest()[:16]
        yield Record(partition, OWNER_KEY, None, ledger_headers(Kind.OWNER, None, token))
    for record, activity in known_values(0, known):
        keys = [delivery_key(activity, recipient) for recipient in activity.recipients]
        row = ActivityRow(
            canonical_hash=canonical_hash(activity),
            activity_id=activity.activity_id,
            tenant=activity.tenant,
            first_seen_ms=now_ms,
            admissions=(Admission(offset=0, targets=b"".join(map(target_hash, keys))),),
        )
        token = row.canonical_hash[:16]
        headers = ledger_headers(Kind.ADMIT, _EPOCH, token)
        yield Record(record.partition, activity.key, encode_activity_row(row), headers)
        template = _waiting(now_ms)
        for key, recipient in zip(keys, activity.recipients, strict=True):
            token = sha256(key).digest()[:16]
            waiting = replace(
                template,
                delivery_id=delivery_id(activity, recipient),
                target=recipient.key,
                token=token,
            )
            headers = ledger_headers(Kind.REPORT, _EPOCH, token)
            yield Record(record.partition, key, encode_row(waiting), headers)


def waiting_retries(first: int, last: int, *, wait_ms: int) -> Iterator[Record]:
    """Retry records of the preloaded deliveries from `first` to `last`, each due `wait_ms` after it is
    written: the first attempt of each failed.
    """
    for record, activity in known_values(first, last):
        now_ms = int(time.time() * 1000)
        for recipient in activity.recipients:
            item = RetryItem(
                delivery_id=delivery_id(activity, recipient),
                target=recipient.key,
                attempt=1,
                fence=1,
            )
            headers = retry_headers(now_ms + wait_ms, [item])
            yield Record(record.partition, activity.key, record.value, headers, now_ms)


def _waiting(now_ms: int) -> Row:
    return Row(
        phase=Phase.WAITING,
        delivery_id="",
        target="",
        attempts=1,
        fence=1,
        admitted_ms=now_ms,
        first_claim_ms=now_ms,
        claimed_ms=now_ms,
        due_ms=now_ms + 3_600_000,
        status=503,
        code="http_503",
        cause="http_503",
        idempotent=True,
        lease_ms=45_000,
    )
