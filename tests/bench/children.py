"""Processes that a run starts: each ended by its pid, whatever happens."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.bench.proc import BenchError

START_S = 120.0
"""How long a start is waited for, on a busy machine too."""

STOP_S = 45.0
"""How long a clean end is waited for before the process is killed."""


class Child:
    """A process whose standard output and error go to `log`; started by being made."""

    def __init__(
        self, name: str, command: Sequence[str], *, log: Path, environment: Mapping[str, str]
    ) -> None:
        self.name = name
        self.log = log
        self._read = 0
        self._lines: list[str] = []
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                command,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def check(self) -> None:
        """See that it runs.

        Raises:
            BenchError: it has ended; with the end of its log.
        """
        if self._process.poll() is not None:
            raise BenchError(
                f"{self.name} ended by itself with {self._process.returncode}:\n{self.tail()}"
            )

    def tail(self, lines: int = 15) -> str:
        """The end of its log."""
        text = self.log.read_text(errors="replace")
        return "\n".join(line[:300] for line in text.splitlines()[-lines:])

    async def end(self) -> None:
        """SIGTERM, and SIGKILL where that takes too long."""
        if self._process.poll() is None:
            self._process.terminate()
        try:
            await asyncio.to_thread(self._process.wait, STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """SIGKILL, and reap it."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()


class Service(Child):
    """One process of `outbox` that logs and answers over HTTP."""

    role = ""
    """The command."""
    listening = ""
    """The event that names its port."""

    def __init__(
        self,
        name: str,
        environment: Mapping[str, str],
        log: Path,
        *,
        command: Sequence[str] | None = None,
    ) -> None:
        command = command or (sys.executable, "-m", "streams", self.role)
        super().__init__(name, command, log=log, environment=environment)

    async def event(self, name: str, within_s: float = START_S) -> dict[str, Any]:
        """Its first log line of this event, once it is there.

        Raises:
            BenchError: it ended, or the line has not come in time.
        """
        mark = json.dumps(name)
        loop = asyncio.get_running_loop()
        ends = loop.time() + within_s
        while True:
            for line in self._lines_so_far():
                if mark in line:
                    told: dict[str, Any] = json.loads(line)
                    if told.get("event") == name:
                        return told
            self.check()
            if loop.time() > ends:
                raise BenchError(f"{self.name}: no {name} within {within_s:.0f} s:\n{self.tail()}")
            await asyncio.sleep(0.02)

    def _lines_so_far(self) -> list[str]:
        """The first lines of the log, no more than 1,000: what start-up says."""
        if len(self._lines) < 1_000:
            with self.log.open("rb") as file:
                file.seek(self._read)
                raw = file.read()
            whole = raw[: raw.rfind(b"\n") + 1]
            self._read += len(whole)
            self._lines += [x for x in whole.decode(errors="replace").splitlines() if x[:1] == "{"]
        return self._lines

    async def page(self, path: str) -> tuple[int, str]:
        """Status and text of one of its pages; status 0 where nobody answers."""
        return await asyncio.to_thread(_get, f"{await self.address()}{path}")

    async def address(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{(await self.event(self.listening))['port']}"

    async def metric(self, name: str) -> float:
        """The sum of a metric over its labels."""
        _, text = await self.page("/metrics")
        found = [
            float(line.rpartition(" ")[2])
            for line in text.splitlines()
            if line.split("{")[0].split(" ")[0] == name
        ]
        return sum(found)

    async def ready(self, within_s: float = START_S) -> None:
        """Wait until it leads all that it was assigned.

        Raises:
            BenchError: it ended, or is not ready in time.
        """
        loop = asyncio.get_running_loop()
        ends = loop.time() + within_s
        while (await self.page("/readyz"))[0] != 200:
            self.check()
            if loop.time() > ends:
                raise BenchError(f"{self.name} is not ready after {within_s:.0f} s:\n{self.tail()}")
            await asyncio.sleep(0.1)


class Worker(Service):
    """One `outbox worker`."""

    role = "worker"
    listening = "health.listening"


class Api(Service):
    """One `outbox api`."""

    role = "api"
    listening = "api.listening"


def clean_environment(**variables: object) -> dict[str, str]:
    """The environment of a child: the caller's without settings of ours, and these."""
    kept = {k: v for k, v in os.environ.items() if not k.upper().startswith("OUTBOX_")}
    return kept | {f"OUTBOX_{k.upper()}": str(v) for k, v in variables.items()}


def _get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310  # a worker of ours
            return int(answer.status), answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""
    except OSError:
        return 0, ""
