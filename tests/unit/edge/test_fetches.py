"""What a consumer asks for when it asks cheaply is what aiokafka would ask for."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer import fetcher
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.protocol.fetch import FetchResponse_v11
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from streams.edge.fetches import LOGGERS, TAKEN_S

TPS = [TopicPartition("t", n) for n in range(4)]
LEADERS = {TPS[0]: 1, TPS[1]: 1, TPS[2]: 2, TPS[3]: -1}

pytestmark = pytest.mark.usefixtures("asking_cheaply")


@pytest.fixture
async def asking() -> Any:
    """A fetcher of four partitions of two brokers, one of them led by none, that acts only when told to."""
    client = SimpleNamespace(
        cluster=SimpleNamespace(leader_for_partition=LEADERS.get),
        _loop=asyncio.get_running_loop(),
        _metadata_max_age_ms=300_000,
    )
    subscriptions = SubscriptionState()
    made = fetcher.Fetcher(client, subscriptions)
    made._fetch_task.cancel()
    subscriptions.assign_from_user(TPS)
    for tp in TPS:
        subscriptions.seek(tp, 0)
    yield made
    await made.close()


def asked(asking: Any) -> dict[int, set[int]]:
    """Which partitions are to be asked for next, by broker; a look may be made again and again."""
    requests, *_ = asking._get_actions_per_node(asking._subscriptions.subscription.assignment)
    return {node: {p for _, parts in r.topics for p, _, _ in parts} for node, r in requests}


def answer(asking: Any, tp: TopicPartition) -> Any:
    """What comes of a fetch that found one record."""
    batch = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, 0, 1 << 16)
    batch.append(0, timestamp=1, key=None, value=b"v", headers=[])
    parts = [(tp.partition, 0, 1, 1, 0, None, -1, bytes(batch.build()))]

    async def send(_node: int, _request: object) -> Any:
        return FetchResponse_v11(0, 0, 0, [(tp.topic, parts)])

    asking._client.send = send
    assignment = asking._subscriptions.subscription.assignment
    request = SimpleNamespace(topics=[(tp.topic, [(tp.partition, 0, 1)])])
    return asking._proc_fetch_request(assignment, LEADERS[tp], request)


async def test_each_broker_is_asked_for_what_it_leads(asking):
    """Nearer replicas are found by rack, and no consumer here names one."""
    assert {1: {0, 1}, 2: {2}} == asked(asking)


async def test_nothing_is_asked_for_before_what_came_could_be_taken(asking):
    """A look in vain, each time that records come."""
    assert await answer(asking, TPS[0])
    assignment = asking._subscriptions.subscription.assignment

    assert ([], {}, TAKEN_S, False, []) == asking._get_actions_per_node(assignment)

    assert [TPS[0]] == list(await asking.fetched_records([]))
    assert {1: {0, 1}, 2: {2}} == asked(asking)


async def test_what_nobody_takes_holds_up_no_other_broker(asking, monkeypatch):
    """A lane without room takes nothing for hours."""
    assert await answer(asking, TPS[0])
    held = asking._records[TPS[0]]
    monkeypatch.setattr(held, "_created", held._created - TAKEN_S)

    assert {2: {2}} == asked(asking)

    monkeypatch.setattr(held, "_created", held._created - held._backoff)
    assert {1: {1}, 2: {2}} == asked(asking)


async def test_each_partition_is_the_first_as_often(asking):
    """A full answer holds the first ones' records only: none may starve."""
    for n in (0, 1, 2, 5):
        named = list(range(n))
        fetcher.random.shuffle(named)
        assert sorted(named) == list(range(n))

    first: Counter[int] = Counter()
    for _ in range(4_000):
        named = [0, 1, 2, 3]
        fetcher.random.shuffle(named)
        first[named[0]] += 1
    assert all(800 < first[n] < 1_200 for n in range(4))


def test_aiokafkas_debugging_is_not_heard_and_its_warnings_are(caplog):
    """It is below what `configure_logging` lets through at any level."""
    log = logging.getLogger(LOGGERS[0])
    with caplog.at_level(logging.DEBUG, log.name):
        log.debug("Adding fetch request for partition %s", TPS[0])
        log.warning("Unknown topic %s", "t")

    assert ["Unknown topic t"] == [record.getMessage() for record in caplog.records]
