"""Which partitions a fetch names: aiokafka's own fetcher, before brokers that note what they are asked."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer.fetcher import Fetcher
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from streams.engine.fetching import ALL_APART_S, FETCH_APART_S, WARM_S, tuned
from tests.sim.loop import run_virtual

pytestmark = pytest.mark.usefixtures("asking_cheaply")

TPS: Final = [TopicPartition(topic, n) for topic in ("outbox", "outbox.retry") for n in range(4)]
UNREAD: Final = [TopicPartition("ledger", n) for n in range(4)]
"""Of a topic that the group assigns and that nobody reads."""
WARM: Final = TPS[0]
COLD: Final = TPS[5]
LONG_MS: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One fetch."""

    at_s: float
    node: int
    tps: frozenset[TopicPartition]
    wait_ms: int


class Brokers:
    """Answer fetches as Kafka does: at once where there are records, else when some come or time is up."""

    def __init__(self, leader_of: Callable[[TopicPartition], int]) -> None:
        self.cluster = SimpleNamespace(leader_for_partition=leader_of)
        self.asked: list[Asked] = []
        self._loop = asyncio.get_running_loop()
        self._metadata_max_age_ms = 300_000
        self._logs: dict[TopicPartition, int] = dict.fromkeys(TPS + UNREAD, 0)
        self._grown = asyncio.Event()

    def write(self, tp: TopicPartition) -> None:
        """Append one record."""
        self._logs[tp] += 1
        self._grown.set()
        self._grown = asyncio.Event()

    async def send(self, node: int, request: Any) -> Any:
        named = {
            TopicPartition(topic, partition): offset
            for topic, partitions in request.topics
            for partition, offset, _ in partitions
        }
        wait_ms = request._max_wait_ms
        self.asked.append(Asked(at_s=now(), node=node, tps=frozenset(named), wait_ms=wait_ms))
        try:
            async with asyncio.timeout(wait_ms / 1e3):
                while not any(self._logs[tp] > offset for tp, offset in named.items()):
                    await self._grown.wait()
        except TimeoutError:
            pass
        answers: list[Any] = [
            (tp.topic, [(tp.partition, 0, self._logs[tp], self._logs[tp], 0, [], -1, batch)])
            for tp, offset in named.items()
            for batch in [records(offset, self._logs[tp] - offset)]
        ]
        return SimpleNamespace(API_VERSION=11, topics=answers)


class Scene:
    """A tuned fetcher, its brokers and one who reads all that comes."""

    def __init__(self, leader_of: Callable[[TopicPartition], int]) -> None:
        self.brokers = Brokers(leader_of)
        self.subscriptions = SubscriptionState()
        self.fetcher = Fetcher(self.brokers, self.subscriptions, fetch_max_wait_ms=LONG_MS)
        tuned(self.fetcher, lambda topic: topic != "ledger")
        self.read: dict[TopicPartition, list[float]] = {tp: [] for tp in TPS}
        self.wanted: Collection[TopicPartition] = TPS
        self.assign(TPS)

    def assign(self, tps: Collection[TopicPartition]) -> None:
        self.subscriptions.assign_from_user([*tps, *UNREAD])
        for tp in tps:
            self.subscriptions.seek(tp, len(self.read[tp]))
        for tp in UNREAD:
            self.subscriptions.seek(tp, 0)

    async def reading(self) -> None:
        while True:
            fetched = await self.fetcher.fetched_records(self.wanted, timeout=0.02)
            for tp, batch in fetched.items():
                self.read[tp] += [now()] * len(batch)

    async def keep_warm(self, seconds: float) -> None:
        """A record every 5 ms into one partition."""
        for _ in range(round(seconds / 0.005)):
            self.brokers.write(WARM)
            await asyncio.sleep(0.005)

    def asked_since(self, at_s: float) -> list[Asked]:
        return [asked for asked in self.brokers.asked if asked.at_s >= at_s]


def now() -> float:
    return asyncio.get_running_loop().time()


def records(offset: int, count: int) -> bytes:
    if not count:
        return b""
    batch = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    for index in range(count):
        batch.append(index, 0, b"k", b"v", [])
    built = batch.build()
    struct.pack_into(">q", built, 0, offset)
    return bytes(built)


def play(
    scenario: Callable[[Scene], Coroutine[Any, Any, None]],
    leader_of: Callable[[TopicPartition], int] = lambda tp: 1,
) -> None:
    async def played() -> None:
        scene = Scene(leader_of)
        reading = asyncio.ensure_future(scene.reading())
        # It measures by the clock for how long unread records keep a fetch back.
        clock = SimpleNamespace(monotonic=now, time=now)
        with patch("aiokafka.consumer.fetcher.time", clock):
            try:
                await scenario(scene)
            finally:
                reading.cancel()
                await scene.fetcher.close()

    run_virtual(played())


def test_a_worker_that_rests_asks_for_all_and_waits_long() -> None:
    async def scenario(scene: Scene) -> None:
        await asyncio.sleep(10)
        assert {(frozenset(TPS), LONG_MS)} == {(a.tps, a.wait_ms) for a in scene.brokers.asked}
        assert 10 * 1_000 / LONG_MS + 1 >= len(scene.brokers.asked)

    play(scenario)


def test_partitions_with_records_are_asked_for_by_themselves() -> None:
    """A fetch costs by what it names: 128 partitions a millisecond of the GIL, measured."""

    async def scenario(scene: Scene) -> None:
        await scene.keep_warm(0.2)
        since = now()
        await scene.keep_warm(1.0)
        asked = scene.asked_since(since)
        of_all = [a for a in asked if len(a.tps) > 1]
        assert {frozenset({WARM}), frozenset(TPS)} == {a.tps for a in asked}
        assert 1.0 / ALL_APART_S + 1 >= len(of_all)
        assert len(asked) - len(of_all) > 5 * len(of_all)
        assert 0.9 * len(scene.read[WARM]) > len(asked) - len(of_all)

    play(scenario)


def test_no_record_of_a_warm_partition_waits_longer_than_fetches_are_apart() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.keep_warm(1.0)
        await asyncio.sleep(0.1)
        late = [at - index * 0.005 for index, at in enumerate(scene.read[WARM])]
        assert 200 == len(late)
        assert FETCH_APART_S * 1.1 > max(late)

    play(scenario)


@pytest.mark.parametrize(
    "quiet_node", [1, 2], ids=["same broker", "another, with quiet ones alone"]
)
@pytest.mark.parametrize("after_s", [0.7531, 1.7531])
def test_a_first_record_beside_a_busy_partition_waits_a_bounded_time(
    after_s: float, quiet_node: int
) -> None:
    async def scenario(scene: Scene) -> None:
        warm = asyncio.ensure_future(scene.keep_warm(after_s + 1.25))
        await asyncio.sleep(after_s)
        scene.brokers.write(COLD)
        written = now()
        await warm
        assert ALL_APART_S + 2 * FETCH_APART_S > scene.read[COLD][0] - written

    play(scenario, leader_of=lambda tp: quiet_node if tp.topic == COLD.topic else 1)


def test_the_second_record_of_a_partition_waits_no_longer_than_a_busy_ones() -> None:
    """The first one made it warm."""

    async def scenario(scene: Scene) -> None:
        warm = asyncio.ensure_future(scene.keep_warm(2.0))
        await asyncio.sleep(0.7531)
        scene.brokers.write(COLD)
        await asyncio.sleep(0.3)
        scene.brokers.write(COLD)
        written = now()
        await warm
        assert 2 * FETCH_APART_S > scene.read[COLD][1] - written

    play(scenario)


def test_after_a_while_without_records_all_are_asked_for_again() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.keep_warm(0.5)
        await asyncio.sleep(WARM_S + 1.0)
        since = now()
        await asyncio.sleep(5.0)
        assert {(frozenset(TPS), LONG_MS)} == {(a.tps, a.wait_ms) for a in scene.asked_since(since)}

    play(scenario)


def test_a_partition_that_had_no_room_is_asked_for_soon_after_it_was_read() -> None:
    """A fetch cannot name what lies unread, and must not wait long for the others meanwhile."""

    async def scenario(scene: Scene) -> None:
        scene.wanted = [tp for tp in TPS if tp != COLD]
        scene.brokers.write(COLD)
        await asyncio.sleep(WARM_S / 2)
        scene.wanted = TPS
        await asyncio.sleep(0.025)
        assert 1 == len(scene.read[COLD])
        scene.brokers.write(COLD)
        written = now()
        await asyncio.sleep(1.0)
        assert ALL_APART_S + 2 * FETCH_APART_S > scene.read[COLD][1] - written

    play(scenario)


def test_a_partition_that_nobody_reads_keeps_no_other_waiting() -> None:
    """
    A lane full of retries waits for hours. A fetch that waited for them to be read was never sent.
    """

    async def scenario(scene: Scene) -> None:
        scene.wanted = [tp for tp in TPS if tp != COLD]
        scene.brokers.write(COLD)
        await asyncio.sleep(WARM_S + 2.0)
        since = now()
        await asyncio.sleep(5.0)
        rest = frozenset(TPS) - {COLD}
        assert {(rest, LONG_MS)} == {(a.tps, a.wait_ms) for a in scene.asked_since(since)}
        await scene.keep_warm(0.5)
        scene.brokers.write(TPS[2])
        written = now()
        await scene.keep_warm(0.5)
        assert 200 - 2 <= len(scene.read[WARM])
        assert ALL_APART_S + 2 * FETCH_APART_S > scene.read[TPS[2]][0] - written

    play(scenario)


def test_a_topic_that_nobody_reads_is_never_asked_for() -> None:
    """faust's changelog, and topics without an agent: half of what an idle worker asked for, and held."""

    async def scenario(scene: Scene) -> None:
        for tp in UNREAD:
            scene.brokers.write(tp)
        await scene.keep_warm(0.5)
        scene.assign(TPS[1:])
        await asyncio.sleep(2.0)
        assert frozenset(TPS) == frozenset().union(*(a.tps for a in scene.brokers.asked))

    play(scenario)


def test_a_leader_that_moves_is_found() -> None:
    leaders = dict.fromkeys(TPS, 1)

    async def scenario(scene: Scene) -> None:
        await scene.keep_warm(0.5)
        leaders[WARM] = leaders[COLD] = 2
        since = now()
        scene.brokers.write(COLD)
        await scene.keep_warm(0.5)
        await asyncio.sleep(0.1)
        assert {1, 2} == {a.node for a in scene.asked_since(since)}
        assert 2 * ALL_APART_S > scene.read[COLD][0] - since
        assert 200 == len(scene.read[WARM])

    play(scenario, leader_of=lambda tp: leaders[tp])


def test_the_next_assignment_begins_with_all_its_partitions() -> None:
    """What was warm may be another worker's now."""

    async def scenario(scene: Scene) -> None:
        await scene.keep_warm(0.5)
        scene.assign(TPS[1:])
        await asyncio.sleep(FETCH_APART_S)
        since = now()
        await asyncio.sleep(1.0)
        assert {frozenset(TPS[1:])} == {a.tps for a in scene.asked_since(since)}

    play(scenario)


def test_a_partition_that_is_sought_back_is_read_again() -> None:
    async def scenario(scene: Scene) -> None:
        scene.brokers.write(COLD)
        await asyncio.sleep(WARM_S * 2)
        warm = asyncio.ensure_future(scene.keep_warm(1.0))
        await asyncio.sleep(0.5)
        scene.fetcher.seek_to(COLD, 0)
        sought = now()
        await warm
        assert 2 == len(scene.read[COLD])
        assert ALL_APART_S + 2 * FETCH_APART_S > scene.read[COLD][1] - sought

    play(scenario)
