"""The ledger's own story: each valid record follows from the one before it, to the end of life."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tests.chaos.folding import Folded, Row
from tests.chaos.history import ZERO, Entry, History
from tests.chaos.violations import SETTLED, Violation, Wrong, name_of


def complete(history: History) -> Iterator[Violation]:
    """The record of the ledger itself has no holes: else the rest proves nothing."""
    last: dict[int, int] = {}
    for entry in sorted(history.ledger, key=lambda e: (e.partition, e.offset)):
        expected = last.get(entry.partition, -1) + 1
        if entry.offset != expected:
            where = f"partition {entry.partition} of the ledger"
            text = f"record {expected} was not seen, {entry.offset} was"
            yield Violation(Wrong.DISAGREES, where, text)
        last[entry.partition] = entry.offset


def moves(history: History, folded: Folded) -> Iterator[Violation]:
    """Each valid record follows from the one before it; exactly one verdict a budget."""
    for key, entries in folded.valid.items():
        before: Row | None = None
        for entry in entries:
            wrong = _move(before, entry, history.max_attempts)
            if wrong is not None:
                yield Violation(wrong[0], name_of(key), f"@{entry.offset} {entry.kind}: {wrong[1]}")
            before = entry.row
            if entry.kind == "CLAIM" and entry.row is not None:
                before = {**entry.row, "fence": entry.offset}


def _move(before: Row | None, entry: Entry, max_attempts: int) -> tuple[Wrong, str] | None:
    """What is wrong with a record that follows the row `before`; None when nothing is."""
    row, was = entry.row, before or {"phase": "", "attempts": 0, "token": b"", "budget": 0}
    if entry.kind == "REPAIR":
        return None if row == before else (Wrong.DISAGREES, "a repair changed the row")
    if row is None:
        return _end_of_life(before, entry)
    match entry.kind:
        case "CLAIM":
            return _claim(was, row, max_attempts)
        case "REPORT":
            return _report(was, row)
        case "REDRIVE":
            once = was["phase"] == "dead" and row["budget"] == was["budget"] + 1
            return None if once else (Wrong.DISAGREES, "only a dead letter is redriven, once")
        case kind:
            return Wrong.DISAGREES, f"{kind} has no place under a delivery"


def _end_of_life(before: Row | None, entry: Entry) -> tuple[Wrong, str] | None:
    if entry.kind != "REPORT":
        return Wrong.DISAGREES, "only a repair or an end of life may delete a row"
    if before is not None and before["phase"] not in ("sent", "skipped"):
        return Wrong.LOST, f"forgotten while it was {before['phase']}"
    return None


def forgotten(history: History, folded: Folded) -> Iterator[Violation]:
    """What was settled is known for the dedupe window; what is forgotten then is not sent again."""
    produced: defaultdict[str, list[int]] = defaultdict(list)
    for source in history.sources:
        produced[source.activity].append(source.t_ms)
    for key, entries in folded.valid.items():
        settled_ms = 0
        for before, entry in pairwise(entries):
            if entry.row is None and before.row is not None and entry.kind == "REPORT":
                settled_ms = before.row["settled_ms"] - history.skew_ms
                if entry.t_ms < settled_ms + history.dedupe_window_ms:
                    text = f"@{entry.offset} forgets what was settled at {settled_ms}"
                    yield Violation(Wrong.DISAGREES, name_of(key), text)
            last_ms = max(produced[key.partition(ZERO)[0].decode()], default=0)
            if entry.kind == "CLAIM" and last_ms < settled_ms:
                text = f"@{entry.offset} claims anew what was settled and forgotten"
                yield Violation(Wrong.UNSAFE_DUPLICATE, name_of(key), text)


def _claim(was: Row, row: Row, max_attempts: int) -> tuple[Wrong, str] | None:
    if was["phase"] not in ("", "waiting", "queued"):
        return Wrong.DISAGREES, f"claimed what is {was['phase']}"
    if row["attempts"] != was["attempts"] + 1:
        return Wrong.OVER_BUDGET, "a claim must count one attempt more"
    if row["attempts"] > max_attempts:
        return Wrong.OVER_BUDGET, f"attempt {row['attempts']} of {max_attempts}"
    return None


def _report(was: Row, row: Row) -> tuple[Wrong, str] | None:
    if was["phase"] in SETTLED:
        return Wrong.DISAGREES, f"a second verdict, {row['phase']} after {was['phase']}"
    if was["phase"] == "claimed" and row["token"] != was["token"]:
        return Wrong.DISAGREES, "a report of a claim that does not stand"
    if was["phase"] in ("waiting", "queued") and row["phase"] == "skipped":
        return None  # cancelled
    if was["phase"] != "claimed" and row["phase"] != "dead":
        return Wrong.DISAGREES, f"{row['phase']} without a claim"
    return None
