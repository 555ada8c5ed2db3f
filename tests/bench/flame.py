"""Where a delivery's CPU goes: a flame graph and the largest shares, by py-spy.

    make bench-profile

One worker, 64 in flight, a backlog that outlasts the recording; recorded only while it is at work. Written
to docs/bench: `profile.svg`, and `profile.txt` with the ten largest shares.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tests.bench.children import START_S, Worker, clean_environment
from tests.bench.proc import BenchError, machine
from tests.bench.single import backlog, told
from tests.bench.watch import Watch

ROOT: Final = Path(__file__).parents[2]
LARGEST: Final = 10
RATE: Final = 250
"""Samples a second."""

PER_S_MOST: Final = 8_000
"""The backlog lasts even where a worker is twice as quick as it ever was."""


def main() -> int:
    """Record for some seconds; 0 when both files are written."""
    arguments = argparse.ArgumentParser(prog="make bench-profile", description=__doc__)
    arguments.add_argument("--seconds", type=int, default=8, help="of each of the two recordings")
    arguments.add_argument("--out", type=Path, default=ROOT / "docs" / "bench")
    chosen = arguments.parse_args()
    return told(_profile(chosen.seconds, chosen.out), missing="profile")


async def _profile(seconds: int, out: Path) -> str:
    await asyncio.to_thread(out.mkdir, parents=True, exist_ok=True)
    count = PER_S_MOST * 2 * seconds
    async with backlog(count) as (suite, place, world):
        worker = world.start()
        async with Watch(world, {"worker": [worker]}) as watch:
            await watch.until(count // 50)
            suite.say("recording")
            await _record(worker, "flamegraph", out / "profile.svg", seconds)
            raw = world.stage.folder / "profile.raw"
            await _record(worker, "raw", raw, seconds)
            if await watch.count(world.topics.receipts) >= count:
                raise BenchError("the backlog was delivered before the recording ended")
        worker.kill()  # a clean end would deliver what is in flight; nothing here is kept
        shares = _shares(raw.read_text().splitlines(), place.kind)
    await asyncio.to_thread((out / "profile.txt").write_text, shares)
    return shares


async def _record(worker: Worker, form: str, file: Path, seconds: int) -> None:
    """Have py-spy sample the worker's thread that holds the interpreter: others may run, or wait."""
    spy = shutil.which("py-spy", path=str(Path(sys.executable).parent))
    if spy is None:
        raise BenchError("py-spy is not installed: make setup")
    process = await asyncio.create_subprocess_exec(
        *(spy, "record", "--pid", str(worker.pid), "--duration", str(seconds)),
        *("--gil", "--rate", str(RATE), "--format", form, "--output", str(file)),
        env=clean_environment(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        told, _ = await asyncio.wait_for(process.communicate(), START_S + seconds)
    except BaseException:
        process.kill()
        await process.wait()
        raise
    if process.returncode != 0:
        raise BenchError(f"py-spy failed (it needs the right to trace):\n{told.decode()[-500:]}")


def _shares(stacks: Iterable[str], receiver: str) -> str:
    """The largest shares of collapsed stacks: by the function that ran, and by what it was part of."""
    own: Counter[str] = Counter()
    within: Counter[str] = Counter()
    rooms: Counter[str] = Counter()
    total = 0
    for stack in stacks:
        frames, _, number = stack.rpartition(" ")
        samples = int(number)
        total += samples
        names = [_function(frame) for frame in frames.split(";")]
        own[names[-1]] += samples
        within.update(dict.fromkeys(names, samples))
        rooms[_room(names[-1])] += samples
    if not total:
        raise BenchError("py-spy took no sample")
    about = machine() | {
        "receiver": receiver,
        "samples": f"{total} of the thread that holds the interpreter's lock, {RATE} a second",
    }
    head = "\n".join(f"{name:16} {value}" for name, value in about.items())
    alone = "Ten largest shares, own time (C code counts for the Python that called it)"
    whole = "Ten largest shares, own time and all that was called"
    parts = (
        head,
        _list(alone, own, total),
        _list("By library or room, own time", rooms, total),
        _list(whole, _ours(within), total),
    )
    return "\n\n".join(parts) + "\n"


def _function(frame: str) -> str:
    """`name (file)` of a frame, its line left out: lines of one function are one share."""
    name, bracket, place = frame.rpartition(" (")
    return f"{name} ({place.rpartition(':')[0] or place.rstrip(')')})" if bracket else frame


def _room(function: str) -> str:
    """The package that a function belongs to; of ours, the room."""
    parts = Path(function.rpartition(" (")[2].rstrip(")")).parts
    if "streams" in parts:
        return "/".join(parts[parts.index("streams") :][:2])
    return parts[0].removesuffix(".py") if parts else "unknown"


def _ours(within: Counter[str]) -> Counter[str]:
    """Without the frames that everything runs in."""
    return Counter(
        {name: n for name, n in within.items() if "streams/" in name or "aiokafka" in name}
    )


def _list(title: str, counted: Counter[str], total: int) -> str:
    lines = [f"{n / total:6.1%}  {name}" for name, n in counted.most_common(LARGEST)]
    return "\n".join([title, "-" * len(title), *lines])


if __name__ == "__main__":
    sys.exit(main())
