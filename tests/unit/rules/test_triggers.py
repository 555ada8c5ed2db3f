"""Whether a trigger still means something, and what a row owes its producer and its operator."""

from __future__ import annotations

import pytest

from streams.model.ledger import ActivityRow, Admission, FailurePhase, Phase, Row
from streams.model.receipt import Outcome
from streams.model.values import replace
from streams.rules.triggers import (
    is_wanted_by_retry,
    is_wanted_by_source,
    letters_of,
    receipt_of,
)
from streams.wire.codec import encode_dead_letter

NOW = 1_767_225_600_000


def row(phase: Phase = Phase.DEAD, **changes: object) -> Row:
    made = Row(
        phase=phase,
        delivery_id="dlv_1",
        target="crm",
        attempts=2,
        fence=7,
        first_claim_ms=NOW - 9_000,
        settled_ms=NOW,
        status=503,
        code="attempts_exhausted",
        cause="http_503",
        failure_phase=FailurePhase.REJECTED_TRANSIENT,
    )
    return replace(made, **changes)


ACTIVITY = ActivityRow(
    canonical_hash=b"h" * 32,
    activity_id="urn:1",
    tenant="acme",
    ledger_entry_id="urn:entry",
    admissions=(Admission(offset=0, targets=b"12345678"),),
)

# ── Triggers ──


@pytest.mark.parametrize("phase", Phase)
def test_a_source_record_may_claim_what_waits_for_its_trigger(phase):
    """ledger.md: no row, or one that was redriven (D-066); a waiting retry has a record of its own."""
    assert is_wanted_by_source(None)
    assert (phase is Phase.QUEUED) == is_wanted_by_source(row(phase))


@pytest.mark.parametrize("phase", Phase)
def test_a_retry_may_claim_an_open_delivery_of_its_own_fence_and_count(phase):
    """Rule 8: a retry that was written twice, or belongs to an older claim, is stale."""
    state = row(phase)
    is_open = phase in (Phase.WAITING, Phase.QUEUED)

    assert is_open == is_wanted_by_retry(state, fence=7, attempts=2)
    assert not is_wanted_by_retry(state, fence=6, attempts=2)
    assert not is_wanted_by_retry(state, fence=8, attempts=2)
    assert not is_wanted_by_retry(state, fence=7, attempts=1)


def test_a_retry_of_an_earlier_budget_is_stale():
    """C-12: the fence survives a redrive, the count does not."""
    queued = row(Phase.QUEUED, attempts=0, budget=2)

    assert not is_wanted_by_retry(queued, fence=7, attempts=2)
    assert is_wanted_by_retry(queued, fence=7, attempts=0)


@pytest.mark.parametrize(
    ("fence", "attempts", "wanted"), [(-1, 0, True), (7, 0, False), (-1, 1, False)]
)
def test_a_delivery_that_stepped_aside_before_its_first_claim_has_no_row(fence, attempts, wanted):
    """O-033: it stepped aside without spending an attempt; nothing was written of it."""
    assert wanted == is_wanted_by_retry(None, fence=fence, attempts=attempts)


@pytest.mark.parametrize(
    ("state", "budget", "wanted"),
    [
        (None, 1, True),
        (None, 2, False),
        (row(Phase.QUEUED, attempts=0, fence=-1, budget=2), 2, True),
        (row(Phase.QUEUED, attempts=0, fence=-1, budget=2), 1, False),
        (row(Phase.QUEUED, attempts=0, fence=-1, budget=2), None, True),
    ],
    ids=["first", "never redriven", "after its redrive", "before it", "of an older version"],
)
def test_before_the_first_claim_the_budget_tells_a_retry_from_an_earlier_one(state, budget, wanted):
    """D-066: what was turned away and redriven waits for its replay; its old retry is none."""
    assert wanted == is_wanted_by_retry(state, fence=-1, attempts=0, budget=budget)


# ── Receipts ──


@pytest.mark.parametrize("phase", [Phase.QUEUED, Phase.CLAIMED, Phase.WAITING])
def test_an_open_delivery_owes_no_receipt(phase):
    """O-022: "not yet" and "never" are told apart."""
    assert receipt_of(row(phase), "urn:1", "acme") is None


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({"phase": Phase.SENT}, Outcome.SENT),
        ({"phase": Phase.SKIPPED}, Outcome.SKIPPED),
        ({"reconciliation_required": True}, Outcome.AMBIGUOUS),
        ({"code": "expired"}, Outcome.EXPIRED),
        ({"code": "attempts_exhausted"}, Outcome.EXHAUSTED),
        ({"code": "elapsed_exhausted"}, Outcome.EXHAUSTED),
        ({"code": "retry_after_too_long"}, Outcome.EXHAUSTED),
        ({"code": "http_400"}, Outcome.REFUSED),
        ({"code": "target_unknown"}, Outcome.REFUSED),
    ],
)
def test_a_receipt_says_how_a_delivery_ended(changes, outcome):
    """interface.md §3: what a producer consumes to learn that it is done."""
    receipt = receipt_of(row(**changes), "urn:1", "acme")

    assert outcome is receipt.verdict
    assert ("urn:1", "acme", "dlv_1", "crm", 2, NOW - 9_000, NOW) == (
        receipt.activity_id,
        receipt.tenant,
        receipt.delivery_id,
        receipt.target,
        receipt.attempts,
        receipt.started_ms,
        receipt.settled_ms,
    )


# ── Dead letters ──


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.DEAD])
def test_an_activity_of_which_nothing_is_given_up_has_no_dead_letter(phase):
    """C-16: None is a tombstone."""
    assert letters_of(ACTIVITY, [row(phase)]) is None
    assert letters_of(ACTIVITY, []) is None


def test_a_dead_letter_holds_what_an_operator_needs_and_no_content():
    """O-018, O-023, D-059, D-070: ids, phase, codes and counts; the ledger entry of the activity."""
    letter = letters_of(ACTIVITY, [row(), row(Phase.SENT, delivery_id="dlv_2")])

    (entry,) = letter.deliveries
    assert ("urn:1", "acme", "outbox", "urn:entry") == (
        letter.activity_id,
        letter.tenant,
        letter.queue,
        letter.ledger_entry_id,
    )
    assert ("dlv_1.1", "dlv_1", "crm", "attempts_exhausted", "http_503", 2, 1, NOW) == (
        entry.dead_letter_id,
        entry.delivery_id,
        entry.target,
        entry.code,
        entry.cause,
        entry.attempts,
        entry.generation,
        entry.created_ms,
    )
    assert "HTTP 503 after 2 attempts: attempts_exhausted" == entry.summary


def test_a_dead_letter_is_the_same_whoever_derives_it():
    """Rule 10: derived from the rows alone, in an order of its own, so that two owners agree."""
    rows = [row(delivery_id=f"dlv_{n}") for n in (3, 1, 2)]

    assert letters_of(ACTIVITY, rows) == letters_of(ACTIVITY, rows[::-1])


def test_a_dead_letter_says_that_an_effect_is_unknown():
    """D-012: somebody has to look before it is sent again."""
    (entry,) = letters_of(ACTIVITY, [row(reconciliation_required=True, status=0)]).deliveries

    assert entry.reconciliation_required
    assert entry.summary.endswith("; the effect is unknown")


def test_a_dead_letter_of_the_largest_activity_fits_into_a_record():
    """interface.md §3: 1,000 recipients given up, every string at its bound: less than 1 MiB."""
    rows = [
        row(
            delivery_id=f"dlv_{n:032x}",
            target="https://b.example/" + "ü" * 1_000 + str(n),
            code="c" * 60,
            cause="d" * 60,
            reconciliation_required=True,
        )
        for n in range(1_000)
    ]

    letter = letters_of(ACTIVITY, rows)

    assert letter is not None
    assert 1_000 == len(letter.deliveries)
    assert all(len(entry.target.encode()) <= 200 for entry in letter.deliveries)
    assert all(len(entry.summary.encode()) <= 200 for entry in letter.deliveries)
    assert len(encode_dead_letter(letter)) < 1 << 20
