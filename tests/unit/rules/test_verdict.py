"""The table of spec §3, cell by cell, and what a target may change of it."""

import pytest

from streams.model.ledger import FailurePhase
from streams.model.observation import BEFORE, Fault, Observation, Stage
from streams.model.policy import ACTIVITY
from streams.model.target import Target
from streams.model.verdict import Judgement, Verdict
from streams.rules.verdict import OVERRIDES, judge, may_repeat

SENT = (Verdict.SENT, None)
RETRY = (Verdict.RETRY, FailurePhase.REJECTED_TRANSIENT)
REFUSED = (Verdict.REFUSED, FailurePhase.REJECTED_PERMANENT)
AMBIGUOUS = (Verdict.AMBIGUOUS, FailurePhase.AMBIGUOUS_POST_CALL)


def target(*, idempotent=False, verdicts=None, retryable=None):
    return Target(
        key="crm",
        tenant="default",
        url="https://crm.example/hook",
        idempotent=idempotent,
        policy=ACTIVITY,
        verdicts=verdicts or {},
        retryable=retryable,
    )


def expected_of(status):
    """Spec §3, written a second time and another way."""
    if 200 <= status <= 299:
        return SENT
    if status in (408, 425, 429):
        return RETRY
    if 300 <= status <= 499:
        return REFUSED
    return AMBIGUOUS


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("status", range(100, 1000))
def test_every_status_has_the_verdict_of_the_table(status, idempotent):
    """
    O-026, O-029, C-05: whether the target is idempotent changes no verdict; unknown stays unknown.
    """
    verdict, phase = expected_of(status)

    seen = judge(Observation(status=status), target(idempotent=idempotent))

    assert seen == Judgement(
        verdict=verdict,
        code=f"http_{status}",
        phase=phase,
        status=status,
        disables_target=status == 410,
    )


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize(
    ("stage", "verdict", "phase"),
    [
        (Stage.ADDRESS, Verdict.REFUSED, FailurePhase.ADMISSION),
        (Stage.POOL, Verdict.RETRY, FailurePhase.CONNECT),
        (Stage.NAME, Verdict.RETRY, FailurePhase.CONNECT),
        (Stage.CONNECT, Verdict.RETRY, FailurePhase.CONNECT),
        (Stage.TLS, Verdict.RETRY, FailurePhase.CONNECT),
        (Stage.WRITE, *AMBIGUOUS),
        (Stage.READ, *AMBIGUOUS),
        (Stage.PROTOCOL, *AMBIGUOUS),
    ],
)
def test_every_stage_of_a_fault_has_the_verdict_of_the_table(stage, verdict, phase, idempotent):
    """
    D-009, B18, B19: before the first byte nothing happened; after it nobody knows.
    """
    seen = judge(
        Observation(fault=Fault(stage=stage, code="some_fault")), target(idempotent=idempotent)
    )

    assert seen == Judgement(verdict=verdict, code="some_fault", phase=phase)


def test_the_stages_are_complete_and_agree_with_what_is_before():
    """
    C-05: a new stage fails here until someone places it; only what is before repeats everywhere.
    """
    seen = {
        stage: judge(Observation(fault=Fault(stage=stage, code="x")), target()) for stage in Stage
    }

    repeatable = {stage for stage, judgement in seen.items() if may_repeat(judgement, False)}

    assert BEFORE - {Stage.ADDRESS} == repeatable


@pytest.mark.parametrize("verdict", sorted(OVERRIDES))
@pytest.mark.parametrize("status", [*range(100, 1000, 7), 408, 410, 429, 503])
def test_a_target_can_override_every_status(status, verdict):
    """
    C-04: the table is data. The code stays the status's own, the phase follows the verdict.
    """
    phases = dict([SENT, RETRY, REFUSED, AMBIGUOUS])

    seen = judge(Observation(status=status), target(verdicts={status: verdict.value}))

    assert (verdict, phases[verdict], f"http_{status}") == (seen.verdict, seen.phase, seen.code)


@pytest.mark.parametrize("word", ["skipped", "retyr", ""])
def test_an_override_that_is_no_verdict_of_an_answer_leaves_the_table(word):
    """
    C-04: judging is total. A target's definition is checked where it is read; what came through
    anyway must not end a worker.
    """
    seen = judge(Observation(status=404), target(verdicts={404: word}))

    assert seen.verdict is Verdict.REFUSED


@pytest.mark.parametrize("status", [408, 425, 429])
def test_an_empty_retryable_set_is_the_strict_rule(status):
    """
    O-027: with it, no 4xx is tried again.
    """
    seen = judge(Observation(status=status), target(retryable=frozenset()))

    assert REFUSED == (seen.verdict, seen.phase)


def test_a_retryable_set_replaces_the_4xx_that_are_tried_again():
    """
    C-04: 423 in, 429 out.
    """
    strict = target(retryable=frozenset({423}))

    verdicts = [judge(Observation(status=s), strict).verdict for s in (423, 429)]

    assert [Verdict.RETRY, Verdict.REFUSED] == verdicts


def test_a_retryable_set_declares_nothing_about_5xx():
    """
    D-010: statuses "worth a retry" are no proof that a 500 had no effect; `verdicts` are.
    """
    seen = judge(Observation(status=500), target(retryable=frozenset({500})))

    assert AMBIGUOUS == (seen.verdict, seen.phase)


def test_an_override_wins_over_the_retryable_set():
    """
    C-04: the more particular word counts.
    """
    seen = judge(Observation(status=429), target(retryable=frozenset(), verdicts={429: "retry"}))

    assert seen.verdict is Verdict.RETRY


@pytest.mark.parametrize("value", ["120", "Sun, 06 Nov 1994 08:49:37 GMT", "-5", "soon"])
def test_503_with_retry_after_did_not_happen(value):
    """
    Spec §3; A05, A09: the field says "refused for now", whether its value can be read or not.
    """
    seen = judge(Observation(status=503, retry_after=(value,)), target())

    assert (*RETRY, (value,)) == (seen.verdict, seen.phase, seen.retry_after)


@pytest.mark.parametrize("values", [(), ("",), (" ",)])
def test_503_without_retry_after_is_ambiguous(values):
    """
    B11: a gateway says 503 after it passed the request on, too.
    """
    assert judge(Observation(status=503, retry_after=values), target()).verdict is Verdict.AMBIGUOUS


@pytest.mark.parametrize(("status", "kept"), [(429, True), (500, True), (404, False), (200, False)])
def test_retry_after_is_kept_wherever_another_call_may_follow(status, kept):
    """
    D-018: an idempotent target's 500 is tried again, and no earlier than it asked.
    """
    seen = judge(Observation(status=status, retry_after=("20",)), target(idempotent=True))

    assert (("20",) if kept else ()) == seen.retry_after


@pytest.mark.parametrize(("verdict", "disables"), [("refused", True), ("retry", False)])
def test_410_disables_the_target_unless_it_means_something_else_there(verdict, disables):
    """
    B05: gone is gone, where the target's own contract does not say otherwise.
    """
    seen = judge(Observation(status=410), target(verdicts={410: verdict}))

    assert disables == seen.disables_target


def test_the_provider_message_id_is_kept_from_what_was_sent_only():
    """
    D-071: it names an accepted message; a refusal has none.
    """
    ids = [
        judge(Observation(status=s, provider_message_id="m-1"), target()).provider_message_id
        for s in (202, 400, 500)
    ]

    assert ["m-1", None, None] == ids


@pytest.mark.parametrize(
    ("verdict", "idempotent", "may"),
    [
        (Verdict.SENT, True, False),
        (Verdict.RETRY, False, True),
        (Verdict.RETRY, True, True),
        (Verdict.REFUSED, True, False),
        (Verdict.AMBIGUOUS, False, False),
        (Verdict.AMBIGUOUS, True, True),
        (Verdict.SKIPPED, True, False),
    ],
)
def test_only_what_is_provably_safe_may_be_repeated(verdict, idempotent, may):
    """
    D-005, D-010, D-011, O-028.
    """
    assert may == may_repeat(Judgement(verdict=verdict, code="x"), idempotent)


@pytest.mark.parametrize("status", [501, 505])
def test_b10_a_target_can_make_501_and_505_final(status):
    """
    B10 against spec §3 ("other 5xx: ambiguous"): the spec by default, B10 by override.
    """
    seen = judge(Observation(status=status), target(verdicts={status: "refused"}))

    assert REFUSED == (seen.verdict, seen.phase)


@pytest.mark.parametrize("status", [520, 521, 522, 523, 524, 525, 526, 527, 530])
def test_b12_cloudflares_statuses_are_unknown_until_a_target_says_it_is_behind_it(status):
    """
    B12, C-05: anyone can answer 521; who answers proves that nothing happened. Never final.
    """
    plain = judge(Observation(status=status), target(idempotent=True))
    behind = judge(Observation(status=status), target(verdicts={status: "retry"}))

    assert (AMBIGUOUS, True) == ((plain.verdict, plain.phase), may_repeat(plain, True))
    assert RETRY == (behind.verdict, behind.phase)


@pytest.mark.parametrize(
    ("rule", "verdict"),
    [({}, Verdict.REFUSED), ({409: "sent"}, Verdict.SENT), ({409: "retry"}, Verdict.RETRY)],
)
def test_b04_the_meaning_of_409_is_the_targets_to_declare(rule, verdict):
    """
    B04: already done, still running, or a conflict.
    """
    assert judge(Observation(status=409), target(verdicts=rule)).verdict is verdict


@pytest.mark.parametrize(
    "status", [300, 301, 302, 303, 304, 307, 308, 400, 401, 403, 404, 413, 421, 422]
)
def test_redirects_and_refusals_end_a_delivery(status):
    """
    B05, B07, B26; A13, B02, B06, where the spec's "other 4xx" is stricter: no more calls.
    """
    seen = judge(Observation(status=status, retry_after=("3600",)), target())

    assert (REFUSED, False) == ((seen.verdict, seen.phase), may_repeat(seen, True))
