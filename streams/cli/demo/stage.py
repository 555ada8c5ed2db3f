"""Where the demo plays: a folder, a Kafka, a receiver, a worker, an API, and their end, whatever happens."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from aiokafka.admin import AIOKafkaAdminClient

from streams import topics
from streams.cli.demo.children import Child, DemoError, is_alive
from streams.cli.demo.interrupts import run
from streams.edge.cluster import explained
from streams.edge.localkafka import LocalKafka
from streams.errors import StreamsError
from streams.settings import Settings, load

PARTITIONS: Final = 8

_KEPT: Final = ("OUTBOX_BROKERS", "OUTBOX_SECURITY_PROTOCOL", "OUTBOX_SASL_", "OUTBOX_TLS_")
"""Settings of the caller's own that say how to reach a cluster; all others are the demo's."""

_POLICY: Final = {
    "MAX_ATTEMPTS": "5",
    "FIRST_DELAY_MS": "500",
    "MAX_DELAY_MS": "4000",
    "JITTER_MS": "200",
    "TIMEOUT_MS": "3000",
    "LEASE_MS": "8000",
}
"""Short enough to see a delivery given up within half a minute; what it does is what 24 h would do."""

_LISTENING_S: Final = 30.0


class Stage:
    """Everything that the demo starts.

    Args:
        keeps: Whether the folder stays: logs, the receiver's calls, Kafka's records.
        tell: Is told in a line what goes on.
    """

    def __init__(self, *, keeps: bool, tell: Callable[[str], None]) -> None:
        self._keeps = keeps
        self._tell = tell
        self.folder = Path(tempfile.mkdtemp(prefix="outbox-demo-"))
        self.calls = self.folder / "calls.jsonl"
        self.receiver = Child(
            "receiver", ["receiver", "--log", str(self.calls)], log=self.folder / "receiver.log"
        )
        self.worker = Child("worker", ["worker"], log=self.folder / "worker.log")
        self.api = Child("api", ["api"], log=self.folder / "api.log")
        self.health = f"127.0.0.1:{_free_port()}"
        self._kafka: LocalKafka | None = None
        self._settings: Settings | None = None
        self._pids: set[int] = set()

    def set_up(self) -> tuple[Settings, str]:
        """Start Kafka unless OUTBOX_BROKERS names one, make the topics, start the receiver.

        Returns the settings that all share, and the receiver's URL.

        Raises:
            StreamsError: what could not be started, and why.
        """
        given = os.environ.get("OUTBOX_BROKERS")
        if given:
            self._tell(f"Kafka at {given}: that of OUTBOX_BROKERS")
        else:
            self._kafka = LocalKafka(self.folder / "kafka", say=self._tell)
            given = self._kafka.up()
            self._tell(f"Kafka started at {given}")
        settings = self._settings = self._configure(given)
        made = run(lambda: topics.apply(settings))
        self._tell(f"{len(made)} topics made, {PARTITIONS} partitions each, {settings.prefix}*")
        self.start(self.receiver)
        url = self._receiver_url()
        self._tell(f"receiver listens at {url}")
        return settings, url

    def start(self, child: Child) -> None:
        """Start one of the processes."""
        child.start()
        self._pids.add(child.pid)

    def tear_down(self) -> list[str]:
        """End every process and remove the folder. Say what is left; nothing should be."""
        self.api.stop()
        self.worker.stop()
        self.receiver.stop()
        left = [f"process {pid} still runs" for pid in sorted(self._pids) if is_alive(pid)]
        if self._kafka is not None:
            self._kafka.down(wait_s=5.0)
            left += [f"Kafka still runs: process {pid}" for pid in self._kafka.node_pids().values()]
        elif self._settings is not None and not self._keeps:
            left += asyncio.run(_remove_topics(self._settings))
        if not self._keeps:
            shutil.rmtree(self.folder, ignore_errors=True)
        return left

    def tails(self) -> Iterator[str]:
        """How the logs end, for when something failed."""
        for child in (self.worker, self.api, self.receiver):
            for line in child.tail():
                yield f"{child.name}: {line}"
        if self._kafka is not None and self._kafka.nodes():
            yield from (f"kafka: {line}" for line in self._kafka.log_end(1).splitlines())

    def _configure(self, brokers: str) -> Settings:
        """Set the environment that this process and its children read."""
        for name in [name for name in os.environ if name.upper().startswith("OUTBOX_")]:
            if not name.upper().startswith(_KEPT):
                del os.environ[name]
        policies = ("ACTIVITY", "NOTIFICATION")
        os.environ |= {
            "OUTBOX_BROKERS": brokers,
            "OUTBOX_PREFIX": f"demo-{secrets.token_hex(4)}.",
            "OUTBOX_PARTITIONS": str(PARTITIONS),
            "OUTBOX_REPLICATION": "1",
            "OUTBOX_DATA_DIR": str(self.folder / "worker"),
            "OUTBOX_WORKER_ID": "demo",
            "OUTBOX_ALLOW_NETWORKS": "127.0.0.0/8",
            "OUTBOX_HEALTH_ADDRESS": self.health,
            **_api_settings(),
            **{f"OUTBOX_POLICY_{p}_{name}": v for p in policies for name, v in _POLICY.items()},
        }
        return load()

    def _receiver_url(self) -> str:
        deadline = time.monotonic() + _LISTENING_S
        while time.monotonic() < deadline:
            self.receiver.check()
            for line in self.receiver.tail():
                if line.startswith("listening="):
                    return f"http://{line.removeprefix('listening=')}"
            time.sleep(0.05)
        raise DemoError("the receiver does not say where it listens")


def _api_settings() -> dict[str, str]:
    """An API on this machine only, with a token that nobody else knows."""
    token = secrets.token_urlsafe(24)
    known = {
        "token": token,
        "subject": "demo",
        "tenants": ["default"],
        "scopes": ["notification:read", "notification:admin"],
    }
    return {
        "OUTBOX_API_ADDRESS": f"127.0.0.1:{_free_port()}",
        "OUTBOX_API_TOKENS": json.dumps([known]),
        "OUTBOX_API_TOKEN": token,
    }


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


async def _remove_topics(settings: Settings) -> list[str]:
    """Delete the topics of the demo's own, just made prefix from a cluster that is not its own."""
    options = settings.kafka_options()
    try:
        with explained(options):
            admin = AIOKafkaAdminClient(**options)
            try:
                await admin.start()
                await admin.delete_topics([topic.name for topic in topics.wanted(settings.prefix)])
            finally:
                await admin.close()
    except StreamsError as error:
        return [f"the topics {settings.prefix}* are left: {error}"]
    return []
