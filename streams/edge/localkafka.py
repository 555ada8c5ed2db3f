"""A local Apache Kafka of one or three nodes: its own jars, loopback ports, no Docker.

Every call blocks; from a coroutine use `asyncio.to_thread`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Final

from streams.edge.kafka_jars import cache_dir, fetch, java, locked
from streams.edge.kafka_jars.nodes import (
    Node,
    bootstrap,
    broker_ports,
    is_free,
    new_id,
    plan,
    properties,
    quorum_options,
)
from streams.edge.kafka_jars.readiness import serves
from streams.errors import LocalKafkaError

__all__ = ["DEFAULT_PORT", "LocalKafka", "Node", "is_free"]

DEFAULT_PORT: Final = 9092
"""Where `outbox kafka up` listens unless told otherwise: the default of OUTBOX_BROKERS."""

START_S: Final = 90.0
"""When a start counts as failed: the usual 2 to 6 s, on a machine that is far busier."""

_POLL_S: Final = 0.05

_TAKEN: Final = "Address already in use"
"""What a node's log says when it lost its port between our look and its start."""


class LocalKafka:
    """One local cluster, known by its folder, so that another process can end it or ask it.

    Args:
        data_dir: Holds everything of this cluster: records, properties, logs, pid files.
        brokers: How many nodes, 1 or 3.
        port: Of the first node, the others follow; 0: those used last, else free ones.
        jars_dir: Where Kafka's jars are kept; `kafka_jars.cache_dir()` unless given.
        say: Is told in a line what takes long.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        brokers: int = 1,
        port: int = 0,
        jars_dir: Path | None = None,
        say: Callable[[str], None] = lambda _line: None,
    ) -> None:
        if brokers not in (1, 3):
            raise LocalKafkaError(f"a local Kafka has 1 or 3 brokers, not {brokers}")
        self.data_dir = data_dir.resolve()
        self.brokers = brokers
        self.port = port
        self._jars_dir = (jars_dir or cache_dir()).resolve()
        self._say = say

    @property
    def bootstrap(self) -> str | None:
        """`HOST:PORT[,...]` as the folder records it, running or not; None before any `up`."""
        return bootstrap(self.nodes()) or None

    def nodes(self) -> tuple[Node, ...]:
        """The nodes that the folder records, running or not."""
        try:
            told = json.loads((self.data_dir / "cluster.json").read_text())
        except FileNotFoundError:
            return ()
        return tuple(Node(**node) for node in told)

    def up(self) -> str:
        """Start what does not run and return the bootstrap once everything serves. Idempotent.

        Raises:
            LocalKafkaError: naming what is missing, taken or wrong, with the end of a node's log.
        """
        with self._lock():
            nodes = self.nodes()
            self._check_fits(nodes)
            if not nodes:
                return bootstrap(self._create())
            if not self.node_pids():
                nodes = self._moved(nodes)
            self._run(nodes)
            return bootstrap(nodes)

    def down(self, *, wait_s: float = 15.0) -> bool:
        """End every node, by SIGKILL where SIGTERM took longer than `wait_s`. Idempotent.

        Returns whether any node ran. What was written stays, for the next `up`.
        """
        if not self.data_dir.exists():
            return False
        with self._lock():
            running = list(self.node_pids())
            self._end(running, wait_s=wait_s)
        return bool(running)

    def node_pids(self) -> dict[int, int]:
        """The process id of each node that runs, by node number (from 1)."""
        found = ((node.number, self._process(node.number)) for node in self.nodes())
        return {number: process.pid for number, process in found if process}

    def kill(self, number: int) -> None:
        """End one node as a crash would (SIGKILL) and return when it is gone."""
        process = self._running(number)
        process.send(signal.SIGKILL)
        process.wait(wait_s=START_S)

    def freeze(self, number: int) -> None:
        """Stop one node where it stands (SIGSTOP) until `thaw`; its connections stay open."""
        self._running(number).send(signal.SIGSTOP)

    def thaw(self, number: int) -> None:
        """Let a frozen node go on (SIGCONT)."""
        self._running(number).send(signal.SIGCONT)

    def restart(self, number: int) -> None:
        """End one node where it runs, start it, and return when the whole cluster serves."""
        with self._lock():
            self._end([number], wait_s=START_S)
        self.up()

    def log_end(self, number: int, lines: int = 12) -> str:
        """The last lines of a node's log, stack frames left out."""
        log = self._dir(number) / "node.log"
        told = log.read_text(errors="replace").splitlines() if log.exists() else []
        return "\n".join([line for line in told if not line.startswith("\t")][-lines:])

    def _lock(self) -> AbstractContextManager[None]:
        """One `up` or `down` at a time."""
        return locked(self.data_dir / "lock")

    def _dir(self, number: int) -> Path:
        return self.data_dir / f"node-{number}"

    def _process(self, number: int) -> java.Process | None:
        return java.recall(self._dir(number) / "pid")

    def _running(self, number: int) -> java.Process:
        process = self._process(number)
        if process is None:
            raise LocalKafkaError(f"node {number} of {self.data_dir} does not run")
        return process

    def _check_fits(self, nodes: Sequence[Node]) -> None:
        """Refuse to be another cluster than the one in the folder, or in another place."""
        if nodes and len(nodes) != self.brokers:
            raise LocalKafkaError(
                f"{self.data_dir} holds a Kafka of {len(nodes)} node(s), not {self.brokers}:"
                " choose another --data, or `outbox kafka down` and remove the folder"
            )
        if nodes and self.port not in (0, nodes[0].port) and self.node_pids():
            raise LocalKafkaError(
                f"it already serves at {bootstrap(nodes)}: `outbox kafka down` before it can"
                f" move to port {self.port}"
            )

    def _create(self) -> tuple[Node, ...]:
        """Make a new cluster; with other ports where one of our choice was taken meanwhile."""
        chances = 1 if self.port else 3
        for chance in range(1, chances + 1):
            nodes = plan(self.brokers, self.port)
            try:
                self._format(nodes)
                self._save(nodes)
                self._run(nodes)
            except BaseException as error:
                self._forget(nodes)
                if _TAKEN not in str(error) or chance == chances:
                    raise
            else:
                return nodes
        raise AssertionError("the last chance returns or raises")

    def _forget(self, nodes: Sequence[Node]) -> None:
        """Remove a cluster that never served."""
        (self.data_dir / "cluster.json").unlink(missing_ok=True)
        for node in nodes:
            shutil.rmtree(self._dir(node.number), ignore_errors=True)

    def _moved(self, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        """Give the brokers other ports where the call asks for it or the recorded ones are taken.

        The controllers' ports stay: the quorum's own records name them.
        """
        if not all(is_free(node.controller_port) for node in nodes):
            ports = ", ".join(str(node.controller_port) for node in nodes)
            raise LocalKafkaError(
                f"another program took a port by which the nodes in {self.data_dir} know each"
                f" other ({ports}): end it, or remove the folder"
            )
        ports_now = [node.port for node in nodes]
        if self.port == 0 and all(map(is_free, ports_now)):
            return nodes
        chosen = broker_ports(len(nodes), self.port)
        nodes = tuple(replace(node, port=port) for node, port in zip(nodes, chosen, strict=True))
        self._save(nodes)
        return nodes

    def _save(self, nodes: Sequence[Node]) -> None:
        """Write down the cluster, and what each node starts with."""
        for node in nodes:
            folder = self._dir(node.number)
            (folder / "properties").write_text(properties(node, nodes, folder / "records"))
        whole = self.data_dir / "cluster.json.new"
        whole.write_text(json.dumps([asdict(node) for node in nodes], indent=1))
        whole.replace(self.data_dir / "cluster.json")

    def _format(self, nodes: Sequence[Node]) -> None:
        """Prepare the log directories, as Kafka asks for before a first start."""
        tool = [*self._java("-XX:TieredStopAtLevel=1"), "kafka.tools.StorageTool", "format"]
        options = [*quorum_options(nodes), "-t", new_id()]
        running = []
        for node in nodes:
            folder = self._dir(node.number)
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            file = folder / "properties"
            file.write_text(properties(node, nodes, folder / "records"))
            running.append(_piped([*tool, *options, "-c", str(file)]))
        for child in running:
            told, _ = child.communicate()
            if child.returncode != 0:
                raise LocalKafkaError(f"Kafka's log directory could not be formatted:\n{told}")

    def _run(self, nodes: Sequence[Node]) -> None:
        """Start the nodes that do not run, wait until all serve; on failure end those again."""
        started: list[int] = []
        try:
            for node in nodes:
                if self._process(node.number) is None:
                    started.append(node.number)
                    self._start(node.number)
            self._await_service(nodes)
        except BaseException:
            self._end(started, wait_s=0.0)
            raise

    def _start(self, number: int) -> None:
        """Start one node. The very first leaves an archive of its loaded classes when it ends well.

        Measured: a start takes 1.9 s with that archive and 3.5 s without; writing it takes 2.5 s.
        """
        folder = self._dir(number)
        leave = []
        if number == 1 and not self._archive.exists():
            leave = [f"-XX:ArchiveClassesAtExit={folder / 'classes.jsa'}"]
        java.start(
            [*self._java(*leave), "kafka.Kafka", str(folder / "properties")],
            log=folder / "node.log",
            pid_file=folder / "pid",
        )

    def _await_service(self, nodes: Sequence[Node]) -> None:
        """Return once every node accepts and the cluster serves."""
        deadline = time.monotonic() + START_S
        while not serves(nodes):
            for node in nodes:
                if self._process(node.number) is None:
                    raise LocalKafkaError(
                        f"node {node.number} ended while it started; its log ends with:\n"
                        f"{self.log_end(node.number)}"
                    )
            if time.monotonic() >= deadline:
                raise LocalKafkaError(
                    f"Kafka does not serve after {START_S:.0f} s; the log of node 1 ends with:\n"
                    f"{self.log_end(1)}"
                )
            time.sleep(_POLL_S)

    def _end(self, numbers: Sequence[int], *, wait_s: float) -> None:
        """End these nodes together: SIGTERM, and SIGKILL for those that outlast `wait_s`."""
        running = {n: process for n in numbers if (process := self._process(n))}
        for process in running.values():
            process.send(signal.SIGTERM)
            process.send(signal.SIGCONT)  # a frozen one cannot act on the SIGTERM
        deadline = time.monotonic() + wait_s
        for number, process in running.items():
            left = self._dir(number) / "classes.jsa"
            if not process.wait(wait_s=max(0.0, deadline - time.monotonic())):
                process.send(signal.SIGKILL)
                process.wait(wait_s=START_S)
                left.unlink(missing_ok=True)  # half written
            if left.exists():
                self._share(left)

    def _share(self, left: Path) -> None:
        """Put a class archive beside the jars, whole or not at all, for all starts to come."""
        near = self._archive.with_suffix(f".{os.getpid()}")
        shutil.copyfile(left, near)
        near.replace(self._archive)
        left.unlink()

    @cached_property
    def _jars(self) -> Path:
        return fetch(self._jars_dir, self._say)

    @property
    def _archive(self) -> Path:
        return self._jars.with_suffix(".jsa")

    @cached_property
    def _executable(self) -> str:
        return java.find_java()

    def _java(self, *options: str) -> list[str]:
        """How every Java command of ours begins."""
        shared = [f"-XX:SharedArchiveFile={self._archive}"] if self._archive.exists() else []
        return [
            self._executable,
            *("-Xmx512m", "-XX:+UseSerialGC", "-Xlog:disable"),
            *(*shared, *options),
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            *("-cp", f"{self._jars}/*"),
        ]


def _piped(command: Sequence[str]) -> subprocess.Popen[str]:
    """Start a short command whose output is read when it ended."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
