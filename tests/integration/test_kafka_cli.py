"""`outbox kafka` with real nodes (interface.md §1, design.md §9)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from streams.edge.localkafka import LocalKafka
from tests.conftest import Outbox


class Ender(Protocol):
    """Note a cluster's folder, so that it is ended whatever becomes of the test."""

    def __call__(self, data: Path, brokers: int = 1) -> LocalKafka: ...


@pytest.fixture
def ends() -> Iterator[Ender]:
    """End every noted cluster."""
    noted: list[LocalKafka] = []

    def note(data: Path, brokers: int = 1) -> LocalKafka:
        noted.append(LocalKafka(data, brokers=brokers))
        return noted[-1]

    yield note
    for cluster in noted:
        cluster.down(wait_s=0.0)


async def make_topic(bootstrap: str, *, copies: int) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic("t", 1, copies)])
    await admin.close()


async def append(bootstrap: str, value: bytes) -> int:
    async with AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        acks="all",
        enable_idempotence=True,
        request_timeout_ms=3_000,
    ) as producer:
        return (await producer.send_and_wait("t", value)).offset


async def first_record(bootstrap: str) -> bytes | None:
    partition = TopicPartition("t", 0)
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap) as consumer:
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        return (await consumer.getone()).value


def processes_of(folder: Path) -> list[str]:
    """The process ids of everything that was started with this folder and did not end."""
    lines = {path.parent.name: _command(path) for path in Path("/proc").glob("[0-9]*/cmdline")}
    return [pid for pid, line in lines.items() if str(folder) in line]


def _command(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def test_one_node_from_up_to_down(outbox: Outbox, ends: Ender, tmp_path: Path) -> None:
    """
    interface.md §1: `up` returns once it serves, prints its bootstrap and is idempotent; `down`
    ends it, keeps what was written, is idempotent and leaves no process; `status` tells.
    """
    folder = ("--data", "here")
    kafka = ends(tmp_path / "here")
    before = outbox("kafka", "status", *folder)
    first = outbox("kafka", "up", "--port", "0", *folder)
    bootstrap = first.stdout.strip().removeprefix("bootstrap=")
    asyncio.run(make_topic(bootstrap, copies=1))
    asyncio.run(append(bootstrap, b"kept"))
    (pid,) = kafka.node_pids().values()
    again = outbox("kafka", "up", "--port", "0", *folder, brokers=bootstrap)
    status = outbox("kafka", "status", "--json", *folder)
    ended = outbox("kafka", "down", *folder, brokers=bootstrap)
    ended_again = outbox("kafka", "down", *folder)
    after = outbox("kafka", "status", "--json", *folder)

    assert (1, 0, 0, 0, 0, 0, 1) == tuple(
        run.returncode for run in (before, first, again, status, ended, ended_again, after)
    )
    assert f"bootstrap={bootstrap}\n" == first.stdout == again.stdout
    assert {"node": 1, "port": int(bootstrap[10:]), "pid": pid} == json.loads(status.stdout)[
        "nodes"
    ][0]
    assert ("ended\n", "none ran\n") == (ended.stdout, ended_again.stdout)
    assert json.loads(after.stdout)["running"] is False
    assert [] == processes_of(tmp_path / "here")

    assert kafka.up() == bootstrap
    assert asyncio.run(first_record(bootstrap)) == b"kept"


def test_three_nodes_outlive_one(outbox: Outbox, ends: Ender, tmp_path: Path) -> None:
    """
    design.md §9: a killed node costs time and no record, and comes back in its place; `down` ends
    a frozen one too, and leaves no process.
    """
    kafka = ends(tmp_path / "three", brokers=3)
    started = outbox("kafka", "up", "--brokers", "3", "--port", "0", "--data", "three", "--json")
    bootstrap = json.loads(started.stdout)["bootstrap"]
    asyncio.run(make_topic(bootstrap, copies=3))

    kafka.kill(2)
    without = set(kafka.node_pids())
    offset = asyncio.run(append(bootstrap, b"one is dead"))
    kafka.restart(2)
    whole = set(kafka.node_pids())
    kafka.freeze(3)
    ended = outbox("kafka", "down", "--data", "three")

    assert ({1, 3}, {1, 2, 3}, 0) == (without, whole, offset)
    assert bootstrap.count(",") == 2
    assert "ended\n" == ended.stdout
    assert [] == processes_of(tmp_path / "three")


def test_a_given_cluster_is_used_and_left_alone(outbox: Outbox, kafka: str, tmp_path: Path) -> None:
    """Where OUTBOX_BROKERS is set, `up` starts nothing and `down` ends nothing."""
    up = outbox("kafka", "up", brokers=kafka)
    down = outbox("kafka", "down", brokers=kafka)
    status = outbox("kafka", "status", brokers=kafka)

    assert (0, 0, 0) == (up.returncode, down.returncode, status.returncode)
    assert f"bootstrap={kafka}\n" == up.stdout
    assert "left alone" in down.stderr
    assert not (tmp_path / ".local").exists()


def test_a_given_cluster_that_does_not_answer_is_an_error(outbox: Outbox) -> None:
    """Started beside it, a second cluster would take the records that were meant for the first."""
    up = outbox("kafka", "up", brokers="127.0.0.1:1")

    assert (1, "") == (up.returncode, up.stdout)
    assert "outbox: no Kafka answers at 127.0.0.1:1" in up.stderr
    assert "Traceback" not in up.stderr


def test_wrong_settings_end_with_two_and_a_line_each(outbox: Outbox) -> None:
    """interface.md §2: one clear message per broken rule, no traceback."""
    run = outbox("settings", partitions=0, policy_activity_timeout_ms=44_000)

    assert (2, "") == (run.returncode, run.stdout)
    assert [
        "outbox: OUTBOX_PARTITIONS: Input should be greater than or equal to 1",
        (
            "outbox: OUTBOX_POLICY_ACTIVITY_TIMEOUT_MS:"
            " timeout_ms + 2000 ms of margin must not exceed lease_ms"
        ),
    ] == run.stderr.splitlines()
