"""Whether everything adds up: what went in, what must come of it, what was seen. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from streams.cli.demo.evidence import NO_CALL_KNOWN, Evidence
from streams.cli.demo.plan import Owed, Plan
from streams.model.receipt import Outcome

LEASE_LOST: Final = "lease_lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class PathSum:
    """The deliveries of one behaviour.

    Attributes:
        expected_calls: Where no worker dies in a call.
        verdicts: Of their receipts, each with its count.
    """

    path: str
    deliveries: int
    expected_calls: int
    calls: int
    verdicts: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum:
    """The whole.

    Attributes:
        problems: A line for each thing that does not add up; none when all does.
        repeated_calls: More calls than a delivery takes: their worker died in them.
        lost_claims: Attempts that were spent and made no call.
        adopted: Claims that the killed worker left behind.
        repeated_receipts: Written a second time after the crash.
        in_doubt: Deliveries to targets that are not idempotent, in flight at the crash.
    """

    paths: tuple[PathSum, ...]
    problems: tuple[str, ...]
    repeated_calls: int
    lost_claims: int
    adopted: int
    repeated_receipts: int
    in_doubt: int


def add_up(plan: Plan, seen: Evidence) -> Sum:
    """Hold what was seen against the plan, delivery by delivery.

    A worker was killed: of a claim that it left behind nobody knows whether the call was made. Such
    a claim, and only such a one, excuses one call more or less than planned.
    """
    problems = [
        *(line for owed in plan.owed.values() for line in _delivery_problems(owed, seen)),
        *_letter_problems(plan, seen),
        *_again_problems(plan, seen),
        *_stray_problems(plan, seen),
    ]
    calls = {name: len(seen.calls.get(name, ())) for name in plan.owed}
    return Sum(
        paths=tuple(_path_sum(plan, seen, path) for path in plan.paths),
        problems=tuple(problems),
        repeated_calls=sum(max(0, calls[o.delivery_id] - o.calls) for o in plan.owed.values()),
        lost_claims=sum(seen.claims[name] - calls[name] for name in plan.owed),
        adopted=sum(list(ends.values()).count(LEASE_LOST) for ends in seen.ends.values()),
        repeated_receipts=sum(len(told) - 1 for told in seen.receipts.values())
        + sum(len(told) - 1 for told in seen.again.values()),
        in_doubt=len([owed for owed in plan.owed.values() if _is_in_doubt(owed, seen)]),
    )


def unsettled(plan: Plan, seen: Evidence) -> list[str]:
    """What is not there yet, a line each: while there is any, there is nothing to add up."""
    lines = [
        f"{owed.path} {owed.activity[1]}: no receipt"
        for name, owed in plan.owed.items()
        if name not in seen.receipts
    ]
    dead = seen.dead()
    lines += [
        f"{receipts[-1].activity_id}: {receipts[-1].verdict}, and no dead letter"
        for name, receipts in seen.receipts.items()
        if receipts[-1].verdict is not Outcome.SENT and name not in dead
    ]
    unread = sum(1 for letter, each in dead.values() if _is_unreadable(each.delivery_id))
    if unread < len(plan.malformed):
        lines.append(f"{len(plan.malformed) - unread} malformed records: no dead letter")
    missing = (plan.duplicates | plan.conflicts) - seen.again.keys()
    return lines + [f"{name}: no receipt duplicate or conflict" for _, name in sorted(missing)]


def _delivery_problems(owed: Owed, seen: Evidence) -> Iterator[str]:
    name = f"{owed.path} {owed.activity[1]} ({owed.delivery_id})"
    receipts = seen.receipts.get(owed.delivery_id, [])
    if not receipts:
        yield f"{name}: no receipt"
        return
    if len({(receipt.verdict, receipt.attempts) for receipt in receipts}) > 1:
        yield f"{name}: receipts that contradict each other"
    receipt = receipts[-1]
    if receipt.verdict is not owed.verdict and not _is_in_doubt(owed, seen):
        yield f"{name}: receipt {receipt.verdict} ({receipt.code}), expected {owed.verdict}"
    claims = seen.claims[owed.delivery_id]
    if receipt.attempts != claims:
        yield f"{name}: {claims} claims in the ledger, {receipt.attempts} attempts in the receipt"
    yield from (f"{name}: {line}" for line in _call_problems(owed, seen))


def _call_problems(owed: Owed, seen: Evidence) -> Iterator[str]:
    calls = seen.calls.get(owed.delivery_id, [])
    claims = seen.claims[owed.delivery_id]
    ends = seen.ends.get(owed.delivery_id, {})
    excused = {attempt for attempt, code in ends.items() if code in NO_CALL_KNOWN}
    attempts = Counter(call.attempt for call in calls)
    twice = sorted(attempt for attempt, count in attempts.items() if count > 1)
    if twice:
        yield f"attempts {twice} were called twice"
    claimed = set(range(1, claims + 1))
    if foreign := sorted(attempts.keys() - claimed):
        yield f"attempts {foreign} were called without a claim"
    if silent := sorted(claimed - attempts.keys() - excused):
        yield f"attempts {silent} were claimed, reported and never called"
    if abs(len(calls) - owed.calls) > len(excused):
        yield f"{len(calls)} calls, expected {owed.calls}, {len(excused)} excused by the crash"
    if not owed.idempotent and len(calls) > owed.calls:
        yield "called again although it is not idempotent"
    if any(call.sha256 != owed.body_sha256 for call in calls):
        yield "the receiver got another body than was produced"


def _is_in_doubt(owed: Owed, seen: Evidence) -> bool:
    """Whether it was in flight at the crash, to a target that may not be called again (C-07)."""
    receipts = seen.receipts.get(owed.delivery_id, [])
    return (
        not owed.idempotent
        and LEASE_LOST in seen.ends.get(owed.delivery_id, {}).values()
        and all(receipt.verdict is Outcome.AMBIGUOUS for receipt in receipts)
    )


def _letter_problems(plan: Plan, seen: Evidence) -> Iterator[str]:
    dead = seen.dead()
    for name, owed in plan.owed.items():
        receipts = seen.receipts.get(name, [])
        is_dead = bool(receipts) and receipts[-1].verdict is not Outcome.SENT
        label = f"{owed.path} {owed.activity[1]} ({name})"
        if is_dead != (name in dead):
            yield f"{label}: " + ("no dead letter" if is_dead else "a dead letter although sent")
            continue
        if not is_dead:
            continue
        letter, entry = dead[name]
        if letter.ledger_entry_id != owed.ledger_entry_id:
            yield f"{label}: the dead letter names another ledger entry"
        if entry.reconciliation_required != (receipts[-1].verdict is Outcome.AMBIGUOUS):
            yield f"{label}: the dead letter's reconciliation flag is wrong"
    codes = Counter(e.code for _, e in dead.values() if _is_unreadable(e.delivery_id))
    expected = Counter(record.code for record in plan.malformed)
    if codes != expected:
        yield f"malformed records: dead letters {dict(codes)}, expected {dict(expected)}"


def _again_problems(plan: Plan, seen: Evidence) -> Iterator[str]:
    for outcome, expected in (
        (Outcome.DUPLICATE, plan.duplicates),
        (Outcome.CONFLICT, plan.conflicts),
    ):
        told = {name for name, outcomes in seen.again.items() if outcome in outcomes}
        if told != expected:
            yield f"{outcome}: receipts for {len(told)} activities, expected {len(expected)}"


def _stray_problems(plan: Plan, seen: Evidence) -> Iterator[str]:
    for what, names in (
        ("calls", seen.calls.keys()),
        ("receipts", seen.receipts.keys()),
        ("dead letters", {name for name in seen.dead() if not _is_unreadable(name)}),
    ):
        if strays := names - plan.owed.keys():
            yield f"{len(strays)} deliveries have {what} and were never asked for"
    followed = [c for each in seen.calls.values() for c in each if c.path == "/ok/redirected"]
    if followed:
        yield f"{len(followed)} redirects were followed"


def _is_unreadable(delivery_id: str) -> bool:
    """Whether a dead letter's entry stands for a record that could not be read (C-14)."""
    return delivery_id.startswith("rec_")


def _path_sum(plan: Plan, seen: Evidence, path: str) -> PathSum:
    mine = [owed for owed in plan.owed.values() if owed.path == path]
    verdicts = Counter(
        seen.receipts[owed.delivery_id][-1].verdict.value
        for owed in mine
        if owed.delivery_id in seen.receipts
    )
    return PathSum(
        path=path,
        deliveries=len(mine),
        expected_calls=sum(owed.calls for owed in mine),
        calls=sum(len(seen.calls.get(owed.delivery_id, ())) for owed in mine),
        verdicts=dict(verdicts),
    )
