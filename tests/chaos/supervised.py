"""One worker process of a round, and who starts it again."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]


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

    @property
    def clock(self) -> Path:
        """Holds by how many milliseconds its wall clock is wrong; read at each look at the clock."""
        return self.folder / f"{self.name}.clock"

    def set_clock(self, offset_ms: int) -> None:
        """Set its wall clock, while it runs or before it is started."""
        whole = self.clock.with_suffix(".new")
        whole.write_text(str(offset_ms))
        whole.replace(self.clock)

    def start(self) -> None:
        """Start its process."""
        self.starts += 1
        self.began.set()
        self.expects_end = self.is_frozen = False
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.worker"],
                cwd=ROOT,
                env=self.environment
                | {"OUTBOX_DATA_DIR": str(self.data_dir), "CHAOS_CLOCK": str(self.clock)},
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
