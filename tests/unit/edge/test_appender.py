"""Appends are packed into batches as aiokafka itself would pack them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import OutOfOrderSequenceNumber
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from streams.edge import appender as appender_module
from streams.edge.appender import GATHER_S, MAX_BATCH_BYTES, MAX_RECORD_BYTES, Appender
from streams.errors import FatalError

RECORDS = [
    (b"k", b"v", [("a", b"1"), ("b", b"\xff")], 1_000),
    (None, b"", [], 1_001),
    (b"", None, (("a", b"1"),), 900),
]


class Sent(list[BatchBuilder]):
    """Takes batches as a producer does; each is delivered at once, behind those before it."""

    def __init__(self) -> None:
        super().__init__()
        self.searched: list[TopicPartition] = []
        """Where a batch went by the producer, which looks for its partition in the cluster."""
        self.records = 0

    async def send_batch(self, batch: BatchBuilder, topic: str, *, partition: int) -> Any:
        self.searched.append(TopicPartition(topic, partition))
        return self.take(batch, self.searched[-1]).future

    def take(self, batch: BatchBuilder, tp: TopicPartition) -> Any:
        assert batch.closed()
        self.append(batch)
        delivered = asyncio.get_running_loop().create_future()
        delivered.set_result(SimpleNamespace(offset=self.records))
        self.records += batch.record_count()
        return SimpleNamespace(future=delivered)


@pytest.fixture
def failed() -> list[BaseException]:
    """What the appender called fatal."""
    return []


@pytest.fixture
async def appender(failed: list[BaseException]) -> AsyncIterator[Appender]:
    made = Appender(
        {"bootstrap_servers": "localhost:1"}, failed.append, client_id="test", gathered=["told"]
    )
    yield made
    await made.stop()


@pytest.fixture
def sent(appender: Appender, monkeypatch: pytest.MonkeyPatch) -> Sent:
    """What the appender gave to its producer."""
    sent = Sent()
    monkeypatch.setattr(appender._producer, "send_batch", sent.send_batch)
    monkeypatch.setattr(appender._producer._message_accumulator, "_append_batch", sent.take)
    return sent


def packed(records) -> bytes:
    """By aiokafka's own builder."""
    builder = BatchBuilder(MAX_BATCH_BYTES, 0)
    for key, value, headers, at in records:
        assert builder.append(timestamp=at, key=key, value=value, headers=list(headers))
    return bytes(builder._build())


def values(batch: BatchBuilder) -> list[bytes]:
    """Of its records, whose offsets have no gaps."""
    (read,) = [list(MemoryRecords(bytes(batch._build())).next_batch())]
    assert list(range(len(read))) == [record.offset for record in read]
    return [record.value for record in read]


async def test_appends_of_one_turn_are_one_batch_as_aiokafka_packs_it(appender, failed, sent):
    """A producer counts a batch's records for its sequence numbers: a wrong count ends it."""
    futures = {
        appender.append("t", 0, key=key, value=value, headers=headers, timestamp_ms=at)
        for key, value, headers, at in RECORDS
    }
    await appender.flush()

    assert [] == failed
    assert [0] == [future.result() for future in futures]
    assert [len(RECORDS)] == [batch.record_count() for batch in sent]
    assert [packed(RECORDS)] == [bytes(batch._build()) for batch in sent]


async def test_a_full_batch_closes_and_the_next_record_begins_another(appender, sent):
    """A broker refuses what is too large, and every batch behind it with that."""
    third = MAX_BATCH_BYTES // 3
    futures = [appender.append("t", 0, key=None, value=bytes([n]) * third) for n in range(5)]
    await appender.flush()

    assert [2, 2, 1] == [batch.record_count() for batch in sent]
    assert 1 == len(sent.searched)
    assert [bytes([n]) * third for n in range(5)] == [v for batch in sent for v in values(batch)]
    assert [0, 0, 2, 2, 4] == [future.result() for future in futures]


async def test_a_record_larger_than_a_batch_travels_alone(appender, sent):
    """What a topic takes is taken, whatever else travels."""
    sizes = [1, MAX_RECORD_BYTES, 1]
    for size in sizes:
        appender.append("t", 0, key=None, value=b"x" * size)
    await appender.flush()

    assert sizes == [len(value) for batch in sent for value in values(batch)]
    assert 3 == len(sent)


async def test_a_record_larger_than_a_topic_takes_is_refused(appender, sent):
    """The broker would refuse the whole batch, and the worker could not go on."""
    with pytest.raises(FatalError, match="exceeds"):
        appender.append("t", 0, key=b"k", value=b"x" * MAX_RECORD_BYTES)
    await appender.flush()

    assert [] == sent


async def test_each_partition_is_looked_for_once(appender, sent):
    """What is not in the cluster is found out with the first batch; to ask for each costs 6 µs."""
    for partition in (0, 1, 0, 1, 1):
        appender.append("t", partition, key=None, value=b"v")
        await appender.flush()

    assert 5 == len(sent)
    assert [("t", 0), ("t", 1)] == sent.searched


async def test_what_nobody_waits_for_is_gathered_and_holds_up_nothing_else(appender, sent):
    """Receipts and history: a request costs the same whatever it carries; a claim is sent at once."""
    told = [appender.append("told", 0, key=None, value=b"1")]
    await appender.append("t", 0, key=None, value=b"claim")
    assert [[b"claim"]] == [values(batch) for batch in sent]
    told += [appender.append("told", n, key=None, value=b"2") for n in (0, 1)]
    await asyncio.wait_for(asyncio.gather(*told), timeout=GATHER_S * 100)

    assert [[b"1", b"2"], [b"2"]] == [values(batch) for batch in sent[1:]]


async def test_what_is_gathered_goes_at_once_when_the_worker_stops(appender, sent, monkeypatch):
    """Nothing that was settled may stay unwritten, nor be waited for without need."""
    monkeypatch.setattr(appender_module, "GATHER_S", 1e9)
    third = MAX_BATCH_BYTES // 3
    told = [appender.append("told", 0, key=None, value=bytes([n]) * third) for n in range(5)]
    await appender.flush()

    assert [2, 2, 1] == [batch.record_count() for batch in sent]
    assert all(future.done() for future in told)


@pytest.mark.parametrize("ends", ["failed", "closed"])
async def test_a_producer_that_has_ended_takes_no_batch(appender, failed, sent, monkeypatch, ends):
    """One that its sender never takes would wait for ever, and the worker with it."""
    appender.append("t", 0, key=None, value=b"v")
    await appender.flush()
    monkeypatch.undo()
    producer = appender._producer
    producer._metadata._partitions["t"] = {0: SimpleNamespace(leader=1)}
    if ends == "failed":
        producer._message_accumulator.fail_all(OutOfOrderSequenceNumber())
    else:
        await producer._message_accumulator.close()
    future = appender.append("t", 0, key=None, value=b"v")
    await appender.flush()

    assert not future.done()
    (error,) = failed
    assert ("OutOfOrderSequenceNumber" if ends == "failed" else "ProducerClosed") in str(error)
