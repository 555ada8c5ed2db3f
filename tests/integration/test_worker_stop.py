"""Workers come and go: a clean stop waits for calls, hands over at once, and leaves nothing to repeat."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from streams.model.receipt import Outcome
from tests.integration.worker_process import WorkerProcess
from tests.integration.world import PATIENT, World

pytestmark = pytest.mark.timeout(120)

NEVER_MS = 60_000
"""A session or lease of which the end is not waited for: what is done sooner was not done by it."""


@pytest.fixture
async def world(kafka: str, tmp_path: Path) -> AsyncIterator[World]:
    overrides = {**PATIENT, "session_timeout_ms": NEVER_MS}
    async with World(kafka, tmp_path / "world", overrides) as world:
        yield world


async def share(workers: Sequence[WorkerProcess], world: World) -> bool:
    """Whether these workers lead all partitions together, and each of them some."""
    led = [await worker.metric("outbox_partitions_led") for worker in workers]
    return sum(led) == world.partitions and min(led) > 0


async def test_a_stop_waits_for_calls_in_flight_and_exits_0(world: World) -> None:
    """
    interface.md §1: what was called is reported and committed, so the next worker repeats nothing.
    """
    worker = await world.work("w1")
    slow = [world.activity(f"urn:slow:{n}", f"/slow/1000/{n}") for n in range(20)]
    await world.produce(*slow)
    await world.receiver.wait_for_calls(len(slow))

    worker.terminate()

    assert 0 == await worker.ended()
    await world.work("w2")
    after = world.activity("urn:after", "/ok/after")
    await world.produce(after)
    await world.until_settled(*slow, after)
    verdicts = {(r.verdict, r.attempts) for a in slow for r in world.receipts[a.activity_id]}
    assert {(Outcome.SENT, 1)} == verdicts
    assert {1} == set(world.calls_by_path().values())


async def test_a_second_signal_does_not_wait(world: World) -> None:
    """
    interface.md §1: the call would hang for a minute; what it leaves is adopted like a crash's.
    """
    hanging = {"timeout_ms": NEVER_MS, "lease_ms": NEVER_MS + 2_000, "max_age_ms": 10 * NEVER_MS}
    overrides = {f"policy_activity_{name}": value for name, value in hanging.items()}
    worker = await world.work("w1", **overrides)
    await world.produce(world.activity("urn:hang", "/hang/1"))
    await world.receiver.wait_for_calls(1)

    worker.terminate()
    await world.until(lambda: worker.events("worker.stopping"), "the first signal to be taken")
    assert not worker.has_ended
    worker.terminate()

    await worker.ended(within_s=NEVER_MS / 4_000)


async def test_a_stop_before_the_worker_is_ready_ends_it(world: World) -> None:
    """
    A deployment that is taken back at once must not hang.
    """
    worker = world.launch("w1")
    await world.until(lambda: worker.port is not None, "the worker to start")

    worker.terminate()

    assert 0 == await worker.ended()


async def test_two_workers_share_partitions_and_one_that_leaves_hands_over(world: World) -> None:
    """
    C-15, issue 3: at once, long before its session would have ended; and nothing is sent twice.
    """
    first = await world.work("w1")
    second = await world.work("w2")
    await world.until_true(lambda: share([first, second], world), "partitions to be shared")
    load = [world.activity(f"urn:share:{n}", f"/slow/20/{n}") for n in range(200)]
    await world.produce(*load[:100])
    await world.receiver.wait_for_calls(30)
    await world.until(
        lambda: all(worker.events("delivery.attempted") for worker in (first, second)),
        "both to deliver",
    )

    first.terminate()

    assert 0 == await first.ended()
    await world.produce(*load[100:])
    await world.until_true(lambda: share([second], world), "the other to lead all", within_s=20)
    await world.until_settled(*load)
    assert {1} == set(world.calls_by_path().values())


async def test_a_worker_that_joins_takes_over_a_share(world: World) -> None:
    """
    C-15: adding workers moves work, loses nothing and repeats nothing that was settled.
    """
    first = await world.work("w1")
    load = [world.activity(f"urn:join:{n}", f"/ok/{n}") for n in range(300)]
    await world.produce(*load[:150])
    await world.receiver.wait_for_calls(20)

    second = await world.work("w2")

    await world.until_true(lambda: share([first, second], world), "partitions to be shared")
    await world.produce(*load[150:])
    await world.until_settled(*load)
    assert Counter({1: 300}) == Counter(world.calls_by_path().values())


async def test_a_restart_under_the_same_name_goes_on(world: World) -> None:
    """
    interface.md §2: a static member that comes back within its session takes its partitions again.
    """
    worker = await world.work("w1", leave_on_stop="false")
    before = [world.activity(f"urn:before:{n}", f"/ok/before/{n}") for n in range(20)]
    await world.produce(*before)
    await world.until_settled(*before)

    worker.terminate()
    assert 0 == await worker.ended()
    after = [world.activity(f"urn:after:{n}", f"/ok/after/{n}") for n in range(20)]
    await world.produce(*after)
    await world.work("w1")

    await world.until_settled(*after, *before)
    assert {1} == set(world.calls_by_path().values())
