"""A history in order, and each promise of the chaos checker broken in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streams.model.values import replace
from tests.chaos.history import (
    OWNER_KEY,
    Call,
    Entry,
    History,
    Item,
    LetterRecord,
    Receipt,
    Retry,
    Source,
)
from tests.chaos.violations import Wrong

INBOX = "http://peer.example/inbox"
OWED, STRICT, WAITS = b"a1\0" + INBOX.encode(), b"a2\0strict", b"a3\0" + INBOX.encode()
RETRIES = "outbox.retry.1s"


def row(delivery: str, phase: str, attempts: int = 1, **given: Any) -> dict[str, Any]:
    """A ledger row, as Avro's reader gives it."""
    return {
        "phase": phase,
        "delivery_id": delivery,
        "target": "strict" if delivery == "d2" else INBOX,
        "attempts": attempts,
        "generation": 1,
        "budget": 1,
        "token": b"t%d" % attempts,
        "fence": -1,
        "status": 0,
        "settled_ms": 0,
        "code": "",
        "reconciliation_required": False,
        **given,
    }


def entry(offset: int, kind: str, key: bytes, row: Any = None, epoch: int | None = 0) -> Entry:
    """A ledger record of partition 0."""
    return Entry(
        partition=0, offset=offset, t_ms=offset, key=key, kind=kind, epoch=epoch,
        token=b"t", row=row,
    )  # fmt: skip


def receipt(delivery: str, verdict: str, attempts: int, status: int) -> Receipt:
    """A receipt of one delivery."""
    fields = {"delivery_id": delivery, "verdict": verdict, "attempts": attempts, "status": status}
    return Receipt(t_ms=0, activity="a", fields={**fields, "target": INBOX})


def source(offset: int, activity: str, target: str) -> Source:
    """An activity for one target."""
    return Source(partition=0, offset=offset, t_ms=0, activity=activity, targets=(target,))


def good() -> History:
    """Sent at the second attempt; ambiguous at a strict target, hence dead; and one left to redeliver."""
    dead: dict[str, Any] = {"code": "read_timeout", "reconciliation_required": True}
    waiting = row("d1", "waiting", fence=2)
    sent = row("d1", "sent", 2, status=200, fence=4)
    return History(
        max_attempts=2,
        strict=frozenset({"strict"}),
        sources=[source(0, "a1", INBOX), source(1, "a2", "strict")],
        ledger=[
            entry(0, "OWNER", OWNER_KEY, epoch=None),
            entry(1, "ADMIT", b"a1", {"admissions": []}),
            entry(2, "CLAIM", OWED, row("d1", "claimed")),
            entry(3, "REPORT", OWED, waiting),
            entry(4, "CLAIM", OWED, row("d1", "claimed", 2, fence=2)),
            entry(5, "REPORT", OWED, sent),
            entry(6, "CLAIM", STRICT, row("d2", "claimed")),
            entry(7, "REPORT", STRICT, row("d2", "dead", fence=6, **dead)),
        ],
        retries=[
            Retry(topic=RETRIES, partition=0, offset=0, t_ms=0, activity="a1", due_ms=0,
                  items=(Item(delivery_id="d1", target=INBOX, attempt=1, fence=2),)),
        ],
        letters=[
            LetterRecord(
                partition=0, offset=0, t_ms=0, activity="a2", is_derived=True,
                deliveries=({"dead_letter_id": "d2.1", "attempts": 1, **dead},),
            )
        ],
        receipts=[receipt("d1", "sent", 2, 200), receipt("d2", "ambiguous", 1, 0)],
        calls=[
            Call(t=2.5, id="d1-1", attempt=1, path="/", status=503),
            Call(t=4.5, id="d1-1", attempt=2, path="/", status=200),
            Call(t=6.5, id="d2-1", attempt=1, path="/", status=None),
        ],
        committed={("outbox", 0): 2, (RETRIES, 0): 1},
        ends={("outbox", 0): 2, (RETRIES, 0): 1},
    )  # fmt: skip


def more(history: History, *entries: Entry) -> None:
    """Append to the ledger."""
    history.ledger += entries


def forget(history: History, at_ms: int = 100) -> None:
    """Bury activity a1 as its end of life does; its window of 50 ms has passed at 50."""
    history.dedupe_window_ms = 50
    for offset, key in enumerate((OWED, b"a1"), start=8):
        more(history, replace(entry(offset, "REPORT", key), t_ms=at_ms))


# -- each promise broken ------------------------------------------------------------------------


def _committed_past_an_unread_source(h: History) -> None:
    h.sources.append(source(2, "a3", INBOX))
    h.committed["outbox", 0] = h.ends["outbox", 0] = 3


def _a_waiting_delivery_without_its_retry(h: History) -> None:
    h.ledger = h.ledger[:4]
    h.calls, h.receipts, h.sources, h.letters = h.calls[:1], [], h.sources[:1], []


def _a_claim_whose_trigger_is_gone(h: History) -> None:
    h.sources.append(source(2, "a3", INBOX))
    more(h, entry(8, "CLAIM", WAITS, row("d3", "claimed")))
    h.committed["outbox", 0] = h.ends["outbox", 0] = 3


def _an_attempt_called_twice(h: History) -> None:
    h.calls.append(replace(h.calls[0], t=3.0))


def _a_call_without_a_claim(h: History) -> None:
    h.calls.append(Call(t=9.0, id="d9-1", attempt=1, path="/", status=503))


def _a_call_under_a_void_claim(h: History) -> None:
    more(
        h,
        entry(8, "OWNER", OWNER_KEY, epoch=None),
        entry(9, "CLAIM", WAITS, row("d3", "claimed"), epoch=0),
        entry(10, "REPAIR", WAITS, None, epoch=8),
    )
    h.calls.append(Call(t=9.5, id="d3-1", attempt=1, path="/", status=503))


def _two_owners_called_one_attempt(h: History) -> None:
    more(
        h,
        entry(8, "CLAIM", WAITS, row("d3", "claimed")),
        entry(9, "OWNER", OWNER_KEY, epoch=None),
        entry(10, "REPORT", WAITS, row("d3", "sent", status=200, fence=8), epoch=9),
    )
    h.calls += [Call(t=t, id="d3-1", attempt=1, path="/", status=200) for t in (8.5, 9.5)]
    h.receipts.append(receipt("d3", "sent", 1, 200))


def _more_claims_than_attempts(h: History) -> None:
    h.max_attempts = 1


def _an_attempt_that_was_not_counted(h: History) -> None:
    h.ledger[4] = replace(h.ledger[4], row=row("d1", "claimed", 1, token=b"t2", fence=2))


def _a_strict_target_that_may_have_acted_twice(h: History) -> None:
    h.ledger[7] = replace(h.ledger[7], row=row("d2", "waiting", fence=6))
    more(
        h,
        entry(8, "CLAIM", STRICT, row("d2", "claimed", 2, fence=6)),
        entry(9, "REPORT", STRICT, row("d2", "sent", 2, status=200, fence=8)),
    )
    h.calls.append(Call(t=8.5, id="d2-1", attempt=2, path="/", status=200))
    h.receipts[1] = receipt("d2", "sent", 2, 200)
    h.letters = []


def _an_offset_that_stands_still(h: History) -> None:
    h.ends["outbox", 0] = 5


def _an_offset_beyond_the_end(h: History) -> None:
    h.committed["outbox", 0] = 9


def _a_dead_row_without_a_letter(h: History) -> None:
    h.letters = []


def _a_letter_of_what_is_not_dead(h: History) -> None:
    h.letters.append(replace(h.letters[0], activity="a1"))


def _a_letter_that_says_something_else(h: History) -> None:
    other = {**(h.letters[0].deliveries or ())[0], "attempts": 2}
    h.letters[0] = replace(h.letters[0], deliveries=(other,))


def _a_tombstone_over_a_dead_row(h: History) -> None:
    h.letters.append(replace(h.letters[0], offset=1, deliveries=None))


def _a_verdict_without_a_receipt(h: History) -> None:
    del h.receipts[0]


def _a_receipt_that_the_ledger_denies(h: History) -> None:
    h.receipts.append(receipt("d1", "refused", 1, 400))


def _a_second_verdict(h: History) -> None:
    more(h, entry(8, "REPORT", OWED, row("d1", "dead", 2, code="late", fence=4)))


def _a_claim_over_a_claim(h: History) -> None:
    h.ledger[3] = entry(3, "CLAIM", OWED, row("d1", "claimed", 2))
    h.ledger[4] = entry(4, "ADMIT", b"a1", {"admissions": []})
    h.ledger[5] = replace(h.ledger[5], row=row("d1", "sent", 2, status=200, fence=3))


def _a_report_of_a_claim_that_does_not_stand(h: History) -> None:
    h.ledger[3] = replace(h.ledger[3], row=row("d1", "waiting", token=b"other", fence=2))


def _sent_without_a_call(h: History) -> None:
    del h.calls[1]


def _a_repair_that_changes_the_row(h: History) -> None:
    more(h, entry(8, "REPAIR", OWED, row("d1", "sent", 2, status=202, fence=4)))


def _a_debt_that_was_not_paid(h: History) -> None:
    more(
        h,
        entry(8, "OWNER", OWNER_KEY, epoch=None),
        entry(9, "REPORT", OWED, row("d1", "dead", 2, code="late"), epoch=0),
    )
    h.compacted = list(h.ledger)


def _compaction_that_kept_the_void_record(h: History) -> None:
    more(
        h,
        entry(8, "OWNER", OWNER_KEY, epoch=None),
        entry(9, "REPORT", OWED, row("d1", "dead", 2, code="late"), epoch=0),
        entry(10, "REPAIR", OWED, row("d1", "sent", 2, status=200, fence=4), epoch=8),
    )
    h.compacted = [h.ledger[i] for i in (1, 7, 8, 9)]


def _a_hole_in_what_was_seen(h: History) -> None:
    del h.ledger[1]


def _forgotten_within_its_window(h: History) -> None:
    forget(h, at_ms=49)


def _forgotten_while_it_was_dead(h: History) -> None:
    more(h, entry(8, "REPORT", STRICT))


def _deleted_by_a_claim(h: History) -> None:
    more(h, entry(8, "CLAIM", OWED))


def _sent_again_after_it_was_forgotten(h: History) -> None:
    h.ledger[5] = replace(h.ledger[5], row=row("d1", "sent", 2, status=200, fence=4, settled_ms=40))
    forget(h)
    more(h, entry(10, "CLAIM", OWED, row("d1", "claimed")))


def _a_redrive_of_what_is_not_dead(h: History) -> None:
    more(h, entry(8, "REDRIVE", OWED, row("d1", "queued", 0, budget=2, fence=4)))


def _sent_without_a_claim(h: History) -> None:
    more(h, entry(8, "REPORT", WAITS, row("d3", "sent", 0)))


def _a_kind_that_has_no_place_there(h: History) -> None:
    more(h, entry(8, "ADMIT", OWED, row("d1", "sent", 2, status=200, fence=4)))


def _sent_with_an_error(h: History) -> None:
    h.calls[1] = replace(h.calls[1], status=500)
    h.ledger[5] = replace(h.ledger[5], row=row("d1", "sent", 2, status=500, fence=4))
    h.receipts[0] = receipt("d1", "sent", 2, 500)


BROKEN: list[tuple[Callable[[History], None], Wrong, str]] = [
    (_committed_past_an_unread_source, Wrong.LOST, "unknown to the ledger, and nothing"),
    (_a_waiting_delivery_without_its_retry, Wrong.LOST, "waiting, and nothing"),
    (_a_claim_whose_trigger_is_gone, Wrong.LOST, "claimed, and nothing"),
    (_an_attempt_called_twice, Wrong.OVER_BUDGET, "called 2 times, claimed 1"),
    (_a_call_without_a_claim, Wrong.OVER_BUDGET, "called 1 times, claimed 0"),
    (_a_call_under_a_void_claim, Wrong.OVER_BUDGET, "called 1 times, claimed 0"),
    (_two_owners_called_one_attempt, Wrong.OVER_BUDGET, "called 2 times, claimed 1"),
    (_more_claims_than_attempts, Wrong.OVER_BUDGET, "attempt 2 of 1"),
    (_an_attempt_that_was_not_counted, Wrong.OVER_BUDGET, "must count one attempt more"),
    (_a_strict_target_that_may_have_acted_twice, Wrong.UNSAFE_DUPLICATE, "acted 2 times"),
    (_an_offset_that_stands_still, Wrong.STUCK, "committed 2 of 5"),
    (_an_offset_beyond_the_end, Wrong.DISAGREES, "beyond the end 2"),
    (_a_dead_row_without_a_letter, Wrong.DISAGREES, "dead letters []"),
    (_a_letter_of_what_is_not_dead, Wrong.DISAGREES, "dead rows []"),
    (_a_letter_that_says_something_else, Wrong.DISAGREES, "'read_timeout', 2, True)]"),
    (_a_tombstone_over_a_dead_row, Wrong.DISAGREES, "dead letters []"),
    (_a_verdict_without_a_receipt, Wrong.DISAGREES, "no receipt of"),
    (_a_receipt_that_the_ledger_denies, Wrong.DISAGREES, "the ledger never did"),
    (_a_second_verdict, Wrong.DISAGREES, "a second verdict"),
    (_a_claim_over_a_claim, Wrong.DISAGREES, "claimed what is claimed"),
    (_a_report_of_a_claim_that_does_not_stand, Wrong.DISAGREES, "that does not stand"),
    (_sent_without_a_call, Wrong.DISAGREES, "which no call got"),
    (_a_repair_that_changes_the_row, Wrong.DISAGREES, "a repair changed the row"),
    (_a_debt_that_was_not_paid, Wrong.DISAGREES, "was not repaired"),
    (_compaction_that_kept_the_void_record, Wrong.DISAGREES, "compaction left nothing"),
    (_a_hole_in_what_was_seen, Wrong.DISAGREES, "was not seen"),
    (_a_redrive_of_what_is_not_dead, Wrong.DISAGREES, "only a dead letter is redriven"),
    (_sent_without_a_claim, Wrong.DISAGREES, "sent without a claim"),
    (_a_kind_that_has_no_place_there, Wrong.DISAGREES, "no place under a delivery"),
    (_sent_with_an_error, Wrong.DISAGREES, "sent, with status 500"),
    (_forgotten_within_its_window, Wrong.DISAGREES, "forgets what was settled"),
    (_forgotten_while_it_was_dead, Wrong.LOST, "forgotten while it was dead"),
    (_deleted_by_a_claim, Wrong.DISAGREES, "may delete a row"),
    (_sent_again_after_it_was_forgotten, Wrong.UNSAFE_DUPLICATE, "settled and forgotten"),
]
