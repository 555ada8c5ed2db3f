"""The topics of the product, and whether the cluster has them as they ought to be.

Nothing here deletes or alters a topic: what differs is reported, and a person decides, because a
topic's contents are the state of the product.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    KafkaConnectionError,
    KafkaError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    for_code,
)

from streams.errors import TopicsError
from streams.settings import Settings
from streams.topics.catalogue import FOREVER, Topic, Topics, names, wanted

__all__ = ["Change", "Problem", "Topics", "apply", "check", "count_brokers", "names", "wanted"]

_PATIENCE_MS: Final = 15_000
"""How long one request to the cluster may take."""

_CONNECT_S: Final = 10.0
"""How long finding the cluster may take: a port at which something listens and says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What `apply` did, would do, or cannot do, about one topic.

    Attributes:
        action: `created`, `missing` (a dry run) or `differs` (left as it is).
        detail: The partitions and settings made, or each difference found.
    """

    topic: str
    action: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something that keeps this version from running on the cluster, and what to do about it."""

    topic: str
    what: str
    remedy: str


async def apply(settings: Settings, *, dry_run: bool = False) -> list[Change]:
    """Create the topics that are missing, and report those that differ. Never deletes nor alters.

    Returns once every new topic has its leaders.

    Raises:
        TopicsError: the cluster does not answer, or refuses to create a topic.
    """
    async with _admin(settings) as admin:
        found = await _found(admin, settings)
        missing = [topic for topic in wanted(settings.prefix) if topic.name not in found]
        if missing and not dry_run:
            await _create(admin, missing, settings)
            await _await_leaders(admin, missing, settings)
    action = "missing" if dry_run else "created"
    made = [Change(topic=t.name, action=action, detail=_summary(t, settings)) for t in missing]
    return made + [
        Change(topic=problem.topic, action="differs", detail=problem.what)
        for problem in _differences(found, settings)
    ]


async def check(settings: Settings) -> list[Problem]:
    """Say what keeps this version from running on the cluster's topics; empty when nothing does.

    Raises:
        TopicsError: the cluster does not answer.
    """
    async with _admin(settings) as admin:
        found = await _found(admin, settings)
    missing = [
        Problem(topic=topic.name, what="is missing", remedy="outbox topics apply")
        for topic in wanted(settings.prefix)
        if topic.name not in found
    ]
    return missing + list(_differences(found, settings))


async def count_brokers(settings: Settings) -> int:
    """How many brokers the cluster has.

    Raises:
        TopicsError: it does not answer.
    """
    async with _admin(settings) as admin:
        return len((await admin.describe_cluster())["brokers"])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """One topic as the cluster has it. `replication` is the least of its partitions."""

    partitions: int
    replication: int
    has_leaders: bool
    config: dict[str, str]


def _differences(found: dict[str, _Found], settings: Settings) -> Iterator[Problem]:
    """Compare what is there with what ought to be. Keeping more, or longer, is no difference."""
    for topic in wanted(settings.prefix):
        actual = found.get(topic.name)
        if actual is None:
            continue
        partitions = _partitions(topic, settings)
        if actual.partitions != partitions:
            what = f"has {actual.partitions} partition(s), not {partitions}"
            remedy = _ONE_COUNT if topic.is_partitioned else "copy its records, make it anew"
            yield Problem(topic=topic.name, what=what, remedy=remedy)
        if actual.replication < settings.replication:
            what = f"has {actual.replication} copies, fewer than {settings.replication}"
            yield Problem(topic=topic.name, what=what, remedy="kafka-reassign-partitions.sh")
        for name, value in _config(topic, settings).items():
            has = actual.config.get(name, "")
            if not _is_enough(has, value):
                remedy = (
                    f"kafka-configs.sh --alter --topic {topic.name} --add-config {name}={value}"
                )
                what = f"has {name}={has}, needs {value}"
                yield Problem(topic=topic.name, what=what, remedy=remedy)


_ONE_COUNT: Final = (
    "one worker must own the same partition of all topics: set OUTBOX_PARTITIONS to the count that"
    " they have, or take a new OUTBOX_PREFIX"
)


def _is_enough(has: str, value: str) -> bool:
    """Numbers may be greater (-1 is without end); words must be the same, in any order."""
    if not value.lstrip("-").isdigit():
        return sorted(has.split(",")) == sorted(value.split(","))
    if not has.lstrip("-").isdigit():
        return False
    return int(has) == FOREVER or (int(value) != FOREVER and int(has) >= int(value))


def _partitions(topic: Topic, settings: Settings) -> int:
    return settings.partitions if topic.is_partitioned else 1


def _config(topic: Topic, settings: Settings) -> dict[str, str]:
    return {**topic.config, "min.insync.replicas": str(settings.min_insync_replicas)}


def _summary(topic: Topic, settings: Settings) -> str:
    """One line about a topic to be made."""
    config = " ".join(f"{name}={value}" for name, value in _config(topic, settings).items())
    return f"partitions={_partitions(topic, settings)} replication={settings.replication} {config}"


@asynccontextmanager
async def _admin(settings: Settings) -> AsyncIterator[Any]:
    """A connected admin client; what Kafka's client raises becomes one clear `TopicsError`."""
    admin = AIOKafkaAdminClient(request_timeout_ms=_PATIENCE_MS, **settings.kafka_options())
    try:
        # The client asks a server that says nothing for one version after the other, each so long.
        async with asyncio.timeout(_CONNECT_S):
            await admin.start()
        yield admin
    except (KafkaConnectionError, OSError, TimeoutError) as error:
        raise TopicsError(
            f"no Kafka answers at {settings.brokers} ({type(error).__name__}): set OUTBOX_BROKERS,"
            " or start a local one with `outbox kafka up`"
        ) from error
    except KafkaError as error:
        raise TopicsError(
            f"Kafka at {settings.brokers} refuses: {type(error).__name__}: {error}"
        ) from error
    finally:
        await admin.close()


async def _found(admin: Any, settings: Settings) -> dict[str, _Found]:
    """Look at those of our topics that are there.

    All topics are asked for, not ours: where the cluster creates topics by itself, naming one that
    is missing would create it.
    """
    ours = {topic.name for topic in wanted(settings.prefix)}
    seen = [t for t in await admin.describe_topics() if t["topic"] in ours and t["partitions"]]
    asked = [ConfigResource(ConfigResourceType.TOPIC, t["topic"]) for t in seen]
    configs: dict[str, dict[str, str]] = {}
    for answer in await admin.describe_configs(asked) if asked else ():
        for code, message, _, name, entries in answer.resources:
            if code == UnknownTopicOrPartitionError.errno:
                continue  # made a moment ago: this broker has not heard of it yet
            if code:
                raise for_code(code)(f"{name}: {message}")
            configs[name] = {entry[0]: entry[1] for entry in entries}
    return {
        t["topic"]: _Found(
            partitions=len(t["partitions"]),
            replication=min(len(p["replicas"]) for p in t["partitions"]),
            has_leaders=all(p["leader"] >= 0 for p in t["partitions"]),
            config=configs[t["topic"]],
        )
        for t in seen
        if t["topic"] in configs
    }


async def _create(admin: Any, missing: Sequence[Topic], settings: Settings) -> None:
    """Create topics; one that somebody else created meanwhile is as good."""
    brokers = len((await admin.describe_cluster())["brokers"])
    if brokers < settings.replication:
        raise TopicsError(
            f"OUTBOX_REPLICATION is {settings.replication}, but the cluster at {settings.brokers}"
            f" has {brokers} broker(s): set OUTBOX_REPLICATION={brokers}, or add brokers"
        )
    answer = await admin.create_topics(
        [
            NewTopic(
                name=topic.name,
                num_partitions=_partitions(topic, settings),
                replication_factor=settings.replication,
                topic_configs=_config(topic, settings),
            )
            for topic in missing
        ]
    )
    for name, code, message in answer.topic_errors:
        if code not in (0, TopicAlreadyExistsError.errno):
            raise TopicsError(f"Kafka does not create {name}: {message or for_code(code).__name__}")


async def _await_leaders(admin: Any, topics: Sequence[Topic], settings: Settings) -> None:
    """Wait until every broker's answer shows the new topics ready, for some seconds at most."""
    async with asyncio.timeout(_PATIENCE_MS / 1_000):
        while True:
            found = await _found(admin, settings)
            if all(t.name in found and found[t.name].has_leaders for t in topics):
                return
            await asyncio.sleep(0.05)
