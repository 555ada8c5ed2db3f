"""The guards of the ledger protocol: how each reads, how its removal reads, and who must miss it.

A place is named by the function that holds it, wherever in `streams/` that lies: moving code between
files changes nothing here, and changing a guard's text is found by `tests/unit/test_mutants.py`.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

TRACES: Final = "tests/sim/test_traces.py::test_a_trace_of_the_protocol_breaks_nothing"
FORGETTING: Final = "tests/sim/test_forgetting.py::test_what_was_forgotten_is_not_sent_again"
SCHEDULES: Final = "tests/sim/test_simulation.py"


class NotFoundError(Exception):
    """A guard's text does not stand where the table says, exactly once."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One change of the source.

    Attributes:
        within: Name of the function, method or class that holds the text, or `Class.method`.
        old: Text that stands exactly once in all functions of that name together.
        new: Text without the guard.
    """

    within: str
    old: str
    new: str

    def place(self, tree: Path) -> tuple[Path, str]:
        """The file that holds the text, and how that file reads without the guard.

        Raises:
            NotFoundError: the text stands nowhere, or more than once.
        """
        found = [
            (file, start + at)
            for file in sorted((tree / "streams").rglob("*.py"))
            if self.old in (text := file.read_text())
            for start, segment in _segments(text, self.within)
            for at in _occurrences(segment, self.old)
        ]
        if len(found) != 1:
            raise NotFoundError(
                f"in {self.within} of streams/ this stands {len(found)} times, not once: {self.old!r}"
            )
        file, at = found[0]
        text = file.read_text()
        return file, text[:at] + self.new + text[at + len(self.old) :]


@dataclass(frozen=True, slots=True)
class Guard:
    """A guard, how its removal reads, and the tests of which at least one must fail without it."""

    name: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]


@cache
def _segments(text: str, within: str) -> tuple[tuple[int, str], ...]:
    """Where each definition of this name begins, and its text."""
    owner, _, name = within.rpartition(".")
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    found = []
    for holder in ast.walk(ast.parse(text)):
        if owner and getattr(holder, "name", None) != owner:
            continue
        for node in ast.iter_child_nodes(holder):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            if node.name == name and node.end_lineno is not None:
                start, end = starts[node.lineno - 1], starts[node.end_lineno]
                found.append((start, text[start:end]))
    return tuple(found)


def _occurrences(segment: str, old: str) -> list[int]:
    found, at = [], segment.find(old)
    while at >= 0:
        found.append(at)
        at = segment.find(old, at + 1)
    return found


_NO_WAIT: Final = """\
        self._ledger.append(_CLAIM, key, encode_row(row), epoch, row.token)
        return Claim(key, row, epoch, started)
        if not await self.append(_CLAIM, key, row, epoch=epoch, token=row.token):
"""
_ANY_EPOCH: Final = """\
next(
                (waits.pop(k) for k in list(waits) if k[:2] == (kind, record.token)),
                None,
            )"""

GUARDS: Final = (
    Guard(
        "epoch check",
        (Edit("fold", "if record.epoch < state.epoch:", "if record.epoch < -1:"),),
        (f"{TRACES}[5]", "tests/unit/rules/test_fold.py"),
    ),
    Guard(
        "epoch check in bulk",
        (Edit("fold_batch", "                if is_void:\n", "                if False:\n"),),
        ("tests/property/test_ledger_batch.py",),
    ),
    Guard(
        "read-back wait",
        (
            Edit(
                "Partition.claim",
                "        if not await self.append(_CLAIM, key, row, epoch=epoch, token=row.token):\n",
                _NO_WAIT,
            ),
        ),
        (f"{TRACES}[read-back]",),
    ),
    Guard(
        "adoption by report",
        (
            Edit(
                "Deliverer._step",
                "return await self._adopt(trigger, row)\n",
                "return await self._attempt(trigger, replace(row, phase=Phase.WAITING))\n",
            ),
            Edit(
                "Deliverer._still_stands",
                "partition.holds(trigger.assignment) and partition.row(trigger.key) == row",
                "partition.holds(trigger.assignment)",
            ),
        ),
        (f"{TRACES}[5]",),
    ),
    Guard(
        "a second look after a wait",
        (
            Edit(
                "Deliverer._still_stands",
                "partition.holds(trigger.assignment) and partition.row(trigger.key) == row",
                "partition.holds(trigger.assignment)",
            ),
        ),
        ("tests/sim/test_found_traces.py",),
    ),
    Guard(
        "report waited for by epoch",
        (
            Edit(
                "Partition.fold",
                "waits.pop((kind, record.token, record.epoch), None)",
                _ANY_EPOCH,
            ),
        ),
        ("tests/unit/engine/test_partition_waits.py",),
    ),
    Guard(
        "claim given up is reported",
        (
            Edit(
                "Partition.claim",
                "LateReport(delivery_key=key, token=row.token, judgement=NOT_CALLED)",
                "LateReport(delivery_key=key, token=b'', judgement=NOT_CALLED)",
            ),
        ),
        ("tests/unit/engine/test_partition_waits.py",),
    ),
    Guard(
        "late report",
        (Edit("Partition.settle", "if not valid and claim.mine:", "if not claim.mine:"),),
        (f"{TRACES}[4-late-report]",),
    ),
    Guard(
        "repair",
        (Edit("Debts.pay", "for key in sorted(self._rows.store.owed):\n", "for key in ():\n"),),
        (f"{TRACES}[6-kept]",),
    ),
    Guard(
        "kept debts",
        (
            Edit(
                "PartitionStore",
                "self._owed = {key for key, _ in self._scan(self._debts)}\n",
                "self._owed: set[bytes] = set()\n",
            ),
        ),
        ("tests/unit/edge/test_store_debts.py",),
    ),
    Guard(
        "repair under the lock",
        (Edit("Debts._repair", "async with self._locks.hold(key):", "if True:"),),
        (f"{TRACES}[6-lock]",),
    ),
    Guard(
        "delivery lock",
        (
            Edit(
                "Deliverer.on_trigger",
                "if not partition.locks.take(trigger.key):",
                "if False:",
            ),
            Edit("Deliverer.on_trigger", "partition.locks.release(trigger.key)", "pass"),
        ),
        ("tests/unit/engine/test_delivery.py", SCHEDULES),
    ),
    Guard(
        "fresh view",
        (
            Edit(
                "Deliverer._step",
                "await partition.barrier() and partition.row",
                "partition.row",
            ),
        ),
        (f"{TRACES}[7]",),
    ),
    Guard(
        "OWNER again",
        (
            Edit(
                "Leading._on_owner",
                "            self._spawn(self._own_again(",
                "            (lambda *_: None)((",
            ),
        ),
        (f"{TRACES}[2]",),
    ),
    Guard(
        "acknowledgement per assignment",
        (
            Edit(
                "Feeder.let_go",
                "        self.lanes.clear()\n",
                "        return\n",
            ),
        ),
        (f"{TRACES}[9]", f"{TRACES}[7]", SCHEDULES),
    ),
    Guard(
        "stale triggers' follow-up",
        (
            Edit(
                "Deliverer._step",
                "            return _SETTLED\n",
                "            return _ASIDE\n",
            ),
        ),
        (f"{TRACES}[8]",),
    ),
    Guard(
        "dead-letter fence",
        (
            Edit(
                "Letters.read_back",
                "for key, value in dict(records).items():\n",
                "for key, value in ():\n",
            ),
        ),
        (f"{TRACES}[10]",),
    ),
    Guard(
        "redrive's letter id",
        (
            Edit(
                "Row.letter_id", 'return f"{self.delivery_id}.{self.budget}"', "return self.delivery_id"
            ),
        ),
        (f"{TRACES}[11]",),
    ),
    Guard(
        "contiguous commit",
        (
            Edit(
                "Acks.committable",
                "offset = self.next if self.oldest is None else self.oldest",
                "offset = self.next",
            ),
        ),
        ("tests/property/test_acks.py", SCHEDULES),
    ),
    Guard(
        "read_committed",
        (
            Edit(
                "_create_worker_consumer",
                '        consumer._isolation_level = "read_committed"\n',
                "",
            ),
        ),
        ("tests/integration/test_read_committed.py",),
    ),
    Guard(
        "nothing forgotten is claimed",
        (
            Edit(
                "Deliverer._may_claim",
                "return row is not None or trigger.partition.knows(trigger.carried.activity.key)",
                "return True",
            ),
        ),
        (f"{FORGETTING}[redelivered]",),
    ),
    Guard(
        "the activity is buried first",
        (
            Edit(
                "Partition.bury",
                "for key in (activity_key, *keys):",
                "for key in (*keys, activity_key):",
            ),
        ),
        (f"{FORGETTING}[crashed in a burial]",),
    ),
)  # fmt: skip
