"""What a worker makes of the store that it finds: behind, damaged, or of a ledger that was made anew."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from streams.settings import load
from streams.topics import apply
from tests.integration.worker_process import WorkerProcess
from tests.integration.world import PATIENT, Produced, World

pytestmark = pytest.mark.timeout(150)

LINES = ("store.foreign", "store.corrupt")


@pytest.fixture
async def world(kafka: str, tmp_path: Path) -> AsyncIterator[World]:
    async with World(kafka, tmp_path / "world", {**PATIENT, "partitions": 1}) as world:
        yield world


def lines(worker: WorkerProcess) -> list[str]:
    """What it said of its store."""
    return [name for name in LINES for _ in worker.events(name)]


async def stop(worker: WorkerProcess) -> None:
    worker.terminate()
    assert 0 == await worker.ended()


async def delivered(world: World, name: str, number: int = 10) -> list[Produced]:
    load = [world.activity(f"urn:{name}:{n}", f"/ok/{name}/{n}") for n in range(number)]
    await world.produce(*load)
    await world.until_settled(*load)
    return load


async def end_of_ledger(world: World) -> int:
    consumer: Any = AIOKafkaConsumer(bootstrap_servers=world.brokers)
    await consumer.start()
    try:
        tp = TopicPartition(world.topics.ledger, 0)
        return int((await consumer.end_offsets([tp]))[tp])
    finally:
        await consumer.stop()


async def make_ledger_anew(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Delete the ledger topic and create it again, as someone who tidies up might."""
    admin: Any = AIOKafkaAdminClient(bootstrap_servers=world.brokers)
    await admin.start()
    try:
        await admin.delete_topics([world.topics.ledger])

        async def is_gone() -> bool:
            return world.topics.ledger not in await admin.list_topics()

        await world.until_true(is_gone, "the topic to be gone")
    finally:
        await admin.close()
    for name, value in world.environment().items():
        monkeypatch.setenv(name, value)
    await apply(load())


async def test_a_ledger_made_anew_under_a_stopped_worker_is_noticed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    design.md §3, issue 4: it has as many records again, so that no offset gives it away.
    """
    worker = await world.work("w1")
    old = await delivered(world, "old")
    end = await end_of_ledger(world)
    await stop(worker)
    await make_ledger_anew(world, monkeypatch)
    other = await world.work("other")
    await delivered(world, "new", 10)
    while await end_of_ledger(world) < end:
        await delivered(world, f"more{await end_of_ledger(world)}", 5)
    await stop(other)

    again = await world.work("w1")

    assert ["store.foreign"] == lines(again)
    (line,) = again.events("store.foreign")
    assert ([0], []) == (line["of_another_topic"], line["ahead_of_the_log"])
    # What the old ledger knew is not known any more: its activities would be new ones.
    await world.produce(old[0])
    await world.until(lambda: len(world.calls(old[0].paths[0])) == 2, "it to be taken for new")
    await stop(again)
    assert [] == lines(await world.work("w1"))


async def test_a_ledger_made_anew_under_a_running_worker_ends_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Its tail would wait for an offset that the new log may never reach; the next start rebuilds.
    """
    worker = await world.work("w1", stall_ms=6_000)
    await delivered(world, "old")
    worker.may_end = True

    await make_ledger_anew(world, monkeypatch)

    assert 1 == await worker.ended()
    (line,) = worker.events("worker.ended")
    assert world.topics.ledger in line["reason"]
    again = await world.work("w1")
    assert ["store.foreign"] == lines(again)
    await delivered(world, "new")


async def test_a_store_that_is_behind_reads_on_from_its_own_offset(world: World) -> None:
    """Issue 4: not from the beginning, and without a word of complaint."""
    first = await world.work("w1")
    await delivered(world, "before")
    await stop(first)
    other = await world.work("other")
    await delivered(world, "meanwhile")
    await stop(other)
    (whole,) = other.events("ledger.restored")

    again = await world.work("w1")

    assert [] == lines(again)
    (line,) = again.events("ledger.restored")
    assert whole["records"] + line["records"] == await end_of_ledger(world) - 1


async def test_a_damaged_store_is_moved_aside_and_rebuilt(world: World) -> None:
    """Issue 4: with one clear line; what was delivered is known again from the log."""
    worker = await world.work("w1")
    load = await delivered(world, "before")
    await stop(worker)
    (folder,) = (world.folder / "w1").glob("ledger")
    (folder / "CURRENT").write_bytes(b"\x00nonsense")

    again = await world.work("w1")

    assert ["store.corrupt"] == lines(again)
    await world.produce(load[0])
    await world.until(
        lambda: len(world.receipts[load[0].activity_id]) == 2, "the duplicate's receipt"
    )
    assert 1 == len(world.calls(load[0].paths[0]))
    await stop(again)
    assert [] == lines(await world.work("w1"))
