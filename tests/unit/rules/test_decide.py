"""What an event does to a delivery: every phase, every event, and each bound."""

from __future__ import annotations

from typing import get_args

import pytest

from streams.model.ledger import FailurePhase, Phase, Row
from streams.model.policy import ACTIVITY, NOTIFICATION
from streams.model.values import replace
from streams.model.verdict import Judgement, Verdict
from streams.rules.decide import (
    CODE_CANCELLED,
    CODE_EXPIRED,
    LOST,
    NOT_CALLED,
    CancelAsked,
    ClaimAsked,
    EffectMode,
    Event,
    Fresh,
    Judged,
    RedriveAsked,
    Turned,
    decide,
    is_cancelled,
)

NOW = 1_767_225_600_000
TOKEN = b"0123456789abcdef"
POLICY = ACTIVITY

SENT = Judgement(verdict=Verdict.SENT, code="http_200", status=200, provider_message_id="m1")
BUSY = Judgement(
    verdict=Verdict.RETRY, code="http_503", status=503, phase=FailurePhase.REJECTED_TRANSIENT
)
REFUSED = Judgement(
    verdict=Verdict.REFUSED, code="http_400", status=400, phase=FailurePhase.REJECTED_PERMANENT
)
UNKNOWN = Judgement(
    verdict=Verdict.AMBIGUOUS, code="read_timeout", phase=FailurePhase.AMBIGUOUS_POST_CALL
)
SKIPPED = Judgement(verdict=Verdict.SKIPPED, code="left")

EVENTS: dict[type, Event] = {
    ClaimAsked: ClaimAsked(TOKEN),
    Judged: Judged(BUSY),
    Turned: Turned(FailurePhase.ADMISSION, "target_unknown"),
    RedriveAsked: RedriveAsked("dlv_1.1", EffectMode.RECONCILE_REPLAY),
    CancelAsked: CancelAsked("dlv_1.1"),
}

MOVES = {
    (Phase.QUEUED, ClaimAsked): Phase.CLAIMED,
    (Phase.QUEUED, Judged): None,
    (Phase.QUEUED, Turned): Phase.DEAD,
    (Phase.QUEUED, RedriveAsked): None,
    (Phase.QUEUED, CancelAsked): Phase.SKIPPED,
    (Phase.CLAIMED, ClaimAsked): None,
    (Phase.CLAIMED, Judged): Phase.WAITING,
    (Phase.CLAIMED, Turned): None,
    (Phase.CLAIMED, RedriveAsked): None,
    (Phase.CLAIMED, CancelAsked): None,
    (Phase.WAITING, ClaimAsked): Phase.CLAIMED,
    (Phase.WAITING, Judged): None,
    (Phase.WAITING, Turned): Phase.DEAD,
    (Phase.WAITING, RedriveAsked): None,
    (Phase.WAITING, CancelAsked): Phase.SKIPPED,
    (Phase.SENT, ClaimAsked): None,
    (Phase.SENT, Judged): None,
    (Phase.SENT, Turned): None,
    (Phase.SENT, RedriveAsked): None,
    (Phase.SENT, CancelAsked): None,
    (Phase.DEAD, ClaimAsked): None,
    (Phase.DEAD, Judged): None,
    (Phase.DEAD, Turned): None,
    (Phase.DEAD, RedriveAsked): Phase.QUEUED,
    (Phase.DEAD, CancelAsked): None,
    (Phase.SKIPPED, ClaimAsked): None,
    (Phase.SKIPPED, Judged): None,
    (Phase.SKIPPED, Turned): None,
    (Phase.SKIPPED, RedriveAsked): None,
    (Phase.SKIPPED, CancelAsked): None,
}
"""Every phase and every event: what the row becomes, None for "nothing to do"."""


def row(phase: Phase = Phase.CLAIMED, **changes: object) -> Row:
    spent = 0 if phase is Phase.QUEUED else 1
    made = Row(
        phase=phase,
        delivery_id="dlv_1",
        target="crm",
        attempts=spent,
        token=TOKEN if spent else b"",
        fence=7 if spent else -1,
        admitted_ms=NOW - 1_000,
        first_claim_ms=NOW - 500 if spent else 0,
        claimed_ms=NOW - 500 if spent else 0,
        lease_ms=POLICY.lease_ms if spent else 0,
    )
    return replace(made, **changes)


def after(state: Row, event: Event, *, now_ms: int = NOW, jitter=0.0, idempotent=False) -> Row:
    made = decide(state, event, now_ms=now_ms, jitter=jitter, policy=POLICY, idempotent=idempotent)
    assert made is not None
    return made


# ── The matrix ──


def test_every_phase_and_every_event_has_its_place():
    """A new phase, or a new event, fails here until somebody says what it does."""
    assert {(phase, event) for phase in Phase for event in get_args(Event)} == set(MOVES)
    assert set(get_args(Event)) == set(EVENTS)


@pytest.mark.parametrize(("phase", "event", "becomes"), [(*pair, to) for pair, to in MOVES.items()])
def test_an_event_moves_a_phase_where_the_matrix_says_or_changes_nothing(phase, event, becomes):
    """D-008, D-004: total; what is misplaced, late or repeated changes nothing."""
    made = decide(
        row(phase), EVENTS[event], now_ms=NOW, jitter=0.0, policy=POLICY, idempotent=False
    )

    assert becomes == (None if made is None else made.phase)


@pytest.mark.parametrize(("phase", "event"), [pair for pair, to in MOVES.items() if to is not None])
def test_a_repeated_event_changes_nothing(phase, event):
    """Idempotent: whatever is delivered twice is done once."""
    once = after(row(phase), EVENTS[event])

    again = decide(once, EVENTS[event], now_ms=NOW, jitter=0.0, policy=POLICY, idempotent=False)

    assert again is None


# ── Claims ──


def test_an_attempt_is_counted_when_it_is_claimed():
    """C-01, O-014: an attempt that is lost in a crash is spent; whoever settles it adds nothing."""
    claimed = after(row(Phase.WAITING, attempts=3), ClaimAsked(TOKEN))

    assert 4 == claimed.attempts
    assert 4 == after(claimed, Judged(BUSY)).attempts
    assert 4 == after(claimed, Judged(LOST), idempotent=True).attempts


def test_a_delivery_without_a_row_counts_from_nothing():
    """O-043: an entry without a count has 0."""
    fresh = Fresh(delivery_id="dlv_1", target="crm", admitted_ms=NOW).row()

    assert (Phase.QUEUED, 0, -1) == (fresh.phase, fresh.attempts, fresh.fence)
    assert 1 == after(fresh, ClaimAsked(TOKEN)).attempts


def test_a_claim_fixes_its_lease_and_whether_its_effect_may_be_repeated():
    """C-07: a lost claim is judged by what it was made under, not by what the registry says then."""
    claimed = after(row(Phase.QUEUED), ClaimAsked(TOKEN), idempotent=True)

    assert (True, POLICY.lease_ms, NOW) == (
        claimed.idempotent,
        claimed.lease_ms,
        claimed.claimed_ms,
    )


def test_the_elapsed_limit_counts_from_the_first_claim():
    """C-02: a second claim does not move it."""
    first = after(row(Phase.QUEUED), ClaimAsked(TOKEN))
    second = after(after(first, Judged(BUSY)), ClaimAsked(TOKEN), now_ms=NOW + 60_000)

    assert (NOW, NOW) == (first.first_claim_ms, second.first_claim_ms)


def test_a_claim_beyond_the_last_attempt_is_a_dead_letter():
    """O-001: the count is durable, and bounds every way that leads to a call."""
    spent = row(Phase.WAITING, attempts=POLICY.max_attempts, failure_phase=FailurePhase.CONNECT)

    dead = after(spent, ClaimAsked(TOKEN))

    assert (Phase.DEAD, "attempts_exhausted", FailurePhase.CONNECT, POLICY.max_attempts) == (
        dead.phase,
        dead.code,
        dead.failure_phase,
        dead.attempts,
    )


@pytest.mark.parametrize("phase", [Phase.QUEUED, Phase.WAITING])
def test_a_claim_past_the_maximum_age_is_a_dead_letter(phase):
    """C-17: waiting ends too, with phase `claim` and code `expired`; the bound itself still holds."""
    old = row(phase, admitted_ms=NOW - POLICY.max_age_ms)

    assert Phase.CLAIMED is after(old, ClaimAsked(TOKEN)).phase
    dead = after(old, ClaimAsked(TOKEN), now_ms=NOW + 1)

    assert (Phase.DEAD, CODE_EXPIRED, FailurePhase.CLAIM) == (
        dead.phase,
        dead.code,
        dead.failure_phase,
    )


# ── Verdicts ──


def test_a_sent_delivery_keeps_what_can_be_checked_outside():
    """D-070, D-071: status and the provider's id, and no failure."""
    sent = after(row(failure_phase=FailurePhase.CONNECT), Judged(SENT))

    assert (Phase.SENT, 200, "m1", None, NOW) == (
        sent.phase,
        sent.status,
        sent.provider_message_id,
        sent.failure_phase,
        sent.settled_ms,
    )


def test_a_refusal_is_a_dead_letter_at_once():
    """O-026, O-027, O-029: no further call, however many attempts are left."""
    dead = after(row(), Judged(REFUSED), idempotent=True)

    assert (Phase.DEAD, FailurePhase.REJECTED_PERMANENT, "http_400", False) == (
        dead.phase,
        dead.failure_phase,
        dead.code,
        dead.reconciliation_required,
    )


def test_an_unknown_effect_is_never_tried_again_by_itself():
    """D-010..013, C-03: dead-lettered with `reconciliation_required`."""
    dead = after(row(), Judged(UNKNOWN))

    assert (Phase.DEAD, FailurePhase.AMBIGUOUS_POST_CALL, True) == (
        dead.phase,
        dead.failure_phase,
        dead.reconciliation_required,
    )


def test_an_idempotent_target_is_tried_again_after_an_unknown_effect():
    """O-028, C-03: it recognises a repeated id."""
    waiting = after(row(), Judged(UNKNOWN), idempotent=True)

    assert (Phase.WAITING, False) == (waiting.phase, waiting.reconciliation_required)


def test_a_claim_whose_lease_ran_out_is_ambiguous():
    """C-07: a worker that froze past its lease may have called; the next one must not."""
    lost = after(row(), Judged(LOST))

    assert (Phase.DEAD, "lease_lost", True) == (lost.phase, lost.code, lost.reconciliation_required)
    assert Phase.WAITING is after(row(), Judged(LOST), idempotent=True).phase


def test_an_attempt_that_was_not_called_is_tried_again_and_spent():
    """Rule 3, C-01: the claim came back too late; nothing happened, so it may be repeated."""
    waiting = after(row(), Judged(NOT_CALLED))

    assert (Phase.WAITING, 1, FailurePhase.CLAIM) == (
        waiting.phase,
        waiting.attempts,
        waiting.failure_phase,
    )


def test_a_delivery_whose_member_left_is_skipped():
    """D-022: neither sent nor failed."""
    assert Phase.SKIPPED is after(row(), Judged(SKIPPED)).phase


@pytest.mark.parametrize(
    ("verdict", "is_settled"),
    [(SENT, True), (BUSY, False), (REFUSED, True), (UNKNOWN, True), (SKIPPED, True)],
)
def test_every_verdict_closes_the_claim(verdict, is_settled):
    """D-008: no verdict leaves a delivery running."""
    assert is_settled == after(row(), Judged(verdict)).phase.is_settled


def test_the_last_attempt_that_fails_is_a_dead_letter():
    """O-016..018, O-021: the dead letter says why it was given up and what the last attempt saw."""
    dead = after(row(attempts=POLICY.max_attempts), Judged(BUSY))

    assert (Phase.DEAD, "attempts_exhausted", "http_503", FailurePhase.REJECTED_TRANSIENT) == (
        dead.phase,
        dead.code,
        dead.cause,
        dead.failure_phase,
    )


@pytest.mark.parametrize(
    ("changes", "hint", "code", "phase"),
    [
        (
            {"first_claim_ms": NOW - POLICY.max_elapsed_ms},
            (),
            "elapsed_exhausted",
            FailurePhase.REJECTED_TRANSIENT,
        ),
        ({}, ("90000",), "retry_after_too_long", FailurePhase.REJECTED_TRANSIENT),
        ({"admitted_ms": NOW - POLICY.max_age_ms}, (), "expired", FailurePhase.CLAIM),
    ],
)
def test_a_retry_that_no_bound_allows_is_a_dead_letter_with_its_own_code(
    changes, hint, code, phase
):
    """C-02, C-06, C-17: never an early retry instead."""
    dead = after(row(**changes), Judged(replace(BUSY, retry_after=hint)))

    assert (Phase.DEAD, code, phase) == (dead.phase, dead.code, dead.failure_phase)


def test_a_retry_waits_at_least_as_long_as_the_target_asked():
    """D-018, D-019: and jitter comes on top."""
    asked = replace(BUSY, retry_after=("20",))

    assert NOW + 20_000 == after(row(), Judged(asked)).due_ms
    assert NOW + 20_000 + POLICY.jitter_ms == after(row(), Judged(asked), jitter=1.0).due_ms


def test_a_policy_bounds_what_it_is_given():
    """C-02: the notification policy gives up after its 5 attempts, where `activity` goes on."""
    fifth = row(attempts=NOTIFICATION.max_attempts)

    dead = decide(
        fifth, Judged(BUSY), now_ms=NOW, jitter=0.0, policy=NOTIFICATION, idempotent=False
    )

    assert Phase.DEAD is dead.phase
    assert Phase.WAITING is after(fifth, Judged(BUSY)).phase


# ── Turned away ──


def test_what_cannot_be_called_is_a_dead_letter_without_an_attempt():
    """D-009: phase and code of whoever turned it away; O-033: no attempt is spent."""
    dead = after(row(Phase.QUEUED), Turned(FailurePhase.HYDRATE, "target_unknown"))

    assert (Phase.DEAD, 0, FailurePhase.HYDRATE, "target_unknown") == (
        dead.phase,
        dead.attempts,
        dead.failure_phase,
        dead.code,
    )


# ── Redrives ──

DEAD = row(
    Phase.DEAD,
    attempts=12,
    status=503,
    code="attempts_exhausted",
    cause="http_503",
    failure_phase=FailurePhase.REJECTED_TRANSIENT,
    settled_ms=NOW - 10,
    reconciliation_required=True,
)


@pytest.mark.parametrize(
    ("mode", "generation"), [(EffectMode.RECONCILE_REPLAY, 1), (EffectMode.NEW_EXTERNAL_SEND, 2)]
)
def test_a_redrive_opens_a_new_budget(mode, generation):
    """
    C-12, D-066..069: its own attempts; the generation, and with it the provider's idempotency key, grows
    only with `new_external_send`; the fence never falls.
    """
    queued = after(DEAD, RedriveAsked(DEAD.letter_id, mode))

    assert (Phase.QUEUED, 0, 2, generation, DEAD.fence, NOW) == (
        queued.phase,
        queued.attempts,
        queued.budget,
        queued.generation,
        queued.fence,
        queued.admitted_ms,
    )
    assert f"dlv_1-{generation}" == queued.message_id
    assert ("", "", 0, None, False) == (
        queued.code,
        queued.cause,
        queued.status,
        queued.failure_phase,
        queued.reconciliation_required,
    )


def test_a_redrive_names_the_dead_letter_that_it_opens():
    """Rule 11, C-13: a second copy of the command finds another budget and does nothing."""
    mode = EffectMode.RECONCILE_REPLAY
    dead_again = replace(DEAD, budget=2)

    again = decide(
        dead_again,
        RedriveAsked(DEAD.letter_id, mode),
        now_ms=NOW,
        jitter=0.0,
        policy=POLICY,
        idempotent=False,
    )

    assert again is None


def test_a_redriven_delivery_has_all_attempts_again():
    """C-12: the old budget does not count against the new one."""
    queued = after(DEAD, RedriveAsked(DEAD.letter_id, EffectMode.RECONCILE_REPLAY))

    claimed = after(queued, ClaimAsked(TOKEN))

    assert (Phase.CLAIMED, 1, NOW) == (claimed.phase, claimed.attempts, claimed.first_claim_ms)


# ── Cancel ──


@pytest.mark.parametrize("phase", [Phase.QUEUED, Phase.WAITING])
def test_a_cancelled_delivery_keeps_what_its_attempts_did(phase):
    """Issue 7: skipped, not due any more; an effect that may have happened stays said (B04)."""
    waiting = row(phase, due_ms=NOW + 5, status=500, cause="http_500", effect_unknown=True)
    skipped = after(waiting, CancelAsked("dlv_1.1"))

    assert skipped == replace(
        waiting,
        phase=Phase.SKIPPED,
        code=CODE_CANCELLED,
        failure_phase=None,
        due_ms=0,
        settled_ms=NOW,
    )
    assert is_cancelled(skipped, "dlv_1.1")
    assert not is_cancelled(skipped, "dlv_1.2")


@pytest.mark.parametrize("phase", [Phase.QUEUED, Phase.WAITING])
def test_a_cancel_names_a_budget(phase):
    """Rule 11: one that comes after a redrive is of the budget before."""
    event = CancelAsked("dlv_1.1")

    assert None is decide(
        row(phase, budget=2), event, now_ms=NOW, jitter=0.0, policy=POLICY, idempotent=False
    )
