"""What a delivery costs without noise: the bytecodes that a worker runs for it, by function.

    make bench-bytecodes

Timings of a shared machine differ by a tenth from run to run; this differs by a hundredth, and that by how
many deliveries shared a request. One worker, 64 in flight, traced by `sys.settrace` in all its threads; it is
ten times as slow so. What C code does is not in it. Written to docs/bench: `bytecodes.txt`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import threading
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

from streams.__main__ import main as outbox
from tests.bench.proc import BenchError, machine
from tests.bench.single import backlog, told

ROOT: Final = Path(__file__).parents[2]
WARM: Final = 500
"""Deliveries before those that count."""
ENDS_S: Final = 180.0
LARGEST: Final = 40
COUNTS_AS_ONE: Final = "Deliverer._judge"
"""Runs once for each delivery here, whose call is always answered."""
_WITHIN: Final = re.compile(r"^.*/(?:(?:site-packages|python3\.\d+)/|(?=streams/))")


def main() -> int:
    """Count; 0 when the file is written."""
    arguments = argparse.ArgumentParser(prog="make bench-bytecodes", description=__doc__)
    arguments.add_argument("--deliveries", type=int, default=3_000, help="that count")
    arguments.add_argument("--out", type=Path, default=ROOT / "docs" / "bench")
    arguments.add_argument("--traced", type=Path, help=argparse.SUPPRESS)
    chosen = arguments.parse_args()
    if chosen.traced is not None:
        return Tracer(chosen.traced, chosen.deliveries).run_worker()
    return told(_count(chosen.deliveries, chosen.out), missing="count")


class Tracer:
    """Traces the worker in this very process, and writes what it counted of some deliveries."""

    def __init__(self, file: Path, deliveries: int) -> None:
        self._file = file
        self._wanted = deliveries
        self._deliveries = -WARM
        self._bytecodes: Counter[CodeType] = Counter()

    def run_worker(self) -> int:
        """As `outbox worker` of this environment."""
        threading.settrace(self._on_call)
        sys.settrace(self._on_call)
        sys.argv = ["outbox", "worker"]
        outbox()
        return 0

    def _on_call(self, frame: FrameType, _event: str, _argument: object) -> Any:
        if self._deliveries >= self._wanted:
            return None
        code = frame.f_code
        if code.co_qualname == COUNTS_AS_ONE:
            self._deliveries += 1
            if self._deliveries == 0:
                self._bytecodes.clear()
            elif self._deliveries == self._wanted:
                self._write()
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self._on_bytecode

    def _on_bytecode(self, frame: FrameType, event: str, _argument: object) -> Any:
        if event == "opcode":
            self._bytecodes[frame.f_code] += 1
        return self._on_bytecode

    def _write(self) -> None:
        named: Counter[str] = Counter()
        for code, count in self._bytecodes.copy().items():
            named[f"{code.co_qualname} ({_WITHIN.sub('', code.co_filename)})"] += count
        part = self._file.with_suffix(".part")
        part.write_text(json.dumps(named))
        part.replace(self._file)


async def _count(deliveries: int, out: Path) -> str:
    await asyncio.to_thread(out.mkdir, parents=True, exist_ok=True)
    async with backlog(2 * WARM + deliveries) as (suite, _place, world):
        file = world.stage.folder / "bytecodes.json"
        suite.say(f"tracing {WARM + deliveries:,} deliveries")
        worker = world.start(command=_command(file, deliveries))
        for _ in range(int(ENDS_S / 0.2)):
            if await asyncio.to_thread(file.exists):
                break
            worker.check()
            await asyncio.sleep(0.2)
        else:
            raise BenchError(f"not done after {ENDS_S:.0f} s:\n{worker.tail()}")
        worker.kill()  # what it would do until its end is of no interest
        counted = json.loads(await asyncio.to_thread(file.read_text))
    shares = _shares(counted, deliveries)
    await asyncio.to_thread((out / "bytecodes.txt").write_text, shares)
    return shares


def _command(file: Path, deliveries: int) -> tuple[str, ...]:
    traced = (sys.executable, "-m", "tests.bench.bytecodes", "--traced", str(file))
    return (*traced, "--deliveries", str(deliveries))


def _shares(counted: dict[str, int], deliveries: int) -> str:
    """The total, and the largest shares by file and by function, each per delivery."""
    files: Counter[str] = Counter()
    for function, count in counted.items():
        files[function.rpartition(" (")[2].rstrip(")")] += count
    about = machine() | {"deliveries": deliveries}
    head = [f"{name:16} {value}" for name, value in about.items()]
    total = f"bytecodes_per_delivery={sum(counted.values()) / deliveries:.0f}"
    return "\n".join(
        [
            *head,
            *_list("By file", files, deliveries),
            *_list("By function", Counter(counted), deliveries),
            "",
            total,
            "",
        ]
    )


def _list(title: str, counted: Counter[str], deliveries: int) -> list[str]:
    lines = [f"{count / deliveries:7.1f}  {name}" for name, count in counted.most_common(LARGEST)]
    return ["", title, "-" * len(title), *lines]


if __name__ == "__main__":
    sys.exit(main())
