"""Take each guard of the ledger protocol out, one at a time, and see that a named test misses it.

    python tools/mutants.py [GUARD …]

Works on a copy of the tree in a temporary folder. Prints guard → test that failed; exit 1 where a
guard could be taken out unnoticed, or where its text is not found any more.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
COPIED: Final = ("streams", "schemas", "tests", "pyproject.toml")
LIMIT_S: Final = 300

TRACES: Final = "tests/sim/test_traces.py::test_a_trace_of_the_protocol_breaks_nothing"


@dataclass(frozen=True, slots=True)
class Guard:
    """A guard, how its removal reads, and the tests of which at least one must fail without it.

    Attributes:
        edits: File, text that stands there exactly once, text without the guard.
    """

    name: str
    edits: tuple[tuple[str, str, str], ...]
    tests: tuple[str, ...]


_PARTITION: Final = "streams/engine/partition.py"
_DELIVERY: Final = "streams/engine/delivery.py"
_NO_WAIT: Final = """\
        self._ledger.append(Kind.CLAIM, key, encode_row(row), epoch, row.token)
        return Claim(key, row, epoch, started)
        if not await self.append(Kind.CLAIM, key, row, epoch=epoch, token=row.token):
"""
_ANY_EPOCH: Final = """\
next(
                (self._waits.pop(k) for k in list(self._waits) if k[:2] == (record.kind, record.token)),
                None,
            )"""

GUARDS: Final = (
    Guard(
        "epoch check",
        (("streams/rules/fold.py", "if record.epoch < state.epoch:", "if record.epoch < -1:"),),
        (f"{TRACES}[5]", "tests/unit/rules/test_fold.py"),
    ),
    Guard(
        "read-back wait",
        (
            (
                _PARTITION,
                "        if not await self.append(Kind.CLAIM, key, row, epoch=epoch, token=row.token):\n",
                _NO_WAIT,
            ),
        ),
        (f"{TRACES}[read-back]",),
    ),
    Guard(
        "adoption by report",
        (
            (
                _DELIVERY,
                "            return await self._adopt(trigger, row)\n",
                "            return await self._attempt(trigger, replace(row, phase=Phase.WAITING))\n",
            ),
            (_DELIVERY, "import dataclass\n", "import dataclass, replace\n"),
            (
                _DELIVERY,
                "partition.holds(trigger.assignment) and partition.row(trigger.key) == row",
                "partition.holds(trigger.assignment)",
            ),
        ),
        (f"{TRACES}[5]",),
    ),
    Guard(
        "report waited for by epoch",
        (
            (
                _PARTITION,
                "self._waits.pop((record.kind, record.token, record.epoch), None)",
                _ANY_EPOCH,
            ),
        ),
        ("tests/unit/engine/test_partition_waits.py",),
    ),
    Guard(
        "claim given up is reported",
        (
            (
                _PARTITION,
                "LateReport(delivery_key=key, token=row.token, judgement=NOT_CALLED)",
                "LateReport(delivery_key=key, token=b'', judgement=NOT_CALLED)",
            ),
        ),
        ("tests/unit/engine/test_partition_waits.py",),
    ),
    Guard(
        "late report",
        ((_PARTITION, "if not valid and claim.mine:", "if not claim.mine:"),),
        (f"{TRACES}[4-late-report]",),
    ),
    Guard(
        "repair",
        ((_PARTITION, "        for key in self.store.owed:\n", "        for key in ():\n"),),
        (f"{TRACES}[6-kept]",),
    ),
    Guard(
        "kept debts",
        (
            (
                "streams/edge/store.py",
                "        self._owed = {key for key, _ in self._scan(self._debts)}\n",
                "        self._owed: set[bytes] = set()\n",
            ),
        ),
        ("tests/unit/edge/test_store_debts.py",),
    ),
    Guard(
        "repair under the lock",
        ((_PARTITION, "async with self.locks.hold(key):", "if True:"),),
        (f"{TRACES}[6-lock]",),
    ),
    Guard(
        "delivery lock",
        ((_DELIVERY, "async with partition.locks.hold(trigger.key):", "if True:"),),
        ("tests/sim/test_simulation.py",),
    ),
    Guard(
        "fresh view",
        ((_DELIVERY, "if await partition.barrier() and partition", "if partition"),),
        (f"{TRACES}[7]",),
    ),
    Guard(
        "OWNER again",
        (
            (
                _PARTITION,
                "            self._spawn(self._own_again(",
                "            (lambda *_: None)((",
            ),
        ),
        (f"{TRACES}[2]",),
    ),
    Guard(
        "acknowledgement per assignment",
        (
            (
                "streams/engine/worker.py",
                '        """Forget the lanes of the assignment that is over (rule 9)."""\n',
                '        """Forget the lanes of the assignment that is over (rule 9)."""\n        return\n',
            ),
        ),
        (f"{TRACES}[9]", f"{TRACES}[7]", "tests/sim/test_simulation.py"),
    ),
    Guard(
        "stale triggers' follow-up",
        (
            (
                _DELIVERY,
                "partition.row(trigger.key) == row:\n            return _Step.SETTLED\n",
                "partition.row(trigger.key) == row:\n            return _Step.ASIDE\n",
            ),
        ),
        (f"{TRACES}[8]",),
    ),
    Guard(
        "dead-letter fence",
        (
            (
                "streams/engine/letters.py",
                "        for key, value in dict(records).items():\n",
                "        for key, value in ():\n",
            ),
        ),
        (f"{TRACES}[10]",),
    ),
    Guard(
        "redrive's letter id",
        (
            (
                "streams/model/ledger.py",
                'return f"{self.delivery_id}.{self.budget}"',
                "return self.delivery_id",
            ),
        ),
        (f"{TRACES}[11]",),
    ),
    Guard(
        "contiguous commit",
        (
            (
                "streams/engine/acks.py",
                "offset = self.next if self.oldest is None else self.oldest",
                "offset = self.next",
            ),
        ),
        ("tests/property/test_acks.py", "tests/sim/test_simulation.py"),
    ),
    Guard(
        "read_committed",
        (
            (
                "streams/engine/consumer.py",
                '        consumer._isolation_level = "read_committed"\n',
                "",
            ),
        ),
        ("tests/integration/test_read_committed.py",),
    ),
)


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
    before = {file: (tree / file).read_text() for file, _, _ in guard.edits}
    began = time.monotonic()
    try:
        for file, old, new in guard.edits:
            text = (tree / file).read_text()
            if text.count(old) != 1:
                print(f"{guard.name:32} its text stands {text.count(old)} times in {file}")
                return False
            (tree / file).write_text(text.replace(old, new))
        for test in guard.tests:
            code, told = _pytest(tree, [test])
            failed = _failed(told)
            if code == 1 and failed:
                print(f"{guard.name:32} {failed[0]} ({time.monotonic() - began:.0f} s)", flush=True)
                return True
        print(f"{guard.name:32} NOBODY NOTICED", flush=True)
        return False
    finally:
        for file, text in before.items():
            (tree / file).write_text(text)


def _pytest(tree: Path, tests: Iterable[str]) -> tuple[int, str]:
    """Run tests in the copy; a run that hangs has failed as well."""
    command = [sys.executable, "-B", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(
            command, cwd=tree, capture_output=True, text=True, check=False, timeout=LIMIT_S
        )
    except subprocess.TimeoutExpired:
        return 1, f"FAILED {' '.join(tests)} - did not end"
    return done.returncode, done.stdout[-4000:]


def _failed(told: str) -> list[str]:
    """The names of the tests that failed."""
    return re.findall(r"^FAILED (\S+)", told, flags=re.MULTILINE)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
