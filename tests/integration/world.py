"""A whole outbox for black-box tests: topics of its own, the test receiver, real worker processes.

Tests speak to it as producers and operators do: through the topics, signals and the worker's pages.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import uuid
from base64 import b64encode
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from unittest.mock import patch

from aiokafka import AIOKafkaProducer

from streams.edge.receiver import Call, Receiver
from streams.model.receipt import Letter, Outcome
from streams.rules.identity import partition_of
from streams.settings import load
from streams.topics import apply, names
from streams.wire.targets import TargetRecord, encode_target
from tests.integration.outcomes import Outcomes
from tests.integration.worker_process import WorkerProcess

PATIENCE_S = 60.0
"""How long a condition is waited for. Generous: it bounds a failure, it measures nothing."""

GIVEN_UP = (Outcome.REFUSED, Outcome.AMBIGUOUS, Outcome.EXHAUSTED, Outcome.EXPIRED)

SHORT = {
    "partitions": "4",
    "replication": "1",
    "allow_networks": "127.0.0.0/8",
    "log_format": "json",
    "health_address": "127.0.0.1:0",
    "session_timeout_ms": "6000",
    **{
        f"policy_{policy}_{name}": value
        for policy in ("activity", "notification")
        for name, value in {
            "max_attempts": "3",
            "first_delay_ms": "200",
            "max_delay_ms": "400",
            "jitter_ms": "100",
            "timeout_ms": "1500",
            "lease_ms": "4000",
        }.items()
    },
}
"""Settings under which a test's retries and leases end within seconds."""

PATIENT: Mapping[str, object] = {
    "session_timeout_ms": 30_000,
    **{f"policy_{policy}_timeout_ms": 20_000 for policy in ("activity", "notification")},
    **{f"policy_{policy}_lease_ms": 40_000 for policy in ("activity", "notification")},
}
"""For tests that count calls: a machine that is busy elsewhere spends no attempt and moves no partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Produced:
    """An activity as a producer writes it.

    Attributes:
        value: The record's value.
        body: What a target must receive, byte for byte.
        paths: Of its inboxes at the receiver, in order.
    """

    activity_id: str
    value: bytes
    body: bytes
    content_type: str = "application/activity+json"
    paths: tuple[str, ...] = ()
    tenant: str = "default"

    @property
    def key(self) -> bytes:
        """Its activity key (interface.md §3)."""
        own = self.activity_id
        return (own if self.tenant == "default" else f"{self.tenant}|{own}").encode()


@dataclass
class World(Outcomes):
    """Use as an async context. Worker processes are started by `work`, and ended with it by their pid."""

    brokers: str
    folder: Path
    overrides: Mapping[str, object] = field(default_factory=dict)
    receiver: Receiver = field(default_factory=Receiver)
    workers: list[WorkerProcess] = field(default_factory=list)
    prefix: str = field(default_factory=lambda: f"t{uuid.uuid4().hex[:8]}.")

    def __post_init__(self) -> None:
        Outcomes.__init__(self)

    async def __aenter__(self) -> Self:
        self.topics = names(self.prefix)
        self.folder.mkdir(parents=True, exist_ok=True)
        # In this process: a command of its own costs two seconds of CPU, and has its own test.
        with patch.dict(os.environ, self.environment(), clear=True):
            settings = load()
        await apply(settings)
        await self.receiver.start()
        self._producer = AIOKafkaProducer(
            bootstrap_servers=self.brokers, max_request_size=2 * 1024**2, linger_ms=5
        )
        await self._producer.start()
        await self.follow(self.brokers, self.topics, self.partitions)
        return self

    async def __aexit__(self, *_: object) -> None:
        for worker in self.workers:
            await worker.end()
        await self.unfollow()
        await self._producer.stop()
        await self.receiver.close()

    # -- processes ------------------------------------------------------------------------------

    def environment(self, **overrides: object) -> dict[str, str]:
        """The variables of a command in this world; a None takes one out."""
        given = {"brokers": self.brokers, "prefix": self.prefix, **SHORT, **self.overrides}
        clean = {k: v for k, v in os.environ.items() if not k.upper().startswith("OUTBOX_")}
        named = {f"OUTBOX_{k.upper()}": v for k, v in (given | overrides).items()}
        return clean | {name: str(value) for name, value in named.items() if value is not None}

    def command(self, *arguments: str, **overrides: object) -> subprocess.CompletedProcess[str]:
        """Run `outbox ARGUMENTS` to its end."""
        return subprocess.run(
            [sys.executable, "-m", "streams", *arguments],
            env=self.environment(**overrides),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    async def work(self, name: str = "w1", **overrides: object) -> WorkerProcess:
        """Start `outbox worker` under this name and wait until it leads its partitions.

        Its data directory is the same each time the name is used.
        """
        worker = self.launch(name, **overrides)
        await self.until(lambda: worker.port is not None, "the worker's port")
        await self.until_true(worker.is_ready, f"{name} to be ready")
        return worker

    def launch(self, name: str, **overrides: object) -> WorkerProcess:
        """Start `outbox worker` and do not wait for it."""
        number = len(self.workers)
        given = {"worker_id": name, "data_dir": self.folder / name, **overrides}
        worker = WorkerProcess(
            name=name,
            environment=self.environment(**given),
            log=self.folder / f"{name}-{number}.log",
        )
        self.workers.append(worker)
        return worker

    # -- producing ------------------------------------------------------------------------------

    def url(self, path: str) -> str:
        """An inbox at the receiver."""
        return self.receiver.url(path)

    def activity(
        self, activity_id: str, *paths: str, tenant: str = "default", **content: Any
    ) -> Produced:
        """An activity with inboxes at these paths. Its body has white space and escapes of its own."""
        inner = {"type": "Create", "actor": "https://a.example/al", "about": activity_id, **content}
        body = json.dumps(inner, indent=1, ensure_ascii=len(activity_id) % 2 == 0).encode()
        value = _record(
            {
                "activity_id": activity_id,
                **({} if tenant == "default" else {"tenant": tenant}),
                "recipients": [{"inbox": self.url(path)} for path in paths],
            },
            body,
        )
        return Produced(activity_id=activity_id, value=value, body=body, paths=paths, tenant=tenant)

    def to_target(self, activity_id: str, *targets: str, tenant: str = "default") -> Produced:
        """An activity for registered targets."""
        body = json.dumps({"type": "Notice", "about": activity_id}).encode()
        recipients = [{"target": target} for target in targets]
        head = {"activity_id": activity_id, "tenant": tenant, "recipients": recipients}
        return Produced(
            activity_id=activity_id, value=_record(head, body), body=body, tenant=tenant
        )

    def raw_body(self, activity_id: str, path: str, body: bytes, content_type: str) -> Produced:
        """An activity record with `body` and `content_type` in place of `activity`."""
        value = {
            "activity_id": activity_id,
            "recipients": [{"inbox": self.url(path)}],
            "body": b64encode(body).decode(),
            "content_type": content_type,
        }
        return Produced(
            activity_id=activity_id,
            value=json.dumps(value).encode(),
            body=body,
            content_type=content_type,
            paths=(path,),
        )

    async def produce(self, *activities: Produced) -> None:
        """Write activities as a Java producer would: keyed, on the partition of their key."""
        await self.write([(a.key, self.home(a), a.value) for a in activities])

    async def write(
        self, records: Iterable[tuple[bytes | None, int, bytes | None]], topic: str | None = None
    ) -> list[int]:
        """Write records of any key, partition and value; give their offsets."""
        to = topic or self.topics.outbox
        sent = [
            await self._producer.send(to, key=key, partition=partition, value=value)
            if key is not None or value is not None
            else await self._producer.send(to, key=b"", partition=partition, value=None)
            for key, partition, value in records
        ]
        return [done.offset for done in await asyncio.gather(*sent)]

    def home(self, activity: Produced) -> int:
        """The partition that owns an activity."""
        return partition_of(activity.key, self.partitions)

    @property
    def partitions(self) -> int:
        """Of every partitioned topic."""
        return int(str(self.overrides.get("partitions", SHORT["partitions"])))

    async def register(self, name: str, path: str, **fields: Any) -> None:
        """Put a target into the registry; not idempotent unless told (C-03)."""
        url = fields.pop("url", None) or self.url(path)
        target = TargetRecord(name=name, tenant=fields.pop("tenant", "default"), url=url, **fields)
        key = f"{target.tenant}/{name}".encode()
        await self.write([(key, 0, encode_target(target))], self.topics.targets)

    # -- what came of it ------------------------------------------------------------------------

    def calls(self, path: str) -> list[Call]:
        """Every call of exactly this path so far."""
        return [call for call in self.receiver.calls if call.path == path]

    def calls_by_path(self) -> Counter[str]:
        """How often each path was called."""
        return Counter(call.path for call in self.receiver.calls)

    def letter(self, activity: Produced) -> Letter:
        """The one delivery that stands in an activity's dead letter."""
        found = self.letters[activity.key.decode()]
        assert found is not None, "the dead letter is a tombstone"
        (only,) = found.deliveries
        return only

    async def until_settled(self, *activities: Produced, receipts: int = 1) -> None:
        """Wait for a receipt of each inbox, or for so many of an activity without inboxes.

        And for the dead letter of one that was given up: it is another topic's record.
        """

        def settled(activity: Produced) -> bool:
            found = self.receipts[activity.activity_id]
            targets = {receipt.target for receipt in found}
            needs_letter = any(receipt.verdict in GIVEN_UP for receipt in found)
            has_letter = activity.key.decode() in self.letters
            return len(targets) >= (len(activity.paths) or receipts) and needs_letter <= has_letter

        await self.until(
            lambda: all(map(settled, activities)),
            "a receipt for each delivery",
            about=lambda: [a.activity_id for a in activities if not settled(a)],
        )

    async def until(
        self,
        holds: Callable[[], object],
        what: str,
        *,
        about: Callable[[], Sequence[str]] = lambda: (),
        within_s: float = PATIENCE_S,
    ) -> None:
        """Wait for a condition; say what is known of the activities `about` where it does not come."""

        async def check() -> object:
            return holds()

        await self.until_true(check, what, about=about, within_s=within_s)

    async def until_true(
        self,
        holds: Callable[[], Awaitable[object]],
        what: str,
        *,
        about: Callable[[], Sequence[str]] = lambda: (),
        within_s: float = PATIENCE_S,
    ) -> None:
        """As `until`, for a condition that must be asked for."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + within_s
        while not await holds():
            self.check()
            dead = [worker for worker in self.workers if worker.died]
            assert not dead, (
                f"{dead[0].name} died while {what} was waited for\n{self.told(about())}"
            )
            if loop.time() > ends:
                raise AssertionError(f"waited {within_s:.0f} s for {what}\n{self.told(about())}")
            await asyncio.sleep(0.03)

    def told(self, activity_ids: Sequence[str] = ()) -> str:
        """The histories of some activities, and the ends of the workers' logs: for a failed test."""
        parts = [f"{len(activity_ids)} activities concerned"] if activity_ids else []
        parts += [self._history(activity_id) for activity_id in activity_ids[:5]]
        parts += [f"--- {worker.name}:\n{worker.tail()}" for worker in self.workers]
        return "\n".join(parts)

    def _history(self, activity_id: str) -> str:
        needle = json.dumps(activity_id)[1:-1].encode()
        calls = [
            c for c in self.receiver.calls if needle in c.body or activity_id.encode() in c.body
        ]
        retries = [r for r in self.retries if r.key.endswith(activity_id.encode())]
        return "\n".join(
            [
                f"--- {activity_id}",
                *(f"call    {c.t:.3f} {c.path} {c.id} {c.attempt} {c.status}" for c in calls),
                *(f"retry   {r.bucket} due {r.due_ms} {r.items[:3]}" for r in retries),
                *(f"receipt {receipt}" for receipt in self.receipts[activity_id]),
                f"letter  {self.letters.get(activity_id)}",
            ]
        )


def _record(head: dict[str, Any], body: bytes) -> bytes:
    """A JSON record whose `activity` is exactly `body`."""
    return json.dumps(head).encode()[:-1] + b', "activity": ' + body + b"}"
