"""One round's own outbox: topics, receiver, supervised workers; and what may befall them."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

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

ROOT: Final = Path(__file__).parents[2]
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


@dataclass
class Supervised:
    """A worker's name, its data directory, and its process where one runs."""

    name: str
    data_dir: Path
    environment: dict[str, str]
    folder: Path
    is_wanted: bool = False
    not_before: float = 0.0
    is_frozen: bool = False
    process: subprocess.Popen[bytes] | None = None
    expects_end: bool = False
    starts: int = 0
    began: asyncio.Event = field(default_factory=asyncio.Event)
    """Set at each start."""
    reasons: list[str] = field(default_factory=list)
    """Why it ended by itself."""

    @property
    def runs(self) -> bool:
        """Whether its process is there."""
        return self.process is not None and self.process.poll() is None

    @property
    def log(self) -> Path:
        """Of its last process."""
        return self.folder / f"{self.name}-{self.starts}.log"

    def start(self) -> None:
        """Start its process."""
        self.starts += 1
        self.began.set()
        self.expects_end = self.is_frozen = False
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.worker"],
                cwd=ROOT,
                env=self.environment | {"OUTBOX_DATA_DIR": str(self.data_dir)},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def signal(self, number: int) -> None:
        """Send a signal to its process, by pid."""
        if self.process is not None and self.runs:
            self.process.send_signal(number)

    def kill(self) -> None:
        """kill -9, and see it gone."""
        if self.process is not None and self.runs:
            self.expects_end = True
            self.process.kill()
            self.process.wait()

    def why_it_ended(self) -> str:
        """The reason that its log gives."""
        text = self.log.read_text(errors="replace")
        for line in reversed(text.splitlines()):
            if '"worker.ended"' in line and line.startswith("{"):
                told = json.loads(line)
                where = str(told.get("exception", "")).strip().splitlines()[-8:]
                return "\n    ".join([str(told.get("reason"))[:200], *where])
        code = self.process.returncode if self.process else "?"
        return f"exit {code}: " + "".join(text.strip().splitlines()[-1:])[:200]


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
        self._broker_faults = asyncio.Lock()
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
        environment["CHAOS_SKEW_MS"] = str(self.plan.skew_ms.get(name, 0))
        if self.plan.compacts:
            environment["CHAOS_COMPACTS"] = "1"
        fills = name == "w1" and any(f.kind == "fill" for f in self.plan.faults)
        home = self._tmpfs if fills and self._tmpfs else self.folder
        data_dir = home / f"{self.prefix}{name}"
        return Supervised(name=name, data_dir=data_dir, environment=environment, folder=self.folder)

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

    # -- what befalls --------------------------------------------------------------------------

    async def befall(self, fault: Any) -> None:
        """Let one fault happen, and be over."""
        deed = getattr(self, f"_{fault.kind}")
        await deed(fault.who, fault.lasts_s, fault.how)

    def _hold(self, worker: Supervised, lasts_s: float) -> None:
        worker.not_before = asyncio.get_running_loop().time() + lasts_s

    async def _kill(self, who: str, lasts_s: float, _how: str) -> None:
        worker = self.workers[who]
        self._hold(worker, lasts_s)
        worker.kill()
        self.did["kills"] += 1

    async def _stop(self, who: str, lasts_s: float, _how: str) -> None:
        worker = self.workers[who]
        self._hold(worker, lasts_s)
        worker.expects_end = True
        worker.signal(signal.SIGTERM)
        self.did["stops"] += 1

    async def _freeze(self, who: str, lasts_s: float, _how: str) -> None:
        worker = self.workers[who]
        if not worker.runs:  # another fault has ended it: freeze the one that comes
            worker.began.clear()
            await worker.began.wait()
        process = worker.process
        assert process is not None
        self.did["freezes"] += 1
        process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(lasts_s)
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)

    async def _cut(self, _who: str, lasts_s: float, how: str) -> None:
        self.did["cuts"] += 1
        self.network.cut(how)
        await asyncio.sleep(lasts_s)
        self.network.heal()

    async def _wipe(self, who: str, lasts_s: float, _how: str) -> None:
        worker = self.workers[who]
        self._hold(worker, lasts_s)
        worker.kill()
        shutil.rmtree(worker.data_dir, ignore_errors=True)
        self.did["wiped disks"] += 1

    async def _truncate(self, who: str, lasts_s: float, _how: str) -> None:
        """Cut the last bytes off one of the store's files, as a lost write does."""
        worker = self.workers[who]
        self._hold(worker, lasts_s)
        worker.kill()
        files = sorted(
            f for f in worker.data_dir.rglob("*") if f.is_file() and f.name[-4:] in (".log", ".sst")
        )
        files += sorted(worker.data_dir.rglob("MANIFEST*"))
        files = [f for f in files if f.stat().st_size > 64]
        if files:
            chosen = files[int(lasts_s * 1000) % len(files)]
            os.truncate(chosen, int(chosen.stat().st_size * ((lasts_s * 7919) % 1)))
            self.did["truncated disks"] += 1

    async def _fill(self, who: str, lasts_s: float, _how: str) -> None:
        """Leave no byte free under the worker's data directory for a while."""
        assert self._tmpfs is not None, "the plan fills only where there is a small file system"
        self.did["filled disks"] += 1
        filler = self._tmpfs / "filler"
        ends = asyncio.get_running_loop().time() + lasts_s
        with filler.open("ab", buffering=0) as file:
            while asyncio.get_running_loop().time() < ends:
                try:
                    while True:
                        file.write(b"." * 4096)
                except OSError:
                    await asyncio.sleep(0.2)
        filler.unlink()

    async def _twin(self, who: str, lasts_s: float, _how: str) -> None:
        """A second worker under the same OUTBOX_WORKER_ID."""
        self.did["twins"] += 1
        first = self.workers[who]
        twin = Supervised(
            name=f"{who}-twin",
            data_dir=self.folder / f"{who}-twin",
            environment=first.environment,
            folder=self.folder,
        )
        twin.start()
        await asyncio.sleep(lasts_s)
        if not twin.runs:
            twin.reasons.append(twin.why_it_ended())
            first.reasons += [f"twin: {reason}" for reason in twin.reasons]
        twin.kill()

    async def _scale(self, _who: str, lasts_s: float, _how: str) -> None:
        """All workers join, then those that are too many leave."""
        self.did["scalings"] += 1
        for name in WORKERS:
            self.workers[name].is_wanted = True
        await asyncio.sleep(lasts_s)
        for name in WORKERS[1:]:
            worker = self.workers[name]
            worker.is_wanted, worker.expects_end = False, True
            worker.signal(signal.SIGTERM)
        await asyncio.sleep(lasts_s / 2)
        for name in WORKERS[: self.plan.workers]:
            self.workers[name].is_wanted = True

    async def _broker_kill(self, who: str, lasts_s: float, _how: str) -> None:
        async with self._broker_faults:  # two of three must have a record before it counts
            self.did["broker kills"] += 1
            await asyncio.to_thread(self.kafka.kill, int(who))
            await asyncio.sleep(lasts_s)
            await asyncio.to_thread(self.kafka.up)

    async def _broker_freeze(self, who: str, lasts_s: float, _how: str) -> None:
        async with self._broker_faults:
            self.did["broker freezes"] += 1
            await asyncio.to_thread(self.kafka.freeze, int(who))
            try:
                await asyncio.sleep(lasts_s)
            finally:
                await asyncio.to_thread(self.kafka.thaw, int(who))
            await asyncio.to_thread(self.kafka.up)

    async def _broker_restart(self, who: str, _lasts_s: float, _how: str) -> None:
        async with self._broker_faults:
            self.did["broker restarts"] += 1
            await asyncio.to_thread(self.kafka.restart, int(who))
