"""One round's own outbox: topics, receiver, supervised workers."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final, Self

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from streams.edge.receiver import Receiver
from streams.rules.identity import partition_of
from streams.topics import names
from streams.wire.targets import TargetRecord, encode_target
from tests.chaos.cluster import Network, ProxiedKafka
from tests.chaos.history import History
from tests.chaos.plan import REGISTERED, WORKERS, Asked, Plan
from tests.chaos.recorder import Recorder
from tests.chaos.supervised import ROOT, Supervised

PARTITIONS: Final = 4
MAX_ATTEMPTS: Final = 3
RESTART_S: Final = 0.4
"""How long the supervisor waits before it starts a worker that ended by itself."""

SETTINGS: Final = {
    "partitions": PARTITIONS,
    "replication": 3,
    "allow_networks": "127.0.0.0/8",
    "log_format": "json",
    "health_address": "127.0.0.1:0",
    "session_timeout_ms": 6000,
    "drain_ms": 2500,
    **{
        f"policy_{policy}_{name}": value
        for policy in ("activity", "notification")
        for name, value in {
            "max_attempts": MAX_ATTEMPTS,
            "first_delay_ms": 200,
            "max_delay_ms": 400,
            "jitter_ms": 100,
            "timeout_ms": 1500,
            "lease_ms": 4000,
        }.items()
    },
}

COMPACTING: Final = {
    "min.compaction.lag.ms": "30000",
    "delete.retention.ms": "1000",
    "segment.ms": "1000",
    "min.cleanable.dirty.ratio": "0.01",
}
"""The lag must exceed the longest time without a leader: session 6 s, a freeze of 11 s, slow starts."""
COMPACTED_S: Final = 35.0
"""When compaction has certainly had its turn with what was written before."""


class Site:
    """Use as an async context.

    Args:
        tmpfs: A small file system for the data directory that is to be filled; None where none is.
    """

    def __init__(self, kafka: ProxiedKafka, plan: Plan, folder: Path, tmpfs: Path | None) -> None:
        self.kafka = kafka
        self.plan = plan
        self.folder = folder
        self.network = Network(kafka.doors)
        self.prefix = f"c{plan.seed}x{random.randrange(16**4):04x}."
        self.topics = names(self.prefix)
        self.receiver = Receiver(log=folder / "receiver.log", keeps_calls=False)
        strict = frozenset(name for name, (_, idempotent) in REGISTERED.items() if not idempotent)
        self.history = History(max_attempts=MAX_ATTEMPTS, strict=strict)
        self.did: Counter[str] = Counter()
        """How often each thing befell."""
        self.values: dict[str, bytes] = {}
        """Activity to its record, for who replays it."""
        self.replayed: set[str] = set()
        """Delivery and budget of what was produced again."""
        self._tmpfs = tmpfs
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self.folder.mkdir(parents=True)
        await self.network.open()
        await self.receiver.start()
        bootstrap = self.kafka.bootstrap or ""
        applied = await asyncio.to_thread(self._apply_topics, bootstrap)
        assert applied.returncode == 0, applied.stderr
        if self.plan.compacts:
            await self._shorten_the_lag(bootstrap)
        self.producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            acks="all",
            enable_idempotence=True,
            request_timeout_ms=60_000,
        )
        await self.producer.start()
        for name, (path, idempotent) in REGISTERED.items():
            record = TargetRecord(
                name=name, tenant="default", url=self.receiver.url(path), idempotent=idempotent
            )
            await self.producer.send_and_wait(
                self.topics.targets, encode_target(record), f"default/{name}".encode(), partition=0
            )
        self.recorder = Recorder(
            bootstrap, self.topics, PARTITIONS, self.history, self.folder / "receiver.log"
        )
        await self.recorder.start()
        self.workers = {name: self._worker(name, bootstrap) for name in WORKERS}
        for name in WORKERS[: self.plan.workers]:
            self.workers[name].is_wanted = True
        self._tasks = [asyncio.create_task(self._supervise(w)) for w in self.workers.values()]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        for worker in self.workers.values():
            worker.is_wanted = False
            worker.kill()
        await self.recorder.stop()
        await self.producer.stop()
        await self.receiver.close()
        await self.network.close()
        await self._remove_topics()

    def _environment(self, **given: object) -> dict[str, str]:
        clean = {k: v for k, v in os.environ.items() if not k.upper().startswith("OUTBOX_")}
        settings = {"prefix": self.prefix, **SETTINGS, **given}
        return clean | {f"OUTBOX_{name.upper()}": str(v) for name, v in settings.items()}

    def _apply_topics(self, bootstrap: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "streams", "topics", "apply"],
            cwd=ROOT,
            env=self._environment(brokers=bootstrap),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    async def _shorten_the_lag(self, bootstrap: str) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            kept = {"cleanup.policy": "compact", "max.message.bytes": str(2 * 1024**2)}
            kept |= {"message.timestamp.type": "CreateTime", "min.insync.replicas": "2"}
            await admin.alter_configs(
                [
                    ConfigResource(
                        ConfigResourceType.TOPIC, self.topics.ledger, configs=kept | COMPACTING
                    )
                ]
            )
        finally:
            await admin.close()

    async def _remove_topics(self) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.kafka.bootstrap)
        await admin.start()
        try:
            ours = [t for t in await admin.list_topics() if t.startswith(self.prefix)]
            await admin.delete_topics(ours)
        finally:
            await admin.close()

    def _worker(self, name: str, bootstrap: str) -> Supervised:
        is_cut = name == "w1" and any(f.kind == "cut" for f in self.plan.faults)
        environment = self._environment(
            brokers=self.kafka.proxied if is_cut else bootstrap, worker_id=name
        )
        if self.plan.compacts:
            environment["CHAOS_COMPACTS"] = "1"
        fills = name == "w1" and any(f.kind == "fill" for f in self.plan.faults)
        home = self._tmpfs if fills and self._tmpfs else self.folder
        data_dir = home / f"{self.prefix}{name}"
        made = Supervised(name=name, data_dir=data_dir, environment=environment, folder=self.folder)
        made.set_clock(self.plan.skew_ms.get(name, 0))
        return made

    async def _supervise(self, worker: Supervised) -> None:
        """Start what is wanted and does not run, as an orchestrator would."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(0.1)
            if worker.runs or not worker.is_wanted or loop.time() < worker.not_before:
                continue
            if worker.process is not None and not worker.expects_end:
                worker.expects_end = True
                worker.reasons.append(worker.why_it_ended())
                self.did["self-ended workers"] += 1
                worker.not_before = loop.time() + RESTART_S
                continue
            worker.start()

    # -- what is produced ----------------------------------------------------------------------

    async def produce(self, asked: Asked) -> None:
        """Write an activity as its producer would, or onto a stray partition."""
        recipients = [{"inbox": self.receiver.url(path)} for path in asked.inboxes]
        recipients += [{"target": name} for name in asked.targets]
        value = json.dumps(
            {
                "activity_id": asked.activity_id,
                "recipients": recipients,
                "activity": {"type": "Create", "about": asked.activity_id},
            }
        ).encode()
        self.values[asked.activity_id] = value
        home = partition_of(asked.activity_id.encode(), PARTITIONS)
        partition = (home + 1) % PARTITIONS if asked.is_stray else home
        for _ in range(asked.copies):
            await self.write(self.topics.outbox, asked.activity_id, value, partition)

    async def write(
        self, topic: str, activity: str, value: bytes, partition: int | None = None
    ) -> None:
        """Append one record, durably."""
        if partition is None:
            partition = partition_of(activity.encode(), PARTITIONS)
        await self.producer.send_and_wait(topic, value, activity.encode(), partition=partition)
