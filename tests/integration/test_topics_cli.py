"""`outbox topics` against a real broker (interface.md §1, design.md §1)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from streams import topics
from streams.errors import TopicsError
from streams.settings import Settings
from streams.topics import Problem
from tests.conftest import Outbox, SettingsFor

N = 3


@pytest.fixture
def settings(settings_for: SettingsFor, kafka: str, prefix: str) -> Settings:
    return settings_for(brokers=kafka, prefix=prefix, partitions=N, replication=1)


@pytest.fixture
async def admin(kafka: str) -> AsyncIterator[Any]:
    client = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await client.start()
    yield client
    await client.close()


async def existing(admin: Any, prefix: str) -> dict[str, int]:
    """Partitions of each topic under the prefix."""
    found = await admin.describe_topics()
    return {t["topic"]: len(t["partitions"]) for t in found if t["topic"].startswith(prefix)}


async def until_seen(admin: Any, prefix: str, expected: dict[str, int]) -> None:
    """Wait for the broker's view to follow a change; the test's time-out bounds it."""
    while await existing(admin, prefix) != expected:  # noqa: ASYNC110 - a broker sends no event
        await asyncio.sleep(0.05)


async def config(admin: Any, topic: str) -> dict[str, str]:
    (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    return {entry[0]: entry[1] for entry in answer.resources[0][4]}


async def test_apply_creates_every_topic_as_it_ought_to_be(
    settings: Settings, admin: Any, prefix: str
) -> None:
    """design.md §1: with N partitions or one, and the settings of each; then nothing is wrong."""
    changes = await topics.apply(settings)

    wanted = topics.wanted(prefix)
    assert {(t.name, "created") for t in wanted} == {(c.topic, c.action) for c in changes}
    assert {t.name: N if t.is_partitioned else 1 for t in wanted} == await existing(admin, prefix)
    for topic in wanted:
        has = await config(admin, topic.name)
        assert topic.config == {name: has[name] for name in topic.config}
    assert [] == await topics.check(settings)


async def test_apply_twice_changes_nothing(settings: Settings) -> None:
    """It runs before every start of every deployment."""
    await topics.apply(settings)

    assert [] == await topics.apply(settings)


async def test_a_dry_run_creates_nothing(settings: Settings, admin: Any, prefix: str) -> None:
    """Operators look first."""
    changes = await topics.apply(settings, dry_run=True)

    assert len(topics.wanted(prefix)) == len(changes)
    assert {"missing"} == {change.action for change in changes}
    assert {} == await existing(admin, prefix)


async def test_missing_topics_are_found(settings: Settings, admin: Any, prefix: str) -> None:
    """A worker that starts without one would fail at its first write."""
    await topics.apply(settings)
    rest = await existing(admin, prefix)
    del rest[f"{prefix}ledger"]
    await admin.delete_topics([f"{prefix}ledger"])
    await until_seen(admin, prefix, rest)

    assert [
        Problem(topic=f"{prefix}ledger", what="is missing", remedy="outbox topics apply")
    ] == await topics.check(settings)


async def test_unequal_partition_counts_are_found_and_left(
    settings: Settings, admin: Any, prefix: str
) -> None:
    """C-15: one worker must own partition p of every topic. Only a person may decide what to do."""
    await topics.apply(settings)
    grown = await existing(admin, prefix) | {f"{prefix}outbox": N + 1}
    await admin.create_partitions({f"{prefix}outbox": NewPartitions(total_count=N + 1)})
    await until_seen(admin, prefix, grown)

    (problem,) = await topics.check(settings)
    (change,) = await topics.apply(settings)

    assert (f"{prefix}outbox", "has 4 partition(s), not 3") == (problem.topic, problem.what)
    assert (f"{prefix}outbox", "differs", problem.what) == (
        change.topic,
        change.action,
        change.detail,
    )
    assert grown == await existing(admin, prefix)


async def test_a_wrong_cleanup_policy_is_found(settings: Settings, admin: Any, prefix: str) -> None:
    """C-16: a dead-letter topic that deletes by age loses dead letters in silence."""
    name = f"{prefix}outbox.dead-letters"
    await admin.create_topics([NewTopic(name, N, 1)])
    await topics.apply(settings)

    problems = await topics.check(settings)

    assert [
        f"{name} has cleanup.policy=delete, needs compact",
        f"{name} has max.message.bytes=1048588, needs 2097152",
    ] == [f"{problem.topic} {problem.what}" for problem in problems]


async def test_keeping_more_is_no_problem(settings: Settings, admin: Any, prefix: str) -> None:
    """An operator who keeps records longer, or for ever, knows why."""
    for retention in ("-1", "9999999999"):
        await admin.create_topics(
            [
                NewTopic(
                    f"{prefix}outbox" if retention == "-1" else f"{prefix}inbox",
                    N,
                    1,
                    topic_configs={"retention.ms": retention, "max.message.bytes": "4194304"},
                )
            ]
        )
    await topics.apply(settings)

    assert [] == await topics.check(settings)


async def test_more_copies_than_brokers_are_refused_with_advice(
    settings_for: SettingsFor, kafka: str, prefix: str
) -> None:
    """The default of three meets one local broker on everybody's first day."""
    settings = settings_for(brokers=kafka, prefix=prefix, replication=100)

    with pytest.raises(TopicsError, match=r"OUTBOX_REPLICATION is 100, but the cluster at .* has"):
        await topics.apply(settings)


def test_check_ends_with_one_and_a_line_a_problem(outbox: Outbox, kafka: str, prefix: str) -> None:
    """interface.md §1: exit 1, and what to do about it."""
    variables = {"brokers": kafka, "prefix": prefix, "partitions": 1, "replication": 1}
    before = outbox("topics", "check", **variables)
    applied = outbox("topics", "apply", "--json", **variables)
    after = outbox("topics", "check", **variables)

    assert (1, 0, 0) == (before.returncode, applied.returncode, after.returncode)
    assert f"{prefix}ledger is missing: outbox topics apply" in before.stdout.splitlines()
    assert len(before.stdout.splitlines()) == len(json.loads(applied.stdout))
    assert "all topics are as needed\n" == after.stdout


@pytest.mark.parametrize("command", ["apply", "check"])
def test_a_cluster_that_does_not_answer_is_one_clear_line(outbox: Outbox, command: str) -> None:
    """Not a page of a client's retries."""
    run = outbox("topics", command, brokers="127.0.0.1:1")

    assert (1, "") == (run.returncode, run.stdout)
    assert [
        (
            "outbox: no Kafka answers at 127.0.0.1:1 (KafkaConnectionError): set OUTBOX_BROKERS,"
            " or start a local one with `outbox kafka up`"
        )
    ] == run.stderr.splitlines()
