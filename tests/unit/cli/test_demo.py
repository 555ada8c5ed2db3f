"""The demo's sum is worth something only if it notices: each thing that can be wrong, made wrong."""

from __future__ import annotations

import json
import os
from hashlib import sha256

import pytest

from examples import make_activities as examples
from streams.cli.demo import report
from streams.cli.demo.children import Child, DemoError, is_alive
from streams.cli.demo.evidence import Call, Evidence
from streams.cli.demo.plan import Place, plan_of
from streams.cli.demo.screen import rows_of
from streams.cli.demo.sums import add_up, unsettled
from streams.model.ledger import FailurePhase
from streams.model.receipt import DeadLetter, Letter, Outcome, Receipt
from streams.model.values import replace

HOST = "http://r.example"
MAX_ATTEMPTS = 4


def line(number, *paths, target=None, **fields):
    recipients = [{"inbox": f"{HOST}{path}/{number}"} for path in paths]
    if target is not None:
        recipients.append({"target": target})
    activity = {"activity_id": f"urn:{number}", "recipients": recipients, "activity": {"n": number}}
    return json.dumps(activity | fields).encode()


LINES = (
    line(1, "/ok", "/flaky/2"),
    line(2, "/status/503"),
    line(3, target="pager"),
    line(4, "/status/400", activity={"object": {"type": "CaseLedgerEntry", "id": "urn:entry"}}),
    line(1, "/ok", "/flaky/2"),
    line(2, "/status/503", activity={"n": "other"}),
    b'{"activity_id": ""}',
)


def places(_tenant, recipient):
    if recipient.inbox is None:
        return Place(path="/reset once", idempotent=False)
    return Place(path=examples.behaviour_of(recipient.inbox), idempotent=True)


@pytest.fixture
def plan():
    return plan_of(
        LINES,
        places=places,
        behaviours={each.path: each for each in examples.expected(max_attempts=4).paths},
        partitions=8,
        max_bytes=262_144,
        max_depth=32,
    )


@pytest.fixture
def seen(plan):
    """All as it ought to be, and no call under way at the crash."""
    evidence = Evidence()
    for owed in plan.owed.values():
        settle(evidence, owed, range(1, owed.calls + 1))
    evidence.again = {("default", "urn:1"): [Outcome.DUPLICATE]}
    evidence.again["default", "urn:2"] = [Outcome.CONFLICT]
    unread = letter("rec_1", code=plan.malformed[0].code)
    evidence.letters[b"outbox/0/6"] = DeadLetter(
        activity_id="outbox/0/6",
        queue="outbox",
        tenant="default",
        ledger_entry_id=None,
        deliveries=(unread,),
    )
    return evidence


def settle(evidence, owed, attempts, *, claims=None, verdict=None):
    """Settle a delivery after calls with these attempts."""
    name, verdict = owed.delivery_id, verdict or owed.verdict
    evidence.claims[name] = claims or len(attempts)
    evidence.ends[name] = dict.fromkeys(range(1, evidence.claims[name] + 1), "http_503")
    evidence.calls[name] = [
        Call(at_s=float(n), attempt=n, sha256=owed.body_sha256, path="/x") for n in attempts
    ]
    receipt = Receipt(
        activity_id=owed.activity[1],
        tenant="default",
        verdict=verdict,
        delivery_id=name,
        attempts=evidence.claims[name],
    )
    evidence.receipts[name] = [receipt]
    evidence.letters.pop(name.encode(), None)
    if verdict is not Outcome.SENT:
        evidence.letters[name.encode()] = DeadLetter(
            activity_id=owed.activity[1],
            queue="outbox",
            tenant="default",
            ledger_entry_id=owed.ledger_entry_id,
            deliveries=(letter(name, doubt=verdict is Outcome.AMBIGUOUS),),
        )


def letter(name, *, code="attempts_exhausted", doubt=False):
    return Letter(
        dead_letter_id=f"{name}.1",
        delivery_id=name,
        target="t",
        failure_phase=FailurePhase.CLAIM,
        code=code,
        attempts=1,
        generation=1,
        reconciliation_required=doubt,
        summary="",
        created_ms=1,
    )


def owed_to(plan, path):
    (found,) = [owed for owed in plan.owed.values() if owed.path == path]
    return found


# ── The plan ──


def test_the_plan_tells_what_must_come_of_each_line(plan):
    """Read as a worker reads: one activity a first line, its repeats, and what breaks a rule."""
    assert (4, 1, 1, 1) == (
        plan.activities,
        len(plan.duplicates),
        len(plan.conflicts),
        len(plan.malformed),
    )
    assert {
        "/ok": (1, Outcome.SENT),
        "/flaky/2": (3, Outcome.SENT),
        "/status/503": (4, Outcome.EXHAUSTED),
        "/reset once": (1, Outcome.AMBIGUOUS),
        "/status/400": (1, Outcome.REFUSED),
    } == {owed.path: (owed.calls, owed.verdict) for owed in plan.owed.values()}


def test_the_plan_knows_the_exact_body(plan):
    """What arrives must be what was produced, byte for byte."""
    assert sha256(b'{"n": 1}').hexdigest() == owed_to(plan, "/ok").body_sha256


def test_the_plan_of_the_examples_is_what_their_maker_says():
    """The demo's own count and the table of `make_activities` were made apart."""
    expected = examples.expected()
    named = {(each.tenant, each.name): each for each in examples.TARGETS}

    def place(tenant, recipient):
        if recipient.inbox is not None:
            return Place(path=examples.behaviour_of(recipient.inbox), idempotent=True)
        target = named[tenant, recipient.key]
        path = examples.behaviour_of(target.path)
        return Place(path=path if path == "/ok" else f"{path} once", idempotent=target.idempotent)

    plan = plan_of(
        examples.rewritten(examples.FILE.read_text(), HOST).encode().splitlines(),
        places=place,
        behaviours={each.path: each for each in expected.paths},
        partitions=8,
        max_bytes=262_144,
        max_depth=32,
    )

    paths = [owed.path for owed in plan.owed.values()]
    assert {each.path: each.deliveries for each in expected.paths} == {
        path: paths.count(path) for path in plan.paths
    }
    assert (expected.activities, expected.duplicates, expected.conflicts, expected.malformed) == (
        plan.activities,
        len(plan.duplicates),
        len(plan.conflicts),
        len(plan.malformed),
    )


# ── The sum ──


def test_what_is_as_planned_adds_up(plan, seen):
    """Otherwise nobody would ever see exit 0."""
    total = add_up(plan, seen)

    assert () == total.problems
    assert [] == unsettled(plan, seen)
    assert (0, 0, 0, 0, 0) == (
        total.repeated_calls,
        total.lost_claims,
        total.adopted,
        total.repeated_receipts,
        total.in_doubt,
    )
    told = "\n".join(report.summary(plan, seen, total))
    assert "lines        7 = 4 activities + 1 duplicates + 1 conflicts + 1 malformed" in told
    assert "deliveries   5 = 2 sent + 3 dead" in told
    assert "calls        10, expected 10\n" in told


def test_a_call_that_was_in_flight_at_the_crash_may_come_again(plan, seen):
    """C-07: its worker died in it; an idempotent target is called again, and it is counted."""
    ok = owed_to(plan, "/ok")
    settle(seen, ok, (1, 2))
    seen.ends[ok.delivery_id][1] = "lease_lost"

    total = add_up(plan, seen)

    assert () == total.problems
    assert (1, 0, 1) == (total.repeated_calls, total.lost_claims, total.adopted)
    assert "(1 more, repeated to idempotent targets" in "\n".join(report.summary(plan, seen, total))


def test_a_claim_of_the_killed_worker_may_have_made_no_call(plan, seen):
    """C-01: the attempt is spent; one call fewer than planned is explained by it."""
    failing = owed_to(plan, "/status/503")
    settle(seen, failing, (1, 3, 4), claims=4)
    seen.ends[failing.delivery_id][2] = "lease_lost"

    total = add_up(plan, seen)

    assert () == total.problems
    assert (0, 1) == (total.repeated_calls, total.lost_claims)
    assert "(1 fewer: " in "\n".join(report.summary(plan, seen, total))


def test_a_delivery_in_doubt_is_dead_and_is_no_error(plan, seen):
    """C-07: in flight at the crash, to a target that may not be called again."""
    pager = replace(owed_to(plan, "/reset once"), verdict=Outcome.SENT)
    plan.owed[pager.delivery_id] = pager
    settle(seen, pager, (1,), verdict=Outcome.AMBIGUOUS)
    seen.ends[pager.delivery_id][1] = "lease_lost"

    total = add_up(plan, seen)

    assert ((), 1) == (total.problems, total.in_doubt)


def test_a_receipt_may_be_written_twice(plan, seen):
    """At least once, after a crash; counted, and both must say the same."""
    name = owed_to(plan, "/ok").delivery_id
    seen.receipts[name] *= 2

    assert ((), 1) == ((total := add_up(plan, seen)).problems, total.repeated_receipts)


WRONG = {
    "lost": lambda e, o: e.receipts.pop(o.delivery_id),
    "another verdict": lambda e, o: settle(e, o, (1,), verdict=Outcome.REFUSED),
    "called twice for one claim": lambda e, o: e.calls[o.delivery_id].append(
        e.calls[o.delivery_id][0]
    ),
    "called again without a crash": lambda e, o: settle(e, o, (1, 2)),
    "called without a claim": lambda e, o: settle(e, o, (2,)),
    "never called": lambda e, o: settle(e, o, (), claims=1),
    "another count than the ledger's": lambda e, o: e.claims.update({o.delivery_id: 1}),
    "another body": lambda e, o: e.calls.update(
        {o.delivery_id: [replace(e.calls[o.delivery_id][0], sha256="0")]}
    ),
    "a redirect followed": lambda e, o: e.calls.update(
        {o.delivery_id: [replace(e.calls[o.delivery_id][0], path="/ok/redirected")]}
    ),
    "receipts that contradict": lambda e, o: e.receipts[o.delivery_id].insert(
        0, replace(e.receipts[o.delivery_id][0], attempts=7)
    ),
    "dead although sent": lambda e, o: e.letters.update(
        {
            b"x": DeadLetter(
                activity_id="x",
                queue="outbox",
                tenant="default",
                ledger_entry_id=None,
                deliveries=(letter(o.delivery_id),),
            )
        }
    ),
    "calls of strangers": lambda e, o: e.calls.update({"dlv_x": []}),
    "receipts of strangers": lambda e, o: e.receipts.update({"dlv_x": e.receipts[o.delivery_id]}),
    "no duplicate": lambda e, o: e.again.pop(("default", "urn:1")),
    "no conflict": lambda e, o: e.again.pop(("default", "urn:2")),
    "malformed not dead-lettered": lambda e, o: e.letters.pop(b"outbox/0/6"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_not_as_planned_does_not_add_up(plan, seen, wrong):
    """The demo exits 0 only when nothing was lost, doubled or mixed up."""
    WRONG[wrong](seen, owed_to(plan, "/ok"))

    assert add_up(plan, seen).problems


@pytest.mark.parametrize("path", ["/status/400", "/reset once"])
def test_a_dead_letter_must_be_there_and_be_right(plan, seen, path):
    """O-023, D-012: its ledger entry and its reconciliation flag are part of the sum."""
    owed = owed_to(plan, path)
    key = owed.delivery_id.encode()
    right = seen.letters[key]
    doubt = right.deliveries[0].reconciliation_required
    flipped = (replace(right.deliveries[0], reconciliation_required=not doubt),)

    for wrong in (replace(right, ledger_entry_id="x"), replace(right, deliveries=flipped)):
        seen.letters[key] = wrong
        assert 1 == len(add_up(plan, seen).problems)
    del seen.letters[key]
    assert 1 == len(add_up(plan, seen).problems)
    assert 1 == len(unsettled(plan, seen))


def test_a_target_that_is_not_idempotent_is_never_called_twice(plan, seen):
    """C-03: no crash excuses that."""
    pager = owed_to(plan, "/reset once")
    settle(seen, pager, (1, 2))
    seen.ends[pager.delivery_id][1] = "lease_lost"

    assert any("not idempotent" in line for line in add_up(plan, seen).problems)


def test_what_is_missing_is_named_while_it_is_waited_for(plan):
    """A demo that stands still must say for what."""
    missing = unsettled(plan, Evidence())

    assert 5 + 1 + 2 == len(missing)
    assert any("urn:3" in line for line in missing)


def test_many_problems_are_bounded(plan):
    """O-005: an engine that delivers nothing must not fill a terminal."""
    total = replace(add_up(plan, Evidence()), problems=tuple(map(str, range(100))))

    assert report.PROBLEMS_SHOWN + 1 == len(list(report.problems(total)))


# ── What is shown, and the processes ──


def test_the_table_tells_delivered_waiting_retrying_and_dead_apart(plan):
    """interface.md §1: shows it live."""
    evidence = Evidence()
    settle(evidence, owed_to(plan, "/ok"), (1,))
    settle(evidence, owed_to(plan, "/status/400"), (1,))
    evidence.waiting = {
        owed_to(plan, "/flaky/2").delivery_id: 2,
        owed_to(plan, "/status/503").delivery_id: 0,
    }

    assert {
        "/ok": {"delivered": 1},
        "/status/400": {"dead": 1},
        "/flaky/2": {"retrying": 1},
        "/status/503": {"waiting": 1},
        "/reset once": {"waiting": 1},
    } == {row.path: dict(row.states) for row in rows_of(plan, evidence)}


def test_a_child_is_killed_started_again_and_stopped(tmp_path):
    """The demo's worker dies by SIGKILL, and its receiver goes by SIGTERM; none is left."""
    child = Child("receiver", ["receiver"], log=tmp_path / "log")
    try:
        child.start()
        first = child.pid
        child.kill()
        with pytest.raises(DemoError, match="the receiver ended with -9"):
            child.check()
        child.start()
        while not child.tail():
            child.check()
        code = child.stop()
    finally:
        child.kill()

    assert (0, False) == (code, child.is_running)
    assert first != child.pid
    assert [False, False, True] == [is_alive(pid) for pid in (first, child.pid, os.getpid())]
