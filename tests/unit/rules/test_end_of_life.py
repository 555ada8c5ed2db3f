"""When an activity may be forgotten (design §3, "End of life")."""

from __future__ import annotations

import pytest

from streams.model.ledger import ActivityRow, Admission, Phase, Row
from streams.rules.end_of_life import LOOK_AGAIN_MS, keep_until

NOW, DAY = 1_767_225_600_000, 86_400_000
WEEK = 7 * DAY


def activity(deliveries: int) -> ActivityRow:
    return ActivityRow(
        canonical_hash=b"h" * 32,
        activity_id="urn:1",
        tenant="default",
        first_seen_ms=NOW - 30 * DAY,
        admissions=(Admission(offset=1, targets=b"t" * 8 * deliveries),),
    )


def row(phase: Phase, settled_ms: int = 0) -> Row:
    return Row(phase=phase, delivery_id="dlv_1", target="crm", settled_ms=settled_ms)


def kept(deliveries: int, *rows: Row) -> int | None:
    return keep_until(activity(deliveries), list(rows), now_ms=NOW, dedupe_window_ms=WEEK)


def test_what_was_settled_longer_ago_than_the_window_may_be_forgotten():
    """D-006: a repetition that comes after the window is older than the window, and is not sent."""
    assert kept(1, row(Phase.SENT, NOW - WEEK)) is None
    assert kept(2, row(Phase.SENT, NOW - 9 * DAY), row(Phase.SKIPPED, NOW - 8 * DAY)) is None


def test_the_window_counts_from_the_last_settlement():
    """D-006: a duplicate of it is recognised for a whole window after the last delivery ended."""
    last = NOW - DAY

    assert last + WEEK == kept(2, row(Phase.SENT, NOW - 20 * DAY), row(Phase.SENT, last))


@pytest.mark.parametrize("phase", [Phase.QUEUED, Phase.CLAIMED, Phase.WAITING, Phase.DEAD])
def test_what_is_open_or_a_dead_letter_is_kept(phase: Phase):
    """C-16: a dead letter that nobody resolved is not forgotten, however old it is."""
    assert NOW + LOOK_AGAIN_MS == kept(2, row(Phase.SENT, NOW - 20 * DAY), row(phase))


def test_rows_whose_activity_is_gone_are_forgotten_once_they_are_settled():
    """What a crash left of a burial: the activity's tombstone lies first."""

    def orphans(*rows: Row) -> int | None:
        return keep_until(None, list(rows), now_ms=NOW, dedupe_window_ms=WEEK)

    assert orphans(row(Phase.SENT, NOW - WEEK)) is None
    assert NOW + LOOK_AGAIN_MS == orphans(row(Phase.SENT, NOW - WEEK), row(Phase.DEAD))


def test_a_delivery_that_was_never_claimed_keeps_its_activity():
    """It has no row, but the activity's own row counts it: it waits in a delay topic."""
    assert NOW + LOOK_AGAIN_MS == kept(2, row(Phase.SENT, NOW - 20 * DAY))
