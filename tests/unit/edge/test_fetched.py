"""Records that are unpacked cheaply say what aiokafka's own say."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer import fetcher
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from streams.edge.fetched import Fetched, unpack_cheaply

PLACE = TopicPartition("t", 3)
SAME = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
RECORDS = [
    (1_000, b"k", b"v", [("a", b"1"), ("a", None)]),
    (1_001, None, b"", []),
    (1_002, b"", None, [("é", b"\xff")]),
]


@pytest.fixture(autouse=True)
def cheaply() -> Iterator[type]:
    """aiokafka's own way; what it unpacks with is put back."""
    own = fetcher.PartitionRecords
    unpack_cheaply()
    yield own
    fetcher.PartitionRecords = own


def batch(producer_id: int = -1, *, is_transactional: bool = False) -> bytes:
    """A batch as a broker sends it."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=is_transactional,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        batch_size=1 << 16,
    )
    for offset, (timestamp, key, value, headers) in enumerate(RECORDS):
        builder.append(offset, timestamp=timestamp, key=key, value=value, headers=headers)
    return bytes(builder.build())


def unpacked(cls, raw: bytes, *, start: int = 0, aborted=()):
    made = cls(PLACE, MemoryRecords(raw), aborted, start, None, None, True, fetcher.READ_COMMITTED)
    return list(made), made.next_fetch_offset


def test_a_record_says_what_aiokafkas_own_says(cheaply):
    """O-009: nothing that is read of a record is lost, its timestamp and repeated headers included."""
    ours, our_next = unpacked(fetcher.PartitionRecords, batch())
    theirs, their_next = unpacked(cheaply, batch())

    assert {Fetched} == set(map(type, ours))
    assert our_next == their_next == len(RECORDS)
    for name in SAME:
        assert [getattr(each, name) for each in theirs] == [getattr(each, name) for each in ours]


def test_a_fetch_in_the_middle_of_a_batch_begins_there():
    """A broker sends whole batches."""
    ours, _ = unpacked(fetcher.PartitionRecords, batch(), start=2)

    assert [2] == [each.offset for each in ours]


def test_what_was_aborted_is_not_handed_out():
    """A redrive whose transaction was aborted never was (C-12)."""
    ours, following = unpacked(
        fetcher.PartitionRecords, batch(7, is_transactional=True), aborted=[(7, 0)]
    )

    assert ([], len(RECORDS)) == (ours, following)


async def test_a_fetch_that_is_taken_in_parts_goes_on_where_it_was():
    """`getmany` with a limit, and one record at a time, take the rest of it later."""
    consumer = SubscriptionState()
    consumer.assign_from_user([PLACE])
    assignment = consumer.subscription.assignment
    assignment.state_value(PLACE).seek(0)
    made = fetcher.PartitionRecords(
        PLACE, MemoryRecords(batch()), [], 0, None, None, True, fetcher.READ_COMMITTED
    )
    result = fetcher.FetchResult(PLACE, assignment=assignment, partition_records=made, backoff=0)

    taken = [result.getall(1), [result.getone()], result.getall()]

    assert [[0], [1], [2]] == [[each.offset for each in part] for part in taken]
    assert not result.has_more()
