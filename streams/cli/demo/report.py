"""The demo's last words: the sum, line by line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from streams.cli.dead_letters import lines_of
from streams.cli.demo.evidence import Evidence
from streams.cli.demo.plan import Plan
from streams.cli.demo.sums import PathSum, Sum
from streams.model.receipt import Outcome

PROBLEMS_SHOWN: Final = 20


def letters(seen: Evidence) -> Iterator[str]:
    """A line for each delivery given up."""
    yield "dead letters (outbox dead-letters):"
    for letter in sorted(seen.letters.values(), key=lambda letter: letter.activity_id):
        yield from (f"  {line}" for line in lines_of(letter))


def summary(plan: Plan, seen: Evidence, total: Sum) -> Iterator[str]:
    """What went in, what came out, and that the one gives the other."""
    deliveries = len(plan.owed)
    sent = sum(path.verdicts.get(Outcome.SENT.value, 0) for path in total.paths)
    expected = sum(path.expected_calls for path in total.paths)
    calls = sum(path.calls for path in total.paths)
    unreadable = len(plan.malformed)
    yield f"{'the receiver answers':<22}{'deliveries':>11}{'expected':>10}{'calls':>7}  receipts"
    yield from map(_path_line, total.paths)
    yield ""
    yield (
        f"lines        {len(plan.records)} = {plan.activities} activities"
        f" + {len(plan.duplicates)} duplicates + {len(plan.conflicts)} conflicts"
        f" + {unreadable} malformed"
    )
    yield f"deliveries   {deliveries} = {sent} sent + {deliveries - sent} dead"
    yield (
        f"dead letters {len(seen.letters)} = {len(seen.letters) - unreadable} activities"
        f" + {unreadable} records that cannot be read"
    )
    yield f"receipts     {_receipts(plan, total)}"
    yield f"calls        {calls}, expected {expected}{_calls_more(total, calls - expected)}"
    yield f"the crash    {_crash(total)}"


def problems(total: Sum) -> Iterator[str]:
    """What does not add up; bounded."""
    for line in total.problems[:PROBLEMS_SHOWN]:
        yield f"does not add up: {line}"
    if len(total.problems) > PROBLEMS_SHOWN:
        yield f"does not add up: {len(total.problems) - PROBLEMS_SHOWN} more"


def _path_line(path: PathSum) -> str:
    told = ", ".join(f"{count} {verdict}" for verdict, count in sorted(path.verdicts.items()))
    return f"{path.path:<22}{path.deliveries:>11}{path.expected_calls:>10}{path.calls:>7}  {told}"


def _receipts(plan: Plan, total: Sum) -> str:
    more = total.repeated_receipts
    again = len(plan.duplicates), len(plan.conflicts)
    repeated = f", {more} of them written again after the crash" if more else ""
    return f"{len(plan.owed)} deliveries + {again[0]} duplicates + {again[1]} conflicts{repeated}"


def _calls_more(total: Sum, difference: int) -> str:
    parts = []
    if total.repeated_calls:
        parts.append(
            f"{total.repeated_calls} more, repeated to idempotent targets: in flight at the crash"
        )
    if difference != total.repeated_calls:
        parts.append(
            f"{total.repeated_calls - difference} fewer: their attempts were spent at the crash"
        )
    return f" ({'; '.join(parts)})" if parts else ""


def _crash(total: Sum) -> str:
    told = [
        f"{total.adopted} claims left behind and settled by the next worker",
        f"{total.lost_claims} attempts that made no call",
        f"{total.in_doubt} deliveries in doubt (reconciliation_required)",
    ]
    return ", ".join(told)
