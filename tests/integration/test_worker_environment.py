"""A worker that may not run says why in one clear line, with an exit code, and changes nothing."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
import pytest_asyncio

from tests.integration.worker_process import WorkerProcess
from tests.integration.world import World

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]

FAILED, USAGE = 1, 2
NOISE = ("Traceback", "Unclosed", "exception was never retrieved", "was never awaited")
DEADLINE_S = 30.0
"""By when a worker that cannot start has ended; the brokers are given some seconds of it."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with World(kafka, tmp_path_factory.mktemp("environment")) as world:
        yield world


async def refusal(worker: WorkerProcess, code: int) -> str:
    """The one line with which a worker refuses to run; nothing else may be in its way."""
    assert code == await worker.ended(DEADLINE_S), worker.output
    assert [] == [noise for noise in NOISE if noise in worker.output], worker.output
    (line,) = [line for line in worker.output.splitlines() if line.startswith("outbox: ")]
    return line


@pytest.mark.parametrize(
    ("overrides", "rule"),
    [
        ({"partitions": "0"}, "OUTBOX_PARTITIONS"),
        ({"brokers": "nonsense"}, "OUTBOX_BROKERS"),
        ({"allow_networks": "10.0.0.0/33"}, "OUTBOX_ALLOW_NETWORKS"),
        ({"policy_activity_lease_ms": "2100"}, "lease_ms"),
        ({"health_address": "here"}, "OUTBOX_HEALTH_ADDRESS"),
    ],
)
async def test_a_setting_that_breaks_a_rule_is_named(
    world: World, overrides: dict[str, object], rule: str
) -> None:
    """interface.md §1, §2: exit 2, one message per broken rule; C-07 is one of them."""
    worker = world.launch("bad", **overrides)

    assert rule in await refusal(worker, USAGE)


async def test_every_broken_setting_has_its_line(world: World) -> None:
    """interface.md §2: all are checked together, so that one run tells all."""
    worker = world.launch("bad", partitions="0", replication="x", policy_activity_timeout_ms="-1")

    assert USAGE == await worker.ended(DEADLINE_S)

    lines = [line for line in worker.output.splitlines() if line.startswith("outbox: ")]
    broken = ("OUTBOX_PARTITIONS", "OUTBOX_REPLICATION", "OUTBOX_POLICY_ACTIVITY_TIMEOUT_MS")
    assert [name for name in broken if any(name in line for line in lines)] == [*broken]


async def test_a_broker_that_does_not_answer_is_named(world: World) -> None:
    """Issue 3: a port of ours at which nobody listens."""
    with closing(socket.socket()) as bound:
        bound.bind(("127.0.0.1", 0))
        brokers = f"127.0.0.1:{bound.getsockname()[1]}"

        line = await refusal(world.launch("alone", brokers=brokers), FAILED)

    assert brokers in line
    assert "OUTBOX_BROKERS" in line


async def test_a_broker_that_accepts_and_says_nothing_is_named(world: World) -> None:
    """A firewall or another service at that port must not hang the start for ever."""
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        brokers = f"127.0.0.1:{silent.getsockname()[1]}"

        line = await refusal(world.launch("silent", brokers=brokers), FAILED)

    assert brokers in line


async def test_missing_topics_are_named_with_their_remedy(world: World) -> None:
    """design.md §1: nothing is created by itself."""
    worker = world.launch("bare", prefix="nothing-here.")

    assert FAILED == await worker.ended(DEADLINE_S)

    assert "outbox: nothing-here.outbox is missing: outbox topics apply" in worker.output
    assert [] == [noise for noise in NOISE if noise in worker.output], worker.output


async def test_another_partition_count_than_the_settings_say_is_named(world: World) -> None:
    """design.md §1: one worker owns the same partition of all topics, so the counts must be one."""
    worker = world.launch("counting", partitions="8")

    assert FAILED == await worker.ended(DEADLINE_S)

    assert f"{world.topics.outbox} has 4 partition(s), not 8" in worker.output
    assert "OUTBOX_PARTITIONS" in worker.output
    assert [] == [noise for noise in NOISE if noise in worker.output], worker.output


async def test_a_data_directory_cannot_be_made_where_a_file_is(world: World) -> None:
    """Issue 3: not writable; and the file is left alone."""
    file = world.folder / "a-file"
    file.write_text("mine")

    line = await refusal(world.launch("nowhere", data_dir=file), FAILED)

    assert str(file) in line
    assert "OUTBOX_DATA_DIR" in line
    assert "mine" == file.read_text()


async def test_what_is_no_store_is_moved_aside_and_the_ledger_read_anew(world: World) -> None:
    """
    design.md §3: the log is the truth; a store that cannot be opened is kept for whoever looks into it.
    """
    folder = world.folder / "half"
    folder.mkdir()
    (folder / "ledger").write_text("mine")

    worker = await world.work("half")

    (told,) = worker.events("store.corrupt")
    (kept,) = folder.glob("ledger.corrupt.*")
    assert str(kept) == told["moved_to"]
    assert "mine" == kept.read_text()
    worker.terminate()
    assert 0 == await worker.ended()


async def test_what_another_worker_holds_is_named_and_that_worker_goes_on(world: World) -> None:
    """
    Issue 3: two workers over one store would each undo the other's fold; and one port serves one.
    """
    worker = await world.work("holder")

    locked = world.launch("intruder", data_dir=world.folder / "holder")
    taken = world.launch("neighbour", health_address=f"127.0.0.1:{worker.port}")

    line = await refusal(locked, FAILED)
    assert str(world.folder / "holder") in line
    assert "OUTBOX_DATA_DIR" in line
    line = await refusal(taken, FAILED)
    assert f"127.0.0.1:{worker.port}" in line
    assert "OUTBOX_HEALTH_ADDRESS" in line
    activity = world.activity("urn:environment", "/ok/environment")
    await world.produce(activity)
    await world.until_settled(activity)
    assert 1 == len(world.calls("/ok/environment"))


async def test_what_was_produced_before_a_refusal_is_delivered_after_it(
    kafka: str, tmp_path: Path
) -> None:
    """
    Issue 3: nothing lost; a worker that could not start has taken nothing.
    """
    async with World(kafka, tmp_path / "world") as world:
        waiting = [world.activity(f"urn:waiting:{n}", f"/ok/{n}") for n in range(20)]
        await world.produce(*waiting)
        await refusal(world.launch("w1", data_dir="/dev/null/x"), FAILED)
        await refusal(world.launch("w1", allow_networks="x"), USAGE)

        await world.work("w1")

        await world.until_settled(*waiting)
        assert {1} == set(world.calls_by_path().values())
