"""What a soak runs on: topics that keep little, the receiver, workers of which one is killed at times."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, Self

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from streams import topics
from streams.edge.receiver import Receiver
from streams.rules.identity import partition_of
from streams.settings import Settings
from streams.topics.catalogue import Cleanup, Topic
from streams.wire.targets import TargetRecord, encode_target
from tests.bench.children import Worker, clean_environment
from tests.bench.stage import Stage, settings_of
from tests.chaos.history import History
from tests.chaos.recorder import Recorder
from tests.soak.plan import STRICT, Produced, is_kept, is_kept_path
from tests.soak.tally import Tally

PARTITIONS: Final = 3
"""One each, so that its store fills its write buffer some times in an hour."""
MAX_ATTEMPTS: Final = 3
PREFIX: Final = "soak."

STEADY: Final = ("w1", "w2")
"""Workers that live as long as the soak: their figures are judged."""
KILLED: Final = "w3"
"""The worker that is killed now and then."""

_POLICY: Final = {
    "max_attempts": MAX_ATTEMPTS,
    "first_delay_ms": 1_000,
    "max_delay_ms": 5_000,
    "jitter_ms": 500,
    # As patient as a busy machine needs: a claim that is slow to come back must not spend attempts.
    "timeout_ms": 10_000,
    "lease_ms": 30_000,
}

_WRITE_BUFFER_BYTES: Final = 4 << 20
"""Of the workers' stores, a quarter of the product's: so that an hour sees them flush and compact."""

_KEPT_MS: Final = 600_000
"""How long what is not compacted lies in its topic."""
_COMPACTED: Final = {
    "min.compaction.lag.ms": "60000",
    "delete.retention.ms": "120000",
    "min.cleanable.dirty.ratio": "0.2",
}


class Site:
    """Use as an async context.

    Attributes:
        history: Of the activities that the checker is shown.
        tally: Of all activities.
    """

    def __init__(self, stage: Stage, dedupe_window_ms: int) -> None:
        self.stage = stage
        self.topics = topics.names(PREFIX)
        self.folder = stage.make_folder("soak")
        self.receiver = Receiver(log=self.folder / "receiver.log", keeps_calls=False)
        self.history = History(
            max_attempts=MAX_ATTEMPTS,
            strict=frozenset({STRICT}),
            dedupe_window_ms=dedupe_window_ms,
            is_whole=False,
        )
        self.tally = Tally(self.topics)
        self.workers: dict[str, Worker] = {}
        self.values: dict[str, bytes] = {}
        """Activity that the checker is shown to its record, for who replays it."""
        self.produced = 0
        self._starts = 0
        self._given = {
            "brokers": stage.brokers,
            "prefix": PREFIX,
            "partitions": PARTITIONS,
            "replication": 1,
            "allow_networks": "127.0.0.0/8",
            "log_format": "json",
            "health_address": "127.0.0.1:0",
            "session_timeout_ms": 10_000,
            "dedupe_window_ms": dedupe_window_ms,
            **{
                f"policy_{policy}_{name}": value
                for policy in ("activity", "notification")
                for name, value in _POLICY.items()
            },
        }

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as closing:
            await self._open(closing)
            self._closing = closing.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._closing.aclose()

    async def _open(self, closing: AsyncExitStack) -> None:
        """Start everything; what was started until it fails or is cancelled is ended again."""
        settings = settings_of(self._given)
        await topics.apply(settings)
        await self._shorten(settings)
        await closing.enter_async_context(self.receiver)
        self._producer = AIOKafkaProducer(**self.stage.options, acks="all", linger_ms=20)
        closing.push_async_callback(self._producer.stop)
        await self._producer.start()
        target = TargetRecord(
            name=STRICT, tenant="default", url=self.receiver.url("/ok/strict"), idempotent=False
        )
        await self._producer.send_and_wait(
            self.topics.targets, encode_target(target), f"default/{STRICT}".encode(), partition=0
        )
        self.recorder = Recorder(
            self.stage.brokers,
            self.topics,
            PARTITIONS,
            self.history,
            self.folder / "receiver.log",
            keeps=is_kept,
            keeps_path=is_kept_path,
            sees=self.tally.saw,
        )
        await self.recorder.start()
        closing.push_async_callback(self.recorder.stop)
        closing.callback(self._kill_all)
        for name in (*STEADY, KILLED):
            self.start(name)
        for worker in self.workers.values():
            await worker.ready()

    def _kill_all(self) -> None:
        for worker in self.workers.values():
            worker.kill()

    async def _shorten(self, settings: Settings) -> None:
        """Let retention and compaction act within minutes."""
        admin = AIOKafkaAdminClient(**self.stage.options)
        await admin.start()
        try:
            await admin.alter_configs(
                [
                    ConfigResource(ConfigResourceType.TOPIC, topic.name, configs=_short(topic))
                    for topic in topics.wanted(settings.prefix)
                    if topic.is_partitioned
                ]
            )
        finally:
            await admin.close()

    def start(self, name: str) -> None:
        """Start a worker, with the data directory that it had before."""
        self._starts += 1
        given = {**self._given, "worker_id": name, "data_dir": self.data_dir(name)}
        self.workers[name] = Worker(
            name,
            clean_environment(**given)
            | {"CHAOS_COMPACTS": "1", "CHAOS_WRITE_BUFFER_BYTES": str(_WRITE_BUFFER_BYTES)},
            self.folder / f"{name}-{self._starts}.log",
            command=(sys.executable, "-m", "tests.chaos.worker"),
        )

    def data_dir(self, name: str) -> Path:
        """Of a worker."""
        return self.folder / f"data-{name}"

    async def produce(self, batch: list[Produced]) -> None:
        """Write activities as their producer would; done when all are durable."""
        sent = []
        for one in batch:
            targets = [*map(self.receiver.url, one.paths), *one.targets]
            for target in targets:
                self.tally.expect(one.activity_id, target)
            recipients = [{"inbox": self.receiver.url(path)} for path in one.paths]
            recipients += [{"target": name} for name in one.targets]
            body = {"type": "Create", "about": one.activity_id, "content": "." * 400}
            value = json.dumps(
                {"activity_id": one.activity_id, "recipients": recipients, "activity": body}
            ).encode()
            if is_kept(one.activity_id):
                self.values[one.activity_id] = value
            sent += [
                await self._send(self.topics.outbox, one.activity_id, value)
                for _ in range(one.copies)
            ]
            self.produced += 1
        await asyncio.gather(*sent)

    async def write(self, topic: str, activity: str, value: bytes) -> None:
        """Append one record of an activity, durably."""
        await (await self._send(topic, activity, value))

    async def _send(self, topic: str, activity: str, value: bytes) -> asyncio.Future[Any]:
        key = activity.encode()
        return await self._producer.send(topic, value, key, partition=partition_of(key, PARTITIONS))


def _short(topic: Topic) -> dict[str, str]:
    own = {**topic.config, "min.insync.replicas": "1", "segment.ms": "60000"}
    if topic.cleanup is Cleanup.COMPACT:
        return own | _COMPACTED
    return own | {"retention.ms": str(_KEPT_MS)}
