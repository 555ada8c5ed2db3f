"""What a worker's watch makes of its partitions: each standstill ends the worker with its reason."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka.errors import KafkaConnectionError, KafkaError
from faust.types import TP

from streams.edge.telemetry import Metrics
from streams.engine.lanes import Lane
from streams.engine.watch import Watch
from tests.unit.engine.fakes import Time

BOUND_S = 60.0
LEDGER, OUTBOX, RETRY = TP("ledger", 0), TP("outbox", 0), TP("outbox.retry.1h", 0)
LEASE_MS = 45_000


@dataclass
class Brokers:
    """`Tail` as the watch asks it, and `Consuming`."""

    end: dict[TP, int] = field(default_factory=lambda: {LEDGER: 9, OUTBOX: 5, RETRY: 0})
    fetched: dict[TP, int] = field(default_factory=lambda: {OUTBOX: 5, RETRY: 0})
    read: int = 9
    life: bytes = b"one"
    error: KafkaError | None = None
    ill: str | None = None
    doubted: list[str] = field(default_factory=list)
    before_answer: Callable[[], None] = lambda: None

    async def ends(self, tps: list[TP]) -> dict[TP, int]:
        self.before_answer()
        if self.error is not None:
            raise self.error
        return {tp: self.end[tp] for tp in tps}

    async def incarnation(self, topic: str) -> bytes:
        return self.life

    async def read_position(self, topic: str, partition: int) -> int:
        return self.read

    def ailment(self) -> str | None:
        return self.ill

    def doubts(self) -> list[str]:
        return self.doubted

    def fetched_to(self, tp: TP) -> int | None:
        return self.fetched.get(tp)


async def no_work(lane: Lane, record: Any) -> None:
    """Never called: the lanes do not run."""


class Place:
    """A worker that leads one partition with two open lanes, and its watch."""

    def __init__(self) -> None:
        self.time = Time()
        self.brokers = Brokers()
        self.partition: Any = SimpleNamespace(
            index=0,
            leads=True,
            store=SimpleNamespace(next=9),
            foreign=SimpleNamespace(longest_lease_ms=0),
        )
        self.lanes = {tp: Lane(1, no_work, lambda _: None) for tp in (OUTBOX, RETRY)}
        self.worker: Any = SimpleNamespace(
            assignment=1,
            taking=frozenset({0}),
            partitions={0: self.partition},
            restorer=SimpleNamespace(incarnation=b"one", rows=0),
            feeder=SimpleNamespace(lanes=self.lanes, wanted={OUTBOX, RETRY}, gaps=Counter()),
        )
        self.waiting: set[int] = set()
        self.ends: list[BaseException] = []
        self.metrics = Metrics()
        self.watch = Watch(
            worker=cast("Any", self.worker),
            consuming=self.brokers,
            tail=cast("Any", self.brokers),
            ledger="ledger",
            waits=lambda topic, lane, offset: offset in self.waiting,
            longest_lease_ms=lambda: LEASE_MS,
            time=self.time,
            metrics=self.metrics,
            fatal=self.ends.append,
            bound_s=BOUND_S,
        )

    async def look(self, times: int = 13) -> None:
        """Look so often, five seconds apart."""
        for _ in range(times):
            self.time.s += 5.0
            await self.watch.look()

    def open(self, offset: int, tp: TP = OUTBOX) -> None:
        """A record is in hand and not settled."""
        self.lanes[tp].acks.take(offset)
        self.lanes[tp].acks.committed = offset

    @property
    def reason(self) -> str:
        """Why the worker was ended."""
        return str(self.ends[0])

    def metric(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, labels)


def run(story: Callable[[Place], Coroutine[Any, Any, None]]) -> Place:
    place = Place()
    asyncio.run(story(place))
    return place


def test_a_worker_whose_partitions_go_on_is_left_alone() -> None:
    """faust.md §8: nothing to do is no reason to end."""
    place = run(lambda place: place.look(100))

    assert ([], [], []) == (place.ends, place.watch.reasons(), place.watch.unready())


def never_led(place: Place) -> None:
    place.partition.leads = False


def tail_stands(place: Place) -> None:
    place.partition.store.next = place.brokers.read = 8


def fetch_stands(place: Place) -> None:
    place.brokers.end[OUTBOX] = 6


def oldest_stands(place: Place) -> None:
    place.open(4)


def commits_stand(place: Place) -> None:
    place.open(4)
    place.lanes[OUTBOX].acks.settle(4)


def is_ill(place: Place) -> None:
    place.brokers.ill = "the fetch task of Kafka's consumer ended"


def is_doubted(place: Place) -> None:
    place.brokers.doubted = ["the worker was no member of its group"]


def made_anew(place: Place) -> None:
    place.brokers.life = b"another"


@pytest.mark.parametrize(
    ("fault", "looks", "reason"),
    [
        (never_led, 13, "partition 0 was assigned and not led for 60 s"),
        (tail_stands, 13, "partition 0 was not folded on though its ledger grew for 60 s"),
        (fetch_stands, 13, "outbox/0 had room and records and was handed none for 60 s"),
        (oldest_stands, 49, "outbox/0 had the same oldest record unsettled"),
        (commits_stand, 13, "outbox/0 had settled records that were not committed for 60 s"),
        (is_ill, 1, "the fetch task of Kafka's consumer ended"),
        (is_doubted, 13, "the worker was no member of its group for 60 s"),
        (made_anew, 1, "the topic ledger was made anew"),
    ],
)
def test_each_standstill_ends_the_worker_with_its_reason(fault, looks, reason) -> None:
    """Issue 4: the worker ends itself with a reason when it cannot make progress; and not sooner."""

    async def story(place: Place) -> None:
        fault(place)
        await place.look(looks - 1)
        assert [] == place.ends
        await place.look(1)

    assert reason in run(story).reason


def test_a_record_that_waits_for_its_time_ends_nobody() -> None:
    """A retry of the 1h bucket, a held one: C-08 and design §5 let them stand for hours."""

    async def story(place: Place) -> None:
        place.open(7, RETRY)
        place.waiting.add(7)
        await place.look(2_000)

    assert [] == run(story).ends


def test_a_foreign_claim_with_a_lease_of_yesterdays_policy_is_waited_for() -> None:
    """C-07: it was made under a longer one than any target has today."""

    async def story(place: Place) -> None:
        place.open(4)
        place.partition.foreign.longest_lease_ms = 3_600_000
        await place.look(700)

    assert [] == run(story).ends


def test_brokers_that_do_not_answer_end_nobody_and_are_told() -> None:
    """Another start would find them as silent; a failed append ends the worker anyhow (rule 12)."""

    async def story(place: Place) -> None:
        await place.look(1)
        tail_stands(place)
        fetch_stands(place)
        place.brokers.error = KafkaConnectionError()
        await place.look(100)

    place = run(story)

    assert [] == place.ends
    assert ["the brokers did not say where the logs end for 500 s"] == place.watch.unready()


def test_what_compaction_took_off_the_end_is_no_lag() -> None:
    """The tail passes it without a fold: its position tells, not the store's."""

    async def story(place: Place) -> None:
        place.partition.store.next = 3
        await place.look(100)

    assert [] == run(story).ends


def test_answers_about_partitions_that_were_lost_meanwhile_count_for_nothing() -> None:
    """They would be laid to the next assignment's charge."""

    async def story(place: Place) -> None:
        def lose() -> None:
            place.worker.assignment += 1
            place.worker.taking = frozenset()

        tail_stands(place)
        place.brokers.before_answer = lose
        await place.look(1)

    assert [] == run(story).watch.partitions()


def test_a_partition_that_is_gained_while_the_brokers_are_asked_waits_for_the_next_look() -> None:
    """Found by a chaos round: a frozen worker's answer came after its next assignment, and ended it."""

    async def story(place: Place) -> None:
        late: Any = SimpleNamespace(
            index=1,
            leads=True,
            store=SimpleNamespace(next=3),
            foreign=SimpleNamespace(longest_lease_ms=0),
        )

        def gain() -> None:
            place.worker.partitions[1] = late

        place.brokers.before_answer = gain
        await place.look(1)

    assert [] == run(story).ends


def test_a_standstill_is_told_before_it_ends_the_worker() -> None:
    """/readyz and the metrics say it from half the bound on."""

    async def story(place: Place) -> None:
        tail_stands(place)
        await place.look(7)

    place = run(story)

    assert ["partition 0 was not folded on though its ledger grew for 30 s"] == (
        place.watch.unready()
    )
    assert [] == place.watch.reasons()
    assert 1.0 == place.metric("outbox_standing_still", what="tail")
    assert 0.0 == place.metric("outbox_standing_still", what="commit")
    assert 1.0 == place.metric("outbox_ledger_lag")


@pytest.mark.parametrize(
    ("taking", "leads", "expected"),
    [
        (frozenset(), False, ["no partition is assigned yet"]),
        (frozenset({0}), False, ["partition 0 is not led yet"]),
        (frozenset({0}), True, []),
    ],
)
def test_a_worker_is_ready_once_it_leads_what_it_was_assigned(taking, leads, expected) -> None:
    """While it restores, it is not."""

    async def story(place: Place) -> None:
        place.worker.taking, place.partition.leads = taking, leads

    assert expected == run(story).watch.unready()


def test_a_page_shows_each_partition_in_numbers() -> None:
    """faust.md §8, a-e; and nothing of what is delivered."""

    async def story(place: Place) -> None:
        place.open(4)
        place.partition.store.next = place.brokers.read = 7
        place.worker.feeder.gaps[0] = 2
        await place.look(4)

    assert [
        {
            "partition": 0,
            "led": True,
            "not_led_s": 0.0,
            "ledger_lag": 2,
            "tail_stands_s": 15.0,
            "oldest_unsettled_s": 15.0,
            "fetch_stands_s": 0.0,
            "commit_stands_s": 0.0,
            "gaps": 2,
        }
    ] == run(story).watch.partitions()
