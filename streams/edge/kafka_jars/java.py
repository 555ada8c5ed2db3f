"""Java processes that outlive the one which started them, and are never mistaken for others."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from streams.errors import LocalKafkaError

OLDEST: Final = 17
"""Apache Kafka 4 brokers need Java 17."""

_POLL_S: Final = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process of ours.

    Attributes:
        pid: Its number, which the kernel gives to another process once it ended.
        started: When it started and in which boot: with `pid` the same for no other process.
    """

    pid: int
    started: str

    @property
    def is_running(self) -> bool:
        """Whether this very process runs, stopped by a signal included."""
        _reap(self.pid)
        return _started(self.pid) == self.started

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, unless it ended."""
        if not self.is_running:
            return
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return

    def wait(self, *, wait_s: float) -> bool:
        """Wait until it ended, at most `wait_s` seconds; say whether it did."""
        deadline = time.monotonic() + wait_s
        while self.is_running:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_S)
        return True


def find_java() -> str:
    """Return the path of a Java of at least 17: `$JAVA_HOME/bin/java`, else the one on PATH.

    Raises:
        LocalKafkaError: none is there, or it is older.
    """
    advice = (
        "apt-get install openjdk-17-jre-headless,"
        " or set OUTBOX_BROKERS to a Kafka that runs already"
    )
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(str(Path(home) / "bin" / "java")) if home else shutil.which("java")
    if java is None:
        where = "in JAVA_HOME" if home else "on PATH"
        raise LocalKafkaError(f"Java {OLDEST} or newer is needed, none is {where}: {advice}")
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(\d+)', told.stderr)
    if found is None or int(found[1]) < OLDEST:
        version = found[1] if found else "of an unknown version"
        raise LocalKafkaError(
            f"Java {OLDEST} or newer is needed, {java} is Java {version}: {advice}"
        )
    return java


def start(command: Sequence[str], *, log: Path, pid_file: Path) -> Process:
    """Start `command` in a session of its own, so that Ctrl-C here does not reach it.

    What it writes is appended to `log`; who it is goes to `pid_file`.
    """
    with log.open("ab") as out:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    # It may be told to end by another process than this one, so nobody waits for it as a child.
    child.returncode = 0
    process = Process(pid=child.pid, started=_started(child.pid) or "ended")
    pid_file.write_text(json.dumps(asdict(process)))
    return process


def recall(pid_file: Path) -> Process | None:
    """Return the process that `pid_file` speaks of where it still runs, else None."""
    try:
        process = Process(**json.loads(pid_file.read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        # A torn file speaks of no process: it is written in one go right after the start.
        return None
    return process if process.is_running else None


def _reap(pid: int) -> None:
    """Let the kernel forget `pid` where it is an ended child of this process."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return


def _started(pid: int) -> str | None:
    """Return what tells this process from a later one of the same number; None where it ended."""
    if not Path("/proc/self/stat").exists():
        return _started_by_ps(pid)
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name, in parentheses, may hold spaces and parentheses itself.
    fields = stat.rpartition(")")[2].split()
    if fields[0] in "ZX" and not _has_threads(pid):
        return None
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{fields[19]}"


def _has_threads(pid: int) -> bool:
    """Whether threads of a killed process are still ending.

    Measured: a JVM's first thread is a zombie while others hold its listening sockets for some tens
    of milliseconds; a start in that time would take the old sockets for the new node.
    """
    try:
        return len(list(Path(f"/proc/{pid}/task").iterdir())) > 1
    except (FileNotFoundError, ProcessLookupError):
        return False


def _started_by_ps(pid: int) -> str | None:
    """The same where there is no /proc (macOS)."""
    command = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    state, _, began = told.stdout.strip().partition(" ")
    return began.strip() if began and not state.startswith("Z") else None
