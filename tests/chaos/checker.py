"""Holds a round's history against the promises of spec.md §2–§4 and ledger.md.

Separate from the product's code on purpose: it has its own reading, its own fold and its own idea of
what may follow what. `tests/unit/test_checker.py` feeds it histories with each rule broken.
"""

from __future__ import annotations

from tests.chaos import rules_of_calls, rules_of_ledger, rules_of_rest, rules_of_telling
from tests.chaos.folding import fold
from tests.chaos.history import History
from tests.chaos.violations import Violation


def check(history: History, *, at_rest: bool) -> list[Violation]:
    """Every promise that the history breaks.

    Args:
        at_rest: Nobody disturbs any more and there was time to finish: now nothing may be open.
    """
    folded = fold(history.ledger)
    found = [
        *(rules_of_ledger.complete(history) if history.is_whole else ()),
        *rules_of_ledger.moves(history, folded),
        *rules_of_ledger.forgotten(history, folded),
        *rules_of_calls.calls(history, folded),
        *rules_of_calls.effects(history, folded),
        *rules_of_rest.owed(history, folded, at_rest),
    ]
    if at_rest:
        # While records still come, a receipt may have been read before its row, a row before its call.
        found += [
            *rules_of_calls.answers(history, folded),
            *rules_of_telling.receipts_true(history, folded),
            *rules_of_rest.standing(history),
            *rules_of_telling.letters(history, folded),
            *rules_of_telling.receipts_whole(history, folded),
            *rules_of_telling.compacted(history, folded),
        ]
    return found
