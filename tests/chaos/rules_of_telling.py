"""What others are told: dead letters, receipts and late readers of the ledger learn one story."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final

from tests.chaos.folding import Folded, Row, deliveries, fold
from tests.chaos.history import ZERO, History, Receipt
from tests.chaos.violations import SETTLED, Violation, Wrong, name_of

_EXHAUSTED: Final = frozenset({"attempts_exhausted", "elapsed_exhausted", "retry_after_too_long"})


def letters(history: History, folded: Folded) -> Iterator[Violation]:
    """The dead letters are the ledger's dead rows, and no more."""
    expected: defaultdict[str, set[tuple[Any, ...]]] = defaultdict(set)
    for key, row in deliveries(folded):
        if row["phase"] == "dead":
            letter_id = f"{row['delivery_id']}.{row['budget']}"
            facts = (letter_id, row["code"], row["attempts"], row["reconciliation_required"])
            expected[key.partition(ZERO)[0].decode()].add(facts)
    told: dict[str, set[tuple[Any, ...]]] = {}
    for record in sorted(history.letters, key=lambda r: (r.partition, r.offset)):
        if record.is_derived:
            told[record.activity] = {
                (d["dead_letter_id"], d["code"], d["attempts"], d["reconciliation_required"])
                for d in record.deliveries or ()
            }
    for activity in sorted(expected.keys() | told.keys()):
        rows, dead = expected[activity], told.get(activity, set())
        if rows != dead:
            text = f"dead rows {sorted(rows)}, dead letters {sorted(dead)}"
            yield Violation(Wrong.DISAGREES, activity, text)


def _outcome(row: Row) -> str:
    if row["phase"] != "dead":
        return str(row["phase"])
    if row["reconciliation_required"]:
        return "ambiguous"
    if row["code"] == "expired":
        return "expired"
    return "exhausted" if row["code"] in _EXHAUSTED else "refused"


def _verdicts(folded: Folded) -> dict[tuple[str, str, int, int], bytes]:
    """What receipts may say: id, outcome, attempts and status of every settled row there ever was."""
    return {
        (row["delivery_id"], _outcome(row), row["attempts"], row["status"]): key
        for key, entries in folded.valid.items()
        for entry in entries
        if (row := entry.row) is not None and row["phase"] in SETTLED
    }


def _facts(receipt: Receipt) -> tuple[str, str, int, int]:
    told = receipt.fields
    return told["delivery_id"], told["verdict"], told["attempts"], told["status"]


def receipts_true(history: History, folded: Folded) -> Iterator[Violation]:
    """No receipt tells what the ledger does not say."""
    verdicts = _verdicts(folded)
    for receipt in history.receipts:
        if receipt.fields["delivery_id"] is not None and _facts(receipt) not in verdicts:
            text = f"a receipt says {_facts(receipt)[1:]}, and the ledger never did"
            yield Violation(Wrong.DISAGREES, receipt.activity, text)


def receipts_whole(history: History, folded: Folded) -> Iterator[Violation]:
    """Each verdict has its receipt."""
    told = {_facts(receipt) for receipt in history.receipts}
    for facts, key in _verdicts(folded).items():
        if facts not in told:
            yield Violation(Wrong.DISAGREES, name_of(key), f"no receipt of {facts[1:]}")


def compacted(history: History, folded: Folded) -> Iterator[Violation]:
    """Who reads the ledger only now, after compaction, ends with the same rows."""
    if history.compacted is None:
        return
    late = fold(history.compacted)
    for key in sorted(folded.rows.keys() | late.rows.keys()):
        if folded.rows.get(key) != late.rows.get(key):
            text = f"compaction left {_short(late.rows.get(key))} of {_short(folded.rows.get(key))}"
            yield Violation(Wrong.DISAGREES, name_of(key), text)
    for key in sorted(folded.owed):
        yield Violation(
            Wrong.DISAGREES, name_of(key), "its last record is void and was not repaired"
        )


def _short(row: Row | None) -> str:
    if row is None:
        return "nothing"
    return f"{row.get('phase', 'an activity')} a{row.get('attempts')} f{row.get('fence')}"
