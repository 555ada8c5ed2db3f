"""Dead letters as the topic leaves them, and what is new in each record."""

from __future__ import annotations

from aiokafka import ConsumerRecord

from streams.cli.dead_letters import Board, facts_of, lines_of
from streams.model.ledger import FailurePhase
from streams.model.receipt import DeadLetter, Letter
from streams.model.values import replace
from streams.wire.codec import encode_dead_letter

FIRST = Letter(
    dead_letter_id="dlv_1.1",
    delivery_id="dlv_1",
    target="crm",
    failure_phase=FailurePhase.REJECTED_TRANSIENT,
    code="attempts_exhausted",
    attempts=5,
    generation=1,
    reconciliation_required=False,
    summary="HTTP 503 after 5 attempts: attempts_exhausted",
    created_ms=1_772_445_600_000,
    cause="http_503",
)
SECOND = replace(FIRST, dead_letter_id="dlv_2.1", delivery_id="dlv_2", created_ms=1)
LETTER = DeadLetter(
    activity_id="https://a.example/1",
    queue="outbox",
    tenant="acme",
    ledger_entry_id="https://a.example/ledger/9",
    deliveries=(FIRST,),
)
BOTH = replace(LETTER, deliveries=(FIRST, SECOND))


def entry(letter, key=b"k"):
    value = None if letter is None else encode_dead_letter(letter)
    return ConsumerRecord("t", 0, 7, 0, 0, key, value, None, 0, 0, ())


def test_the_last_record_of_an_activity_stands_and_a_tombstone_removes_it():
    """C-16: compacted, keyed by activity; the last resolution ends in a tombstone."""
    board = Board()
    other = replace(LETTER, activity_id="other", deliveries=(SECOND,))
    for record in (entry(LETTER), entry(BOTH), entry(LETTER, b"gone"), entry(other, b"other")):
        board.take(record)
    board.take(entry(None, b"gone"))

    assert [BOTH, other] == board.standing()


def test_an_alert_tells_each_delivery_once():
    """A record is rewritten whole when a further delivery is given up; the pager must not ring twice."""
    board = Board()

    told = [board.take(entry(letter)) for letter in (LETTER, LETTER, BOTH, LETTER, None, LETTER)]

    only_second = replace(LETTER, deliveries=(SECOND,))
    assert [LETTER, None, only_second, None, None, LETTER] == told


def test_a_redriven_delivery_that_dies_again_is_new():
    """Its budget is another, and so is the letter's id (ledger.md, rule 11)."""
    board = Board()
    again = replace(LETTER, deliveries=(replace(FIRST, dead_letter_id="dlv_1.2"),))
    board.take(entry(LETTER))

    assert again == board.take(entry(again))


def test_a_record_that_cannot_be_read_does_not_hide_the_others(capsys):
    """It is told where it lies, and nothing of what it holds."""
    board = Board()
    torn = ConsumerRecord("t", 0, 7, 0, 0, b"k", b"\xc3canary", None, 0, 0, ())

    assert board.take(torn) is None
    assert board.take(entry(LETTER)) == LETTER
    said = capsys.readouterr().err
    assert "t/0/7" in said
    assert "canary" not in said


def test_a_line_is_one_delivery_that_one_can_grep():
    """D-059: phase, code, attempts, and whether somebody must check at the target."""
    expected = (
        "at=2026-03-02T10:00:00Z activity=https://a.example/1 tenant=acme target=crm"
        " phase=rejected_transient code=attempts_exhausted cause=http_503 attempts=5"
        " reconciliation_required=false id=dlv_1.1 ledger_entry=https://a.example/ledger/9"
    )

    assert [expected] == list(lines_of(LETTER))


def test_json_has_the_fields_of_the_record():
    """interface.md §3."""
    facts = facts_of(LETTER)

    assert {"activity_id", "queue", "tenant", "ledger_entry_id", "deliveries"} == set(facts)
    assert {
        *("dead_letter_id", "delivery_id", "target", "failure_phase", "code", "cause"),
        *("attempts", "generation", "reconciliation_required", "summary", "created_ms"),
    } == set(facts["deliveries"][0])


def test_a_credential_in_a_destination_is_not_shown():
    """D-043: neither in the lines nor in JSON."""
    letter = replace(
        LETTER, deliveries=(replace(FIRST, target="https://b.example/inbox?token=canary"),)
    )

    assert "canary" not in str(facts_of(letter)) + "".join(lines_of(letter))
