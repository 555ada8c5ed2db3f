"""What the targets saw: no call without a claim, no second effect, no verdict without its answer."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.chaos.folding import Folded, claims, deliveries, message_id
from tests.chaos.history import History
from tests.chaos.violations import SETTLED, Violation, Wrong, name_of


def calls(history: History, folded: Folded) -> Iterator[Violation]:
    """Each call has a valid claim of its own: no attempt is called twice, whoever owned it."""
    claimed: Counter[tuple[str, int]] = Counter()
    names: dict[str, str] = {}
    for key, row in claims(folded):
        claimed[message_id(row), row["attempts"]] += 1
        names[message_id(row)] = name_of(key)
    called = Counter((call.id, call.attempt) for call in history.calls)
    for (call_id, attempt), count in called.items():
        granted = claimed[call_id, attempt]
        if count > granted:
            text = f"attempt {attempt} of {call_id} was called {count} times, claimed {granted}"
            yield Violation(Wrong.OVER_BUDGET, names.get(call_id, call_id), text)


def may_have_acted(status: int | None) -> bool:
    """Whether a call with this answer may have had its effect (spec §3).

    The receiver answers 503 without Retry-After, so every 5xx leaves it open.
    """
    return status is None or 200 <= status < 300 or status >= 500


def effects(history: History, folded: Folded) -> Iterator[Violation]:
    """A target that is not idempotent acts at most once in each budget (ledger.md, "Records")."""
    budgets: defaultdict[str, set[int]] = defaultdict(set)
    names: dict[str, str] = {}
    for key, row in claims(folded):
        if row["target"] in history.strict:
            budgets[message_id(row)].add(row["budget"])
            names[message_id(row)] = name_of(key)
    acted = Counter(c.id for c in history.calls if may_have_acted(c.status))
    for call_id, allowed in budgets.items():
        if acted[call_id] > len(allowed):
            text = f"{call_id} may have acted {acted[call_id]} times at a target that is not idempotent"
            yield Violation(Wrong.UNSAFE_DUPLICATE, names[call_id], text)


def answers(history: History, folded: Folded) -> Iterator[Violation]:
    """A verdict with a status rests on a call that got this status."""
    seen = {(c.id, c.attempt, c.status) for c in history.calls}
    for key, row in deliveries(folded):
        if row["phase"] == "sent" and not 200 <= row["status"] < 300:
            yield Violation(Wrong.DISAGREES, name_of(key), f"sent, with status {row['status']}")
        told = (message_id(row), row["attempts"], row["status"])
        if row["phase"] in SETTLED and row["status"] and told not in seen:
            text = f"{row['phase']} with status {row['status']}, which no call got"
            yield Violation(Wrong.DISAGREES, name_of(key), text)
