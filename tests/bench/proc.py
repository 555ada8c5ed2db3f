"""What the operating system says of processes: CPU seconds, memory, and the machine itself."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class BenchError(Exception):
    """A figure could not be measured; the message says why."""


def cpu_s(pids: Iterable[int]) -> float:
    """CPU seconds, user and system, that these processes have used since they started.

    From `/proc/PID/stat`; the kernel derives it from the exact run time and shows it in ticks of 10 ms.
    A process that is gone counts as 0.
    """
    total = 0.0
    for pid in pids:
        fields = _stat(pid)
        if fields:
            total += (int(fields[11]) + int(fields[12])) * _TICK_S
    return total


def rss_bytes(pid: int) -> int:
    """Resident memory of a process; 0 when it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    except (FileNotFoundError, ProcessLookupError):
        return 0


def _stat(pid: int) -> list[str]:
    """The fields of `/proc/PID/stat` from the third (state) on; none when it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return text.rpartition(")")[2].split()


def machine() -> dict[str, str]:
    """The machine, and the versions of what is measured on it."""
    packages = ("aiokafka", "faust-streaming", "aiohttp", "httptools", "uvloop", "rocksdict")
    memory_kib = int(_line(Path("/proc/meminfo"), "MemTotal").split()[0])
    return {
        "cpu": f"{os.cpu_count()} x {_line(Path('/proc/cpuinfo'), 'model name')}",
        "memory": f"{memory_kib / 1024**2:.1f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "java": _first_line(["java", "-version"]),
        "commit": _first_line(["git", "describe", "--always", "--dirty", "--abbrev=10"]),
        "load before": " ".join(f"{load:.2f}" for load in os.getloadavg()),
        **{name: version(name) for name in packages},
    }


def _line(file: Path, name: str) -> str:
    """What a `name : value` file says of `name`."""
    for line in file.read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return "0 unknown"


def _first_line(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    lines = (done.stdout + done.stderr).splitlines()
    return lines[0].strip() if lines and done.returncode == 0 else "unknown"
