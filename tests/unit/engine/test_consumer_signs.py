"""What can be seen of Kafka's consumer from outside of its thread."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from faust.types import TP

from streams.engine.consumer import FENCED_INSTANCE_ID, ConsumerThread

UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, NONE = 25, 27, 0


class Thread(ConsumerThread):
    """A consumer's thread that was never started, with parts that a test may end."""

    def __init__(self) -> None:
        conf = SimpleNamespace(
            id="outbox", broker_session_timeout=60.0, consumer_group_instance_id="w1"
        )
        self.app: Any = SimpleNamespace(conf=conf)
        self.tasks = {"coordination": False, "fetch": False}
        self.calls: list[Any] = []
        self.thread_loop: Any = SimpleNamespace(call_soon_threadsafe=self.calls.append)
        self.coordinator = SimpleNamespace(
            _coordination_task=SimpleNamespace(done=lambda: self.tasks["coordination"]),
            _pending_exception=None,
            generation=7,
        )
        fetcher = SimpleNamespace(_fetch_task=SimpleNamespace(done=lambda: self.tasks["fetch"]))
        self._consumer: Any = SimpleNamespace(_coordinator=self.coordinator, _fetcher=fetcher)
        self._thread = None

    @property
    def should_stop(self) -> bool:
        return False


def answered(codes: Sequence[int]) -> Thread:
    """A thread whose coordinator gave these answers, within one session."""
    thread = Thread()
    answers = iter(codes)

    async def send(_request: object) -> Any:
        return SimpleNamespace(error_code=next(answers))

    async def ask() -> None:
        asking = thread._counting_evictions(send)
        for _ in codes:
            await asking(None)

    asyncio.run(ask())
    return thread


@pytest.mark.parametrize("code", [UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID])
def test_three_evictions_within_a_session_are_a_namesakes(code: int) -> None:
    """design.md §4: "duplicate OUTBOX_WORKER_ID", with the id and the group."""
    told = answered([code, NONE, code, NONE, code]).ailment()

    assert told is not None
    assert told.startswith("duplicate OUTBOX_WORKER_ID: ")
    assert "'w1' in group outbox" in told


def test_two_evictions_and_rebalances_are_nobodys() -> None:
    """A frozen worker is evicted once, and groups rebalance as they like."""
    rebalances = [REBALANCE_IN_PROGRESS] * 9

    assert answered([UNKNOWN_MEMBER_ID, *rebalances, UNKNOWN_MEMBER_ID]).ailment() is None


@pytest.mark.parametrize(
    ("task", "name"), [("coordination", "group coordinator"), ("fetch", "fetch")]
)
def test_a_dead_task_of_the_consumer_is_an_ailment(task: str, name: str) -> None:
    """design.md §4: a dead coordinator or fetch task ends the process."""
    thread = Thread()
    assert thread.ailment() is None

    thread.tasks[task] = True

    assert f"the {name} task of Kafka's consumer ended" == thread.ailment()


def test_a_thread_that_does_not_turn_is_doubted_from_the_second_look_on() -> None:
    """Each look asks for an echo, which a thread that turns gives before the next."""
    thread = Thread()
    assert [] == thread.doubts()

    assert ["the thread of Kafka's consumer did not turn"] == thread.doubts()
    thread.calls[-1]()
    assert [] == thread.doubts()


def test_a_coordination_that_waits_for_its_error_to_be_taken_is_doubted() -> None:
    """aiokafka coordinates no further until somebody polls; a worker with full lanes polls nothing."""
    thread = Thread()

    thread.coordinator._pending_exception = ValueError("secret")

    assert ["the group's coordination stood still after a ValueError"] == thread.doubts()


def test_a_worker_that_is_no_member_is_doubted() -> None:
    """It joins within seconds, or never."""
    thread = Thread()

    thread.coordinator.generation = -1

    assert ["the worker was no member of its group"] == thread.doubts()


def test_an_assignment_is_made_once_for_as_long_as_it_is_held() -> None:
    """faust asks for it once per offset that it commits; a rebalance must be seen at once."""
    thread, held = Thread(), [frozenset({TopicPartition("outbox", 0)})]
    thread._consumer = SimpleNamespace(assignment=lambda: held[-1])
    first = thread.assignment()
    again = thread.assignment()
    held.append(frozenset({TopicPartition("outbox", 1)}))
    moved = thread.assignment()
    held.append(frozenset())

    assert first is again
    assert [{TP("outbox", 0)}, {TP("outbox", 1)}, set()] == [first, moved, thread.assignment()]
    assert all(isinstance(tp, TP) for tp in first | moved)
