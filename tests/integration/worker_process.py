"""One `outbox worker` process of a black-box test: its signals, its log, its pages."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

ENDS_WITHIN_S = 40.0
"""How long an end is waited for; bounds a failure."""


@dataclass(slots=True, kw_only=True)
class WorkerProcess:
    """Started by being made. Its standard error and output go to `log`."""

    name: str
    environment: dict[str, str]
    log: Path
    process: subprocess.Popen[bytes] = field(init=False)
    may_end: bool = False
    """Whether somebody asked it to, or expects it to."""

    def __post_init__(self) -> None:
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "streams", "worker"],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    @property
    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return self.process.poll() is not None

    @property
    def died(self) -> bool:
        """Whether it ended by itself."""
        return self.has_ended and not self.may_end

    def kill(self) -> None:
        """kill -9, by pid."""
        self.may_end = True
        self.process.kill()
        self.process.wait()

    def terminate(self) -> None:
        """Ask it to stop."""
        self.may_end = True
        self.process.send_signal(signal.SIGTERM)

    async def ended(self, within_s: float = ENDS_WITHIN_S) -> int:
        """Wait for its end; give its exit code."""
        self.may_end = True
        try:
            return await asyncio.to_thread(self.process.wait, within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"{self.name} has not ended after {within_s:.0f} s:\n{self.tail()}"
            ) from None

    async def end(self) -> None:
        """Kill it where it still runs, and reap it."""
        if not self.has_ended:
            self.process.kill()
        await asyncio.to_thread(self.process.wait)

    # -- its log --------------------------------------------------------------------------------

    @property
    def output(self) -> str:
        """All that it printed."""
        return self.log.read_text(errors="replace")

    def tail(self, lines: int = 25) -> str:
        """The end of its log."""
        return "\n".join(line[:400] for line in self.output.splitlines()[-lines:])

    def events(self, name: str) -> list[dict[str, Any]]:
        """Its structured log lines of this event."""
        mark = json.dumps(name)
        return [
            json.loads(line)
            for line in self.output.splitlines()
            if line.startswith("{") and mark in line and json.loads(line).get("event") == name
        ]

    @property
    def port(self) -> int | None:
        """Where its pages are; None while it does not listen."""
        found = self.events("health.listening")
        return int(found[-1]["port"]) if found else None

    # -- its pages ------------------------------------------------------------------------------

    async def page(self, path: str) -> tuple[int, str]:
        """Status and text of one of its pages; status 0 where nobody answers."""
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"http://127.0.0.1:{self.port}{path}") as answer,
            ):
                return answer.status, await answer.text()
        except aiohttp.ClientConnectionError:
            return 0, ""

    async def metric(self, name: str) -> float:
        """A metric without labels."""
        _, text = await self.page("/metrics")
        found = [line.split()[1] for line in text.splitlines() if line.split()[0] == name]
        assert found, f"no metric {name}"
        return float(found[0])

    async def is_ready(self) -> bool:
        """Whether it leads all that it was assigned."""
        return (await self.page("/readyz"))[0] == 200
