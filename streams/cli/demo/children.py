"""The demo's processes: each in a session of its own, known by its number, ended by it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from streams.errors import StreamsError

STOP_S: Final = 15.0
"""How long a child may take to end after SIGTERM; the worker waits for calls in flight."""


class DemoError(StreamsError):
    """The demo could not be played to its end."""


class Child:
    """One `outbox` command as a process, started as often as asked for.

    In a session of its own, so that Ctrl-C reaches the demo alone, which ends its children in order.
    """

    def __init__(self, name: str, arguments: Sequence[str], *, log: Path) -> None:
        self.name = name
        self.log = log
        self._command = [sys.executable, "-m", "streams", *arguments]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; what it writes is added to its log."""
        with self.log.open("ab") as out:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its process id; 0 where it was never started."""
        return 0 if self._process is None else self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it was started and did not end."""
        return self._process is not None and self._process.poll() is None

    def check(self) -> None:
        """Make sure that it runs.

        Raises:
            DemoError: it ended by itself.
        """
        if self._process is not None and self._process.poll() is not None:
            raise DemoError(f"the {self.name} ended with {self._process.returncode}")

    def kill(self) -> None:
        """End it as a crash would (SIGKILL) and return when it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> int | None:
        """End it by SIGTERM, or SIGKILL where that takes too long; give its exit code."""
        if self._process is None:
            return None
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._process.returncode

    def tail(self, lines: int = 15) -> list[str]:
        """The last lines of its log."""
        if not self.log.exists():
            return []
        return self.log.read_text(errors="replace").splitlines()[-lines:]


def is_alive(pid: int) -> bool:
    """Whether a process of this number runs: what `ps` would say."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
