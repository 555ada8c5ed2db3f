"""The checker of the chaos rounds, fed with a history in order and with each promise broken."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from streams.model.values import replace
from tests.chaos.checker import check
from tests.chaos.history import (
    OWNER_KEY,
    Call,
    History,
)
from tests.chaos.story import tell
from tests.chaos.violations import Wrong
from tests.unit.broken_histories import (
    BROKEN,
    INBOX,
    OWED,
    STRICT,
    WAITS,
    entry,
    forget,
    good,
    more,
    receipt,
    row,
    source,
)


def test_a_history_in_order_breaks_nothing() -> None:
    """A checker that complains of what is right would soon be ignored."""
    history = good()
    history.compacted = [e for e in history.ledger if e.offset not in (2, 3, 4, 6)]

    assert [] == check(history, at_rest=True)


def test_what_is_still_to_come_is_no_fault_before_the_end() -> None:
    """Scheduled is not lost: an uncommitted record will move it."""
    history = good()
    history.sources += [source(2, "a3", INBOX), source(3, "a4", INBOX)]
    more(history, entry(8, "CLAIM", WAITS, row("d3", "claimed")))

    assert [] == check(history, at_rest=False)
    assert {Wrong.STUCK} == {found.wrong for found in check(history, at_rest=True)}


def test_a_void_record_changes_nothing() -> None:
    """ledger.md, rule 1: a frozen worker's claim and report, landed behind the next OWNER."""
    history = good()
    more(
        history,
        entry(8, "OWNER", OWNER_KEY, epoch=None),
        entry(9, "REPORT", OWED, row("d1", "dead", 2, code="late"), epoch=0),
        entry(10, "REPAIR", OWED, row("d1", "sent", 2, status=200, fence=4), epoch=8),
    )

    assert [] == check(history, at_rest=True)


def test_a_redriven_delivery_may_act_once_more() -> None:
    """ledger.md, "Records": a redrive is an operator's word that one more is wanted."""
    history = good()
    again = {"budget": 2, "fence": 6}
    more(
        history,
        entry(8, "REDRIVE", STRICT, row("d2", "queued", 0, **again)),
        entry(9, "CLAIM", STRICT, row("d2", "claimed", 1, **again)),
        entry(10, "REPORT", STRICT, row("d2", "sent", 1, status=200, budget=2, fence=9)),
    )
    history.calls.append(Call(t=9.5, id="d2-1", attempt=1, path="/", status=200))
    history.receipts.append(receipt("d2", "sent", 1, 200))
    history.letters.append(
        replace(history.letters[0], offset=1, deliveries=None),
    )

    assert [] == check(history, at_rest=True)


def test_what_waits_may_be_cancelled() -> None:
    """D-008: it is skipped without a claim of its own, and told like any other end."""
    history = good()
    history.ledger = [
        *history.ledger[:4],
        entry(4, "REPORT", OWED, row("d1", "skipped", 1, code="cancelled", fence=2)),
        *(replace(later, offset=later.offset - 1) for later in history.ledger[6:]),
    ]
    history.receipts[0] = receipt("d1", "skipped", 1, 0)
    del history.calls[1]

    assert [] == check(history, at_rest=True)


def test_a_settled_activity_may_be_forgotten_after_its_window() -> None:
    """design §3: its rows become tombstones together; a record that is younger is a new activity."""
    history = good()
    forget(history)
    history.sources.append(replace(source(2, "a1", INBOX), t_ms=120))
    history.committed["outbox", 0] = history.ends["outbox", 0] = 3
    again = row("d1", "sent", status=200, fence=10, settled_ms=122)
    more(history, entry(10, "CLAIM", OWED, row("d1", "claimed")), entry(11, "REPORT", OWED, again))
    history.calls.append(replace(history.calls[1], attempt=1))
    history.receipts.append(receipt("d1", "sent", 1, 200))

    assert [] == check(history, at_rest=True)


def test_of_a_part_of_the_activities_no_hole_is_asked_for() -> None:
    """A soak shows the checker one activity in twenty: the ledger's offsets have gaps by design."""
    history = good()
    del history.ledger[1]
    history.is_whole = False

    assert [] == check(history, at_rest=True)


@pytest.mark.parametrize(
    ("breaks", "wrong", "says"),
    BROKEN,
    ids=[breaks.__name__.strip("_") for breaks, _, _ in BROKEN],
)
def test_a_broken_promise_is_found(
    breaks: Callable[[History], None], wrong: Wrong, says: str
) -> None:
    """Each of the checker's rules finds what it is there for, and says what."""
    history = good()
    breaks(history)

    found = check(history, at_rest=True)
    assert [one for one in found if one.wrong is wrong and says in one.text], found


def test_the_story_of_an_activity_says_what_was_void() -> None:
    """A failed round is read by a person: calls, ledger records, owners, in order."""
    history = good()
    more(
        history,
        entry(8, "OWNER", OWNER_KEY, epoch=None),
        entry(9, "REPORT", OWED, row("d1", "dead", 2, code="late"), epoch=0),
    )
    told = tell(history, "a1")

    assert "@9 VOID REPORT" in told
    assert "OWNER of 0" in told
    assert "d1-1 attempt 2" in told
