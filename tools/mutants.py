"""Take each guard of the ledger protocol out, one at a time, and see that a named test misses it.

    python -m tools.mutants [GUARD …]

Works on a copy of the tree in a temporary folder. Prints guard → test that failed; exit 1 where a
guard could be taken out unnoticed, or where its text is not found any more.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tools.guards import GUARDS, Guard, NotFoundError

ROOT: Final = Path(__file__).resolve().parents[1]
COPIED: Final = ("streams", "schemas", "tests", "pyproject.toml")
LIMIT_S: Final = 300
SEEDS: Final = "300"
"""Schedules of the simulation: a guard that is missed by none of so many is missed too rarely."""


def main(asked: list[str]) -> int:
    """Try all guards, or those named; give the exit code."""
    guards = [guard for guard in GUARDS if not asked or guard.name in asked]
    if not guards:
        print("no such guard; there are: " + ", ".join(guard.name for guard in GUARDS))
        return 2
    with tempfile.TemporaryDirectory(prefix="outbox-mutants-") as folder:
        tree = Path(folder)
        _copy(tree)
        every = list(dict.fromkeys(test for guard in guards for test in guard.tests))
        code, told = _pytest(tree, every)
        if code != 0:
            print("with every guard in place these tests must pass:\n" + told)
            return 1
        unnoticed = [guard.name for guard in guards if not _is_missed(tree, guard)]
    print(
        f"guards={len(guards)} unnoticed={len(unnoticed)}" + "".join(f" {n!r}" for n in unnoticed)
    )
    return 1 if unnoticed else 0


def _copy(tree: Path) -> None:
    """The files as they stand, what git ignores left out; Kafka's jars are shared."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *COPIED],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).exists():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_bytes((ROOT / name).read_bytes())
    (tree / ".local").mkdir()
    (tree / ".local" / "kafka-jars").symlink_to(ROOT / ".local" / "kafka-jars")


def _is_missed(tree: Path, guard: Guard) -> bool:
    """Take the guard out, run its tests, put it back; say whether one of them failed."""
    began = time.monotonic()
    before: dict[Path, str] = {}
    try:
        for edit in guard.edits:
            file, text = edit.place(tree)
            before.setdefault(file, file.read_text())
            file.write_text(text)
        for test in guard.tests:
            code, told = _pytest(tree, [test])
            failed = _failed(told)
            if code == 1 and failed:
                print(f"{guard.name:32} {failed[0]} ({time.monotonic() - began:.0f} s)", flush=True)
                return True
        print(f"{guard.name:32} NOBODY NOTICED", flush=True)
        return False
    except NotFoundError as error:
        print(f"{guard.name:32} {error}", flush=True)
        return False
    finally:
        for file, text in before.items():
            file.write_text(text)


def _pytest(tree: Path, tests: Iterable[str]) -> tuple[int, str]:
    """Run tests in the copy; a run that hangs has failed as well."""
    command = [sys.executable, "-B", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(
            command,
            cwd=tree,
            env=os.environ | {"SIM_SEEDS": SEEDS},
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        return 1, f"FAILED {' '.join(tests)} - did not end"
    return done.returncode, done.stdout[-4000:]


def _failed(told: str) -> list[str]:
    """The names of the tests that failed."""
    return re.findall(r"^FAILED (\S+)", told, flags=re.MULTILINE)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
