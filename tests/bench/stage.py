"""What a run plays on: a Kafka of its own, topics for each world, and workers on them."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import sys
import tempfile
from base64 import b64encode
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from streams import topics
from streams.edge.localkafka import LocalKafka
from streams.model.target import Signing, TargetRecord
from streams.settings import Settings, load
from streams.wire.targets import encode_target
from tests.bench.children import Api, Service, Worker, clean_environment
from tests.bench.preload import PARTITIONS, Record, append

BASE: Final[dict[str, object]] = {
    "partitions": PARTITIONS,
    "replication": 1,
    "allow_networks": "127.0.0.0/8",
    "log_format": "json",
    "health_address": "127.0.0.1:0",
}
"""What every worker here is set to; all that is not named is the product's default."""


def in_flight(count: int) -> dict[str, object]:
    """So many deliveries at once, to one target: connections are kept, as a bare loop keeps them."""
    return {
        "max_in_flight": count,
        "policy_activity_max_connections": count,
        "policy_activity_max_idle": count,
    }


TARGET: Final = "bench"
"""Name of the registered target: idempotent, with the `activity` policy, signed by HMAC."""

_SECRET: Final = f"whsec_{b64encode(b'bench---' * 4).decode()}"


class World:
    """One outbox: topics under a prefix of their own, and the workers on them."""

    def __init__(self, stage: Stage, prefix: str, settings: dict[str, object]) -> None:
        self.stage = stage
        self.topics = topics.names(prefix)
        self.folder = stage.folder / prefix.rstrip(".")
        self.folder.mkdir()
        self._given = {**BASE, "brokers": stage.brokers, "prefix": prefix, **settings}
        self._services: list[Service] = []

    @property
    def settings(self) -> Settings:
        """The product's settings, as its workers read them."""
        return settings_of(self._given)

    @property
    def options(self) -> dict[str, Any]:
        """How a Kafka client reaches the broker."""
        return self.stage.options

    async def preload(self, topic: str, records: Iterable[Record]) -> float:
        """Write records; give the CPU seconds that it took here."""
        return await append(self.options, topic, records)

    async def register(self, url: str) -> None:
        """Put `TARGET` into the registry; every worker from now on signs what it sends there."""
        target = TargetRecord(
            name=TARGET,
            tenant="default",
            url=url,
            idempotent=True,
            policy="activity",
            signing=Signing.WEBHOOKS_HMAC.value,
            secret_refs=("env:BENCH_SECRET",),
        )
        record = Record(0, f"default/{TARGET}".encode(), encode_target(target))
        await self.preload(self.topics.targets, [record])

    def start(
        self,
        name: str = "w1",
        *,
        folder: str | None = None,
        command: Sequence[str] | None = None,
        **settings: object,
    ) -> Worker:
        """Start a worker.

        Args:
            name: Its worker id.
            folder: Its data directory's name; the same one twice keeps what was folded.
            command: What runs it, if not `outbox worker` itself.
        """
        worker = Worker(name, *self._place(name, folder, settings), command=command)
        self._services.append(worker)
        return worker

    def start_api(self, name: str, *, folder: str, **settings: object) -> Api:
        """Start an operator API; the rest as `start`."""
        api = Api(name, *self._place(name, folder, {"api_address": "127.0.0.1:0", **settings}))
        self._services.append(api)
        return api

    def _place(
        self, name: str, folder: str | None, settings: dict[str, object]
    ) -> tuple[dict[str, str], Path]:
        number = len(self._services)
        given = {
            **self._given,
            "worker_id": name,
            "data_dir": self.folder / (folder or f"{name}-{number}"),
            **settings,
        }
        environment = clean_environment(**given) | {"BENCH_SECRET": _SECRET}
        return environment, self.folder / f"{name}-{number}.log"

    async def stop(self) -> None:
        """End every process of this world."""
        await asyncio.gather(*(service.end() for service in self._services))

    def kill(self) -> None:
        """End every process of this world at once."""
        for service in self._services:
            service.kill()

    async def create(self) -> None:
        """Make the topics, and wait until their leaders take and give records."""
        await topics.apply(self.settings)
        consumer: AIOKafkaConsumer[bytes, bytes] = AIOKafkaConsumer(
            **self.options, enable_auto_commit=False
        )
        await consumer.start()
        try:
            names = [t.name for t in topics.wanted(self.topics.prefix) if t.is_partitioned]
            # Asks each leader, and asks again while it does not know yet that it is one.
            await consumer.end_offsets(
                [TopicPartition(name, p) for name in names for p in range(PARTITIONS)]
            )
        finally:
            await consumer.stop()

    async def drop(self) -> None:
        """Delete the topics and the files: the next world must not share its disk with this one."""
        shutil.rmtree(self.folder, ignore_errors=True)
        admin = AIOKafkaAdminClient(**self.options)
        await admin.start()
        try:
            names = [topic.name for topic in topics.wanted(self.topics.prefix)]
            await admin.delete_topics(names, timeout_ms=30_000)
        finally:
            await admin.close()


class Stage:
    """A folder and a broker for a whole suite; use `stage()`."""

    def __init__(self, folder: Path, kafka: LocalKafka, brokers: str) -> None:
        self.folder = folder
        self.brokers = brokers
        self._kafka = kafka
        self._numbers = itertools.count(1)

    @property
    def broker_pids(self) -> list[int]:
        """The broker's process, as a list."""
        return list(self._kafka.node_pids().values())

    @property
    def options(self) -> dict[str, Any]:
        """How a Kafka client reaches the broker."""
        return {"bootstrap_servers": self.brokers}

    @property
    def records_dir(self) -> Path:
        """Where the broker keeps its partitions."""
        return self._kafka.data_dir / "node-1" / "records"

    def make_folder(self, name: str) -> Path:
        """A new folder of this suite."""
        made = self.folder / f"{name}-{next(self._numbers)}"
        made.mkdir()
        return made

    @asynccontextmanager
    async def world(self, **settings: object) -> AsyncIterator[World]:
        """Topics of their own; at the end its workers are stopped and all is deleted."""
        world = World(self, f"b{next(self._numbers)}.", settings)
        try:
            await world.create()
            yield world
            await world.stop()
        finally:
            world.kill()
            await world.drop()


def settings_of(given: Mapping[str, object]) -> Settings:
    """The product's settings, as a worker with these variables reads them."""
    with patch.dict(os.environ, clean_environment(**given), clear=True):
        return load()


@asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    """Start a broker in a temporary folder; end it and remove the folder, whatever happens."""
    folder = Path(tempfile.mkdtemp(prefix="outbox-bench-"))
    kafka = LocalKafka(folder / "kafka", say=lambda line: print(line, file=sys.stderr))
    try:
        brokers = await asyncio.to_thread(kafka.up)
        yield Stage(folder, kafka, brokers)
    finally:
        kafka.down(wait_s=10.0)
        shutil.rmtree(folder, ignore_errors=True)
