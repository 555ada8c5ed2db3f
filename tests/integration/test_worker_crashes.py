"""kill -9 of workers under load: nothing lost, no attempt too many, nothing doubled where it would matter."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from streams.model.receipt import Outcome
from tests.integration.world import Produced, World

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

MAX_ATTEMPTS = 3
EACH = 60
KINDS = ("/ok", "/slow/400", "/flaky/1", "/status/503", "/status/400")
TARGETS = {"once": "/ok/once", "slowly": "/slow/400/once", "breaking": "/reset/once"}
"""Registered, so not idempotent: a second call of one delivery would be a second effect."""


@pytest_asyncio.fixture(loop_scope="module")
async def world(kafka: str, tmp_path: Path) -> AsyncIterator[World]:
    async with World(kafka, tmp_path / "world", {"policy_activity_max_attempts": 4}) as world:
        for name, path in TARGETS.items():
            await world.register(name, path, policy_overrides={"max_attempts": MAX_ATTEMPTS})
        yield world


def load_of(world: World) -> list[Produced]:
    """Activities of every kind, in one fixed order."""
    plain = [
        world.activity(f"urn:crash{kind}/{n}", f"{kind}/c{n}", pad="x" * n)
        for kind in KINDS
        for n in range(EACH)
    ]
    named = [
        world.to_target(f"urn:crash:{name}:{n}", name) for name in TARGETS for n in range(EACH)
    ]
    everything = plain + named
    random.Random(7).shuffle(everything)
    return everything


def count_calls(world: World) -> Counter[str]:
    """How often each delivery was called, by its `webhook-id`."""
    return Counter(call.id or "" for call in world.receiver.calls)


def assert_nothing_went_wrong(world: World, load: list[Produced], max_attempts: int) -> None:
    """What must hold of every run, wherever it was killed."""
    calls = count_calls(world)
    paths = set(TARGETS.values())
    not_idempotent = {call.id for call in world.receiver.calls if call.path in paths}
    accepted = {call.id for call in world.receiver.calls if call.status == 200}
    numbers = Counter((call.id, call.attempt) for call in world.receiver.calls)
    for activity in load:
        receipts = world.receipts[activity.activity_id]
        about = world.told([activity.activity_id])
        # Follow-ups are written again where a crash leaves in doubt whether they were.
        assert len(set(receipts)) == 1, about
        (receipt,) = set(receipts)
        message_id = f"{receipt.delivery_id}-1"
        is_sent = receipt.verdict is Outcome.SENT
        assert not is_sent or message_id in accepted, about
        assert is_sent or world.letters.get(activity.activity_id), about
        assert calls[message_id] <= receipt.attempts <= max_attempts, about
    assert set() == {i for i in not_idempotent if calls[i or ""] > 1}
    assert {1} == set(numbers.values()), "an attempt is one call"


@pytest.mark.parametrize(
    ("seed", "wipes"), [(1, False), (2, True)], ids=["data kept", "data wiped"]
)
async def test_a_worker_that_is_killed_again_and_again_loses_and_doubles_nothing(
    world: World, seed: int, wipes: bool
) -> None:
    """
    Issue 3; C-01, C-07, D-001, D-004, O-002: each time in the middle of calls, at another moment.
    """
    chance = random.Random(seed)
    load = load_of(world)
    worker = await world.work("w1")
    await world.produce(*load)

    for _ in range(3):
        await world.receiver.wait_for_calls(len(world.receiver.calls) + chance.randint(20, 120))
        worker.kill()
        if wipes:
            shutil.rmtree(world.folder / "w1")
        worker = await world.work("w1")

    await world.until_settled(*load)
    assert_nothing_went_wrong(world, load, 4)
    assert any(each.events("delivery.adopted") for each in world.workers), "no call was cut off"


async def test_a_killed_workers_partitions_are_taken_over(world: World) -> None:
    """
    C-15, O-002: after the session time-out, by a worker that knows them from the log alone.
    """
    load = load_of(world)
    first, second = await asyncio.gather(world.work("w1"), world.work("w2"))
    await world.until_true(lambda: led_in_all([first, second], world), "all partitions led")
    await world.produce(*load)
    await world.receiver.wait_for_calls(100)

    first.kill()

    await world.until_settled(*load)
    assert world.partitions == await second.metric("outbox_partitions_led")
    assert_nothing_went_wrong(world, load, 4)


async def led_in_all(workers, world: World) -> bool:
    """Whether these workers lead every partition, each some."""
    led = [await worker.metric("outbox_partitions_led") for worker in workers]
    return sum(led) == world.partitions and min(led) > 0
