"""From the fetch to the lanes: what belongs to an assignment, and what is missing of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

from faust.types import TP

from streams.edge.telemetry import Metrics
from streams.engine.feeding import Feeder
from streams.engine.lanes import Lane
from streams.engine.work import Tasks

OUTBOX = TP("outbox", 0)


def records(*offsets: int) -> list[Any]:
    return [SimpleNamespace(offset=o, key=b"k", value=b"v", headers=()) for o in offsets]


class Flow:
    """`feeding.Flow` that notes where it was sent."""

    def __init__(self) -> None:
        self.sought: list[int] = []

    async def seek(self, tp: TP, offset: int) -> None:
        self.sought.append(offset)

    def room(self) -> None:
        """A poll would be woken."""


class Place:
    """A feeder with one open lane whose records wait for ever."""

    def __init__(self) -> None:
        self.flow = Flow()
        self.metrics = Metrics()
        self.feeder = Feeder(Tasks(lambda error: None), self.metrics)
        self.feeder.connect(cast("Any", self.flow), {"outbox": self._work})

    async def _work(self, lane: Lane, record: Any) -> None:
        await asyncio.Event().wait()

    def open(self, committed: int | None) -> None:
        self.feeder.start({OUTBOX: committed})
        self.feeder.open(0, 1)

    @property
    def next(self) -> int | None:
        """What the lane expects next."""
        return self.feeder.lanes[OUTBOX].acks.next

    @property
    def gaps(self) -> tuple[int, float | None]:
        """Counted of the partition, and by the metric."""
        counted = self.metrics.registry.get_sample_value("outbox_gaps_total")
        return self.feeder.gaps[0], counted


def run(story: Callable[[Place], Coroutine[Any, Any, None]]) -> Place:
    place = Place()
    asyncio.run(story(place))
    return place


def test_a_hole_is_read_again_once_and_then_believed() -> None:
    """
    Upstream #596: a hand-over loses records; a transaction's marker is missing for good.
    """

    async def story(place: Place) -> None:
        place.open(3)
        await place.feeder.feed(OUTBOX, records(5, 6))
        assert ([3], None) == (place.flow.sought, place.next)
        await place.feeder.feed(OUTBOX, records(5, 6))

    place = run(story)

    assert ([3], 7) == (place.flow.sought, place.next)
    assert (1, 1.0) == place.gaps


def test_each_new_hole_is_read_again() -> None:
    """And counted: faust.md §8 (e)."""

    async def story(place: Place) -> None:
        place.open(0)
        await place.feeder.feed(OUTBOX, records(0))
        await place.feeder.feed(OUTBOX, records(4))
        await place.feeder.feed(OUTBOX, records(1, 4))
        await place.feeder.feed(OUTBOX, records(9))

    place = run(story)

    assert ([1, 5], 5) == (place.flow.sought, place.next)
    assert (2, 2.0) == place.gaps


def test_where_nothing_was_committed_the_first_record_is_no_hole() -> None:
    """A topic whose old records retention took begins where it begins."""

    async def story(place: Place) -> None:
        place.open(None)
        await place.feeder.feed(OUTBOX, records(7))

    place = run(story)

    assert ([], 8) == (place.flow.sought, place.next)


def test_what_is_settled_can_be_committed_until_the_lanes_are_let_go() -> None:
    """
    Rule 9: between the loss and the end of the generation the commit is still ours to make.
    """

    async def story(place: Place) -> None:
        place.open(0)
        await place.feeder.feed(OUTBOX, records(0, 1))
        place.feeder.lanes[OUTBOX].settle(records(0)[0])
        place.feeder.stop()
        assert (set(), {OUTBOX: 1}) == (set(place.feeder.wanted), place.feeder.committable())
        place.feeder.committed({OUTBOX: 1})
        assert {} == place.feeder.committable()

        place.feeder.let_go()
        await place.feeder.feed(OUTBOX, records(2))

    place = run(story)

    assert ({}, (0, 0.0)) == (place.feeder.lanes, place.gaps)


def test_a_lane_is_opened_once_an_assignment() -> None:
    """A partition may be led again after a stray OWNER (rule 2): its records in hand stay in hand."""

    async def story(place: Place) -> None:
        place.open(0)
        await place.feeder.feed(OUTBOX, records(0, 1))
        place.feeder.open(0, 1)

    assert 2 == run(story).next


def test_tenants_take_turns_only_where_the_order_of_records_is_of_no_account() -> None:
    """C-08: a tenant's flood must not keep another's activity; a retry's place is when it is due."""
    worked: dict[str, list[int]] = {"outbox": [], "outbox.retry.1s": []}

    async def work(lane: Lane, record: Any) -> None:
        worked[record.topic].append(record.offset)

    async def story() -> None:
        feeder = Feeder(Tasks(lambda error: None), Metrics())
        feeder.connect(cast("Any", Flow()), dict.fromkeys(worked, work), {"outbox"})
        feeder.start({})
        feeder.open(0, 1)
        for topic in worked:
            batch = [
                SimpleNamespace(topic=topic, offset=at, key=key, value=b"v", headers=())
                for at, key in enumerate([b"big|1", b"big|2", b"big|3", b"small|1"])
            ]
            await feeder.feed(TP(topic, 0), cast("Any", batch))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        feeder.stop()

    asyncio.run(story())

    assert {"outbox": [0, 3, 1, 2], "outbox.retry.1s": [0, 1, 2, 3]} == worked
