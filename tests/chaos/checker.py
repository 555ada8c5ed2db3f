"""Holds a round's history against the promises of spec.md §2–§4 and ledger.md.

Separate from the product's code on purpose: it has its own reading, its own fold and its own idea of
what may follow what. `tests/unit/test_checker.py` feeds it histories with each rule broken.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import Any, Final

from tests.chaos.history import OWNER_KEY, ZERO, Entry, History, Item, Receipt

SETTLED: Final = frozenset({"sent", "dead", "skipped"})
_EXHAUSTED: Final = frozenset({"attempts_exhausted", "elapsed_exhausted", "retry_after_too_long"})

Row = Mapping[str, Any]


class Wrong(StrEnum):
    """Which promise was broken."""

    LOST = "lost"
    """A delivery is open and nothing will ever move it; or an offset was committed past it."""
    UNSAFE_DUPLICATE = "unsafe_duplicates"
    """A target that is not idempotent may have been made to act twice."""
    STUCK = "stuck"
    """At rest, and still not settled or not acknowledged."""
    OVER_BUDGET = "over_budget"
    """More calls than claims, or more claims than `max_attempts`."""
    DISAGREES = "disagreements"
    """Ledger, dead letters, receipts and calls do not tell one story."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken promise, and of which activity."""

    wrong: Wrong
    activity: str
    text: str

    def __str__(self) -> str:
        return f"{self.wrong}: {self.activity}: {self.text}"


@dataclass(slots=True)
class Folded:
    """What a reader of the ledger ends with, and how it got there."""

    rows: dict[bytes, Row] = field(default_factory=dict)
    valid: defaultdict[bytes, list[Entry]] = field(default_factory=lambda: defaultdict(list))
    """Delivery to its records that count, in order; claims have their fence filled in."""
    void: set[tuple[int, int]] = field(default_factory=set)
    """Partition and offset of the records that do not count."""
    owed: set[bytes] = field(default_factory=set)
    """Keys whose last record is void."""
    forgotten: set[bytes] = field(default_factory=set)
    """Deliveries whose row an end of life has deleted."""
    owners: int = 0


def fold(entries: list[Entry]) -> Folded:
    """ledger.md, rule 1, once more: an OWNER at o sets the epoch to o, a lower epoch is void."""
    folded = Folded()
    epochs: dict[int, int] = {}
    for entry in sorted(entries, key=lambda e: (e.partition, e.offset)):
        if entry.kind == "OWNER":
            epochs[entry.partition] = entry.offset
            folded.owners += 1
            continue
        assert entry.epoch is not None, "every record but OWNER has an epoch"
        if entry.epoch < epochs.get(entry.partition, -1):
            folded.void.add((entry.partition, entry.offset))
            folded.owed.add(entry.key)
            continue
        folded.owed.discard(entry.key)
        if entry.row is None:
            was = folded.rows.pop(entry.key, None)
            if entry.is_delivery and entry.kind == "REPORT" and was is not None:
                folded.forgotten.add(entry.key)
        else:
            folded.forgotten.discard(entry.key)
            row = dict(entry.row)
            if entry.kind == "CLAIM":
                row["fence"] = entry.offset
            folded.rows[entry.key] = row
        if entry.is_delivery:
            folded.valid[entry.key].append(entry)
    return folded


def check(history: History, *, at_rest: bool) -> list[Violation]:
    """Every promise that the history breaks.

    Args:
        at_rest: Nobody disturbs any more and there was time to finish: now nothing may be open.
    """
    folded = fold(history.ledger)
    found = [
        *(_complete(history) if history.is_whole else ()),
        *_moves(history, folded),
        *_forgotten(history, folded),
        *_calls(history, folded),
        *_effects(history, folded),
        *_owed(history, folded, at_rest),
    ]
    if at_rest:
        # While records still come, a receipt may have been read before its row, a row before its call.
        found += [
            *_answers(history, folded),
            *_receipts_true(history, folded),
            *_standing(history),
            *_letters(history, folded),
            *_receipts_whole(history, folded),
            *_compacted(history, folded),
        ]
    return found


def _complete(history: History) -> Iterator[Violation]:
    """The record of the ledger itself has no holes: else the rest proves nothing."""
    last: dict[int, int] = {}
    for entry in sorted(history.ledger, key=lambda e: (e.partition, e.offset)):
        expected = last.get(entry.partition, -1) + 1
        if entry.offset != expected:
            where = f"partition {entry.partition} of the ledger"
            text = f"record {expected} was not seen, {entry.offset} was"
            yield Violation(Wrong.DISAGREES, where, text)
        last[entry.partition] = entry.offset


# -- the ledger's own story ---------------------------------------------------------------------


def _moves(history: History, folded: Folded) -> Iterator[Violation]:
    """Each valid record follows from the one before it; exactly one verdict a budget."""
    for key, entries in folded.valid.items():
        before: Row | None = None
        for entry in entries:
            wrong = _move(before, entry, history.max_attempts)
            if wrong is not None:
                yield Violation(wrong[0], _name(key), f"@{entry.offset} {entry.kind}: {wrong[1]}")
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


def _forgotten(history: History, folded: Folded) -> Iterator[Violation]:
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
                    yield Violation(Wrong.DISAGREES, _name(key), text)
            last_ms = max(produced[key.partition(ZERO)[0].decode()], default=0)
            if entry.kind == "CLAIM" and last_ms < settled_ms:
                text = f"@{entry.offset} claims anew what was settled and forgotten"
                yield Violation(Wrong.UNSAFE_DUPLICATE, _name(key), text)


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
    if was["phase"] != "claimed" and row["phase"] != "dead":
        return Wrong.DISAGREES, f"{row['phase']} without a claim"
    return None


# -- what the targets saw -----------------------------------------------------------------------


def _message_id(row: Row) -> str:
    return f"{row['delivery_id']}-{row['generation']}"


def _claims(folded: Folded) -> Iterator[tuple[bytes, Row]]:
    for key, entries in folded.valid.items():
        for entry in entries:
            if entry.kind == "CLAIM" and entry.row is not None:
                yield key, entry.row


def _calls(history: History, folded: Folded) -> Iterator[Violation]:
    """Each call has a valid claim of its own: no attempt is called twice, whoever owned it."""
    claimed: Counter[tuple[str, int]] = Counter()
    names: dict[str, str] = {}
    for key, row in _claims(folded):
        claimed[_message_id(row), row["attempts"]] += 1
        names[_message_id(row)] = _name(key)
    called = Counter((call.id, call.attempt) for call in history.calls)
    for (message_id, attempt), count in called.items():
        granted = claimed[message_id, attempt]
        if count > granted:
            text = f"attempt {attempt} of {message_id} was called {count} times, claimed {granted}"
            yield Violation(Wrong.OVER_BUDGET, names.get(message_id, message_id), text)


def may_have_acted(status: int | None) -> bool:
    """Whether a call with this answer may have had its effect (spec §3).

    The receiver answers 503 without Retry-After, so every 5xx leaves it open.
    """
    return status is None or 200 <= status < 300 or status >= 500


def _effects(history: History, folded: Folded) -> Iterator[Violation]:
    """A target that is not idempotent acts at most once in each budget (ledger.md, "Records")."""
    budgets: defaultdict[str, set[int]] = defaultdict(set)
    names: dict[str, str] = {}
    for key, row in _claims(folded):
        if row["target"] in history.strict:
            budgets[_message_id(row)].add(row["budget"])
            names[_message_id(row)] = _name(key)
    acted = Counter(c.id for c in history.calls if may_have_acted(c.status))
    for message_id, allowed in budgets.items():
        if acted[message_id] > len(allowed):
            text = f"{message_id} may have acted {acted[message_id]} times at a target that is not idempotent"
            yield Violation(Wrong.UNSAFE_DUPLICATE, names[message_id], text)


def _answers(history: History, folded: Folded) -> Iterator[Violation]:
    """A verdict with a status rests on a call that got this status."""
    seen = {(c.id, c.attempt, c.status) for c in history.calls}
    for key, row in _deliveries(folded):
        if row["phase"] == "sent" and not 200 <= row["status"] < 300:
            yield Violation(Wrong.DISAGREES, _name(key), f"sent, with status {row['status']}")
        told = (_message_id(row), row["attempts"], row["status"])
        if row["phase"] in SETTLED and row["status"] and told not in seen:
            text = f"{row['phase']} with status {row['status']}, which no call got"
            yield Violation(Wrong.DISAGREES, _name(key), text)


def _deliveries(folded: Folded) -> Iterator[tuple[bytes, Row]]:
    for key, row in folded.rows.items():
        if ZERO in key and key != OWNER_KEY:
            yield key, row


# -- nothing lost, nothing stuck ----------------------------------------------------------------


def _owed(history: History, folded: Folded, at_rest: bool) -> Iterator[Violation]:
    """Each delivery that was asked for is settled, or something that is not committed will move it."""
    pending_sources = {
        f"{source.activity}\0{target}"
        for source in history.sources
        if history.is_pending(history.outbox, source.partition, source.offset)
        for target in source.targets
    }
    pending_retries: defaultdict[str, list[Item]] = defaultdict(list)
    for retry in history.retries:
        if history.is_pending(retry.topic, retry.partition, retry.offset):
            for item in retry.items:
                pending_retries[f"{retry.activity}\0{item.target}"].append(item)
    for owed in {f"{s.activity}\0{target}" for s in history.sources for target in s.targets}:
        row = folded.rows.get(owed.encode())
        phase = "unknown to the ledger" if row is None else row["phase"]
        if owed.encode() in folded.forgotten:
            continue
        if phase in SETTLED or (phase == "queued" and not at_rest):
            continue  # what was redriven waits for its caller to replay it (D-066)
        name = owed.replace("\0", " → ")
        if owed not in pending_sources and not _will_move(row, pending_retries[owed]):
            yield Violation(Wrong.LOST, name, f"{phase}, and nothing is left that could move it")
        elif at_rest:
            yield Violation(Wrong.STUCK, name, f"still {phase}")


def _will_move(row: Row | None, items: list[Item]) -> bool:
    """Whether a retry moves it: one that is stale writes the row's follow-up again (ledger.md, rule 8)."""
    return any(row is not None or (item.fence < 0 and item.attempt == 0) for item in items)


def _standing(history: History) -> Iterator[Violation]:
    """No partition stands still: everything that was read is acknowledged."""
    for (topic, partition), end in sorted(history.ends.items()):
        at = history.committed.get((topic, partition), 0)
        if at > end:
            text = f"committed {at}, which lies beyond the end {end}"
            yield Violation(Wrong.DISAGREES, f"{topic}/{partition}", text)
        elif at < end:
            yield Violation(Wrong.STUCK, f"{topic}/{partition}", f"committed {at} of {end}")


# -- what others are told -----------------------------------------------------------------------


def _letters(history: History, folded: Folded) -> Iterator[Violation]:
    """The dead letters are the ledger's dead rows, and no more."""
    expected: defaultdict[str, set[tuple[Any, ...]]] = defaultdict(set)
    for key, row in _deliveries(folded):
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
        rows, letters = expected[activity], told.get(activity, set())
        if rows != letters:
            text = f"dead rows {sorted(rows)}, dead letters {sorted(letters)}"
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


def _receipts_true(history: History, folded: Folded) -> Iterator[Violation]:
    """No receipt tells what the ledger does not say."""
    verdicts = _verdicts(folded)
    for receipt in history.receipts:
        if receipt.fields["delivery_id"] is not None and _facts(receipt) not in verdicts:
            text = f"a receipt says {_facts(receipt)[1:]}, and the ledger never did"
            yield Violation(Wrong.DISAGREES, receipt.activity, text)


def _receipts_whole(history: History, folded: Folded) -> Iterator[Violation]:
    """Each verdict has its receipt."""
    told = {_facts(receipt) for receipt in history.receipts}
    for facts, key in _verdicts(folded).items():
        if facts not in told:
            yield Violation(Wrong.DISAGREES, _name(key), f"no receipt of {facts[1:]}")


def _compacted(history: History, folded: Folded) -> Iterator[Violation]:
    """Who reads the ledger only now, after compaction, ends with the same rows."""
    if history.compacted is None:
        return
    late = fold(history.compacted)
    for key in sorted(folded.rows.keys() | late.rows.keys()):
        if folded.rows.get(key) != late.rows.get(key):
            text = f"compaction left {_short(late.rows.get(key))} of {_short(folded.rows.get(key))}"
            yield Violation(Wrong.DISAGREES, _name(key), text)
    for key in sorted(folded.owed):
        yield Violation(Wrong.DISAGREES, _name(key), "its last record is void and was not repaired")


def _name(key: bytes) -> str:
    return key.decode(errors="replace").replace("\0", " → ")


def _short(row: Row | None) -> str:
    if row is None:
        return "nothing"
    return f"{row.get('phase', 'an activity')} a{row.get('attempts')} f{row.get('fence')}"


# -- for a person -------------------------------------------------------------------------------


def tell(history: History, activity: str) -> str:
    """Everything about one activity, and who came to own its partition, in order of time."""
    folded = fold(history.ledger)
    lines: list[tuple[float, str]] = []
    own = activity.encode()
    ids: set[str] = set()
    partitions: set[int] = set()
    for entry in history.ledger:
        if entry.key.partition(ZERO)[0] == own:
            void = "VOID " if (entry.partition, entry.offset) in folded.void else ""
            row = entry.row or {}
            if entry.is_delivery and row:
                ids.add(row["delivery_id"])
            partitions.add(entry.partition)
            what = f"{row.get('phase', '')} a{row.get('attempts')} b{row.get('budget')} {row.get('code')}"
            text = f"ledger   @{entry.offset} {void}{entry.kind} e={entry.epoch} t={entry.token.hex()[:6]}"
            lines.append((entry.t_ms / 1000, f"{text} {what} {row.get('target', '')}"))
    for entry in history.ledger:
        if entry.kind == "OWNER" and entry.partition in partitions:
            text = f"ledger   @{entry.offset} OWNER of {entry.partition} t={entry.token.hex()[:6]}"
            lines.append((entry.t_ms / 1000, text))
    lines += [
        (s.t_ms / 1000, f"source   {s.partition}@{s.offset} for {s.targets}")
        for s in history.sources
        if s.activity == activity
    ]
    lines += [
        (r.t_ms / 1000, f"retry    {r.topic} {r.partition}@{r.offset} due {r.due_ms} {r.items}")
        for r in history.retries
        if r.activity == activity
    ]
    lines += [
        (c.t, f"call     {c.id} attempt {c.attempt} {c.path} {c.status}")
        for c in history.calls
        if c.id.rpartition("-")[0] in ids
    ]
    lines += [
        (
            r.t_ms / 1000,
            f"receipt  {r.fields['verdict']} a{r.fields['attempts']} {r.fields['target']}",
        )
        for r in history.receipts
        if r.activity == activity
    ]
    lines += [
        (r.t_ms / 1000, f"letter   {r.partition}@{r.offset} {r.deliveries}")
        for r in history.letters
        if r.activity == activity
    ]
    lines += [
        (
            c.t_ms / 1000,
            f"command  {c.partition}@{c.offset} {c.fields.get('kind')} {c.fields.get('verdict')}",
        )
        for c in history.commands
        if c.activity == activity
    ]
    return "\n".join(f"{t:.3f} {text}" for t, text in sorted(lines))
