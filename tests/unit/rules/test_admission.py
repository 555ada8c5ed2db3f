"""Whether an activity's record is new, a redelivery, a duplicate or a conflict (D-006/007)."""

from __future__ import annotations

import pytest

from streams.model.ledger import ActivityRow, Admission
from streams.model.values import replace
from streams.rules.admission import DELIVERIES_MAX, Admitted, admit

NOW = 1_767_225_600_000
DAY = 86_400_000
A, B, C = b"aaaaaaaa", b"bbbbbbbb", b"cccccccc"
SEEN = ActivityRow(
    canonical_hash=b"h" * 32, activity_id="urn:1", tenant="default", first_seen_ms=NOW
)


def given(known: ActivityRow | None, *recipients: bytes, offset: int = 5, record_ms: int = NOW):
    return admit(
        known,
        SEEN,
        recipients,
        offset=offset,
        record_ms=record_ms,
        now_ms=NOW,
        dedupe_window_ms=7 * DAY,
    )


def known(*admissions: tuple[int, bytes]) -> ActivityRow:
    return replace(
        SEEN,
        first_seen_ms=NOW - 100,
        admissions=tuple(Admission(offset=o, targets=t) for o, t in admissions),
    )


def test_an_unknown_activity_is_new_and_owns_its_recipients():
    """D-006: it is written down before anything is sent."""
    decision = given(None, A, B)

    assert (Admitted.NEW, (0, 1), ()) == (decision.kind, decision.owned, decision.repeated)
    assert replace(SEEN, admissions=(Admission(offset=5, targets=A + B),)) == decision.row
    assert 2 == decision.row.deliveries


def test_the_record_that_was_admitted_is_redelivered():
    """C-15: after a crash its deliveries go on where they stand; it is no duplicate of itself."""
    row = known((5, A + B))

    decision = given(row, A, B)

    assert (Admitted.REDELIVERED, (0, 1), ()) == (decision.kind, decision.owned, decision.repeated)
    assert row is decision.row


def test_another_record_of_the_same_activity_is_a_duplicate():
    """D-006: the existing record stands, nothing is sent."""
    row = known((3, A + B))

    decision = given(row, A, B)

    assert (Admitted.DUPLICATE, (), (0, 1)) == (decision.kind, decision.owned, decision.repeated)
    assert row is decision.row


def test_other_content_under_the_same_id_is_a_conflict():
    """D-007: visible to the producer, nothing is sent, not even to recipients that are new."""
    row = replace(known((3, A)), canonical_hash=b"x" * 32)

    decision = given(row, A, C)

    assert (Admitted.CONFLICT, (), ()) == (decision.kind, decision.owned, decision.repeated)
    assert row is decision.row


def test_further_recipients_are_new_and_the_others_are_not():
    """D-007: the same activity with further recipients delivers to the new ones only."""
    decision = given(known((3, A)), A, C)

    assert (Admitted.NEW, (1,), (0,)) == (decision.kind, decision.owned, decision.repeated)
    assert ((3, A), (5, C)) == tuple((a.offset, a.targets) for a in decision.row.admissions)
    assert 2 == decision.row.deliveries


def test_a_redelivered_record_of_further_recipients_owns_those_only():
    """The offset tells which record answers for whom."""
    decision = given(known((3, A), (5, C)), A, C)

    assert (Admitted.REDELIVERED, (1,), (0,)) == (decision.kind, decision.owned, decision.repeated)


@pytest.mark.parametrize(
    ("record_ms", "kind"), [(NOW - 7 * DAY, Admitted.NEW), (NOW - 7 * DAY - 1, Admitted.TOO_OLD)]
)
def test_an_unknown_record_older_than_the_window_is_not_sent(record_ms, kind):
    """Design §1: it may have been delivered and forgotten; the limit itself still holds."""
    decision = given(None, A, record_ms=record_ms)

    assert (kind, (0,)) == (decision.kind, decision.owned)
    assert (Admission(offset=5, targets=A),) == decision.row.admissions


def test_an_old_record_of_a_known_activity_is_no_reason_to_refuse_it():
    """As long as the activity is remembered, nothing of it can have been forgotten."""
    assert Admitted.NEW is given(known((3, A)), C, record_ms=NOW - 30 * DAY).kind
    assert Admitted.DUPLICATE is given(known((3, A)), A, record_ms=NOW - 30 * DAY).kind


def test_a_record_refused_for_its_age_stays_refused_when_it_comes_again():
    """Design §1: a crash between its row and its dead letter must not have it sent after all."""
    refused = given(None, A, record_ms=NOW - 30 * DAY).row

    again = given(refused, A, record_ms=NOW - 30 * DAY)

    assert (Admitted.TOO_OLD, (0,), refused) == (again.kind, again.owned, again.row)


def test_a_record_that_waited_in_the_topic_for_long_goes_on():
    """Only its age when it first came counts: a long outage after that refuses nothing."""
    row = replace(known((5, A)), first_seen_ms=NOW - 6 * DAY)

    assert Admitted.REDELIVERED is given(row, A, record_ms=NOW - 8 * DAY).kind


def test_an_activity_cannot_come_to_more_deliveries_than_one_dead_letter_holds():
    """E08: a dead letter too large for its topic could never be written, and its partition would stand."""
    full = known((3, b"".join(n.to_bytes(8, "big") for n in range(DELIVERIES_MAX - 1))))

    assert Admitted.NEW is given(full, A).kind
    assert Admitted.TOO_MANY is given(full, A, B).kind
    assert full is given(full, A, B).row
