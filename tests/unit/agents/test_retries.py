"""Which waiting retry waits for its time, so that its partition does not stand still (faust.md §8)."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest

from streams.agents.retries import RetryAgent
from streams.engine.held import SLICE, Held
from streams.engine.lanes import Lane
from streams.wire.records import RetryItem, retry_headers
from tests.sim.loop import run_virtual
from tests.unit.engine.fakes import Time

TOPIC = "outbox.retry.10m"
BUCKET_MS = 600_000


async def no_work(lane: Lane, record: Any) -> None:
    """Never called: the lane does not run."""


class Place:
    """An agent that is asked about one lane."""

    def __init__(self) -> None:
        self.time = Time()
        self.held = Held(self.time)
        self.lane = Lane(1, no_work, lambda _: None)
        nobody: Any = None
        self.agent = RetryAgent(
            buckets={TOPIC: "10m"},
            partitions={},
            held=self.held,
            max_held_bytes=1 << 20,
            max_bytes=0,
            max_depth=0,
            runner=nobody,
            tasks=nobody,
            kafka=nobody,
            follow_ups=nobody,
            teller=nobody,
            time=self.time,
        )

    def record(self, offset: int, age_ms: int = 0, headers: Any = ()) -> Any:
        written_ms = self.time.now_ms() - age_ms
        return SimpleNamespace(
            topic=TOPIC, offset=offset, timestamp=written_ms, key=b"k", value=b"v", headers=headers
        )


@pytest.mark.parametrize(
    ("at_work", "age_ms", "expected"),
    [
        pytest.param(4, 0, True, id="it has just come"),
        pytest.param(4, BUCKET_MS - 1, True, id="its time is about to come"),
        pytest.param(4, BUCKET_MS, False, id="its time has come"),
        pytest.param(5, 0, False, id="the next one waits, this one was started"),
    ],
)
def test_the_head_of_a_bucket_waits_until_the_bucket_says(
    at_work: int, age_ms: int, expected: bool
) -> None:
    """design.md §5: it stays there exactly that long, and everything behind it as well."""
    place = Place()
    place.lane.at_work = place.record(at_work, age_ms)

    assert expected is place.agent.waits(TOPIC, place.lane, 4)


def test_a_held_retry_waits_until_it_is_due() -> None:
    """In memory: between waking and due."""
    place = Place()
    place.held.hold(place.time.now_ms() + 60_000, place.lane, cast("Any", place.record(4)))

    assert place.agent.waits(TOPIC, place.lane, 4)
    assert not place.agent.waits(TOPIC, place.lane, 5)


def test_a_record_of_another_topic_waits_for_nothing() -> None:
    """An activity of the outbox topic is worked at from the moment on that it is taken."""
    place = Place()
    place.lane.at_work = place.record(4)

    assert not place.agent.waits("outbox", place.lane, 4)


def test_a_thousand_that_wake_together_leave_others_their_turn() -> None:
    """C-08: each is put by until it is due; a healthy target's call must not wait for all of them."""

    async def play() -> None:
        place = Place()
        item = RetryItem(delivery_id="dlv_1", target="t", attempt=1, fence=7)
        headers = retry_headers(place.time.now_ms() + 60_000, [item])
        place.lane = Lane(1, place.agent.work, lambda _: None)
        running = asyncio.create_task(place.lane.run())
        place.lane.put([place.record(n, BUCKET_MS, headers) for n in range(10 * SLICE)])
        seen = [0]
        while len(place.held) < 10 * SLICE:
            await asyncio.sleep(0)
            seen.append(len(place.held))
        running.cancel()

        assert all(after - before <= SLICE for before, after in pairwise(seen))

    run_virtual(play())
