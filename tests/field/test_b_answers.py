"""What an answer means, end to end: raw sockets, our transport, the engine, the ledger's row.

A target that is not idempotent shows what is taken for proved: what did not happen is tried again, what
may have happened is given up in doubt.
"""

from __future__ import annotations

import asyncio
import re

import pytest

from streams.model.ledger import Phase, Row
from streams.model.values import replace
from streams.rules.decide import EffectMode, RedriveAsked, decide
from tests.field.answers import IMPATIENT, fields_of, is_in_doubt, is_refused, status, tell
from tests.field.desk import T0, target_of
from tests.unit.edge.http_peer import (
    OK,
    Link,
    Peer,
    answering,
    ending,
    serving,
    silent,
)


@pytest.mark.parametrize("head", [b"Retry-After: 3600\r\n", b""])
async def test_a13_a_413_is_final_with_and_without_a_hint(monkeypatch, head):
    """
    A13 against spec §3 ("other 4xx: refused at once"): one call, and nothing happened.
    """
    told = await tell(monkeypatch, serving(status(413, head)))

    assert is_refused(told, "http_413")
    assert 1 == len(told.requests)


async def unread_408(link: Link) -> None:
    await asyncio.get_running_loop().sock_recv(link.sock, 20)
    await link.send(status(408, b"Connection: close\r\n"))
    await link.ended()


@pytest.mark.parametrize(
    "first", [unread_408, ending(status(408, b"Connection: close\r\n"))], ids=["unread", "read"]
)
async def test_b01_a_408_is_tried_again_on_a_new_connection(monkeypatch, first):
    """
    B01. Spec §3 takes a 408 for "did not happen", read or not: our request leaves in one piece, so our
    own writing could not tell the two apart.
    """
    told = await tell(monkeypatch, first, serving())

    assert (Phase.SENT, 2, 2) == (told.row.phase, told.row.attempts, told.connections)


async def test_b02_a_421_is_refused(monkeypatch):
    """
    B02 against spec §3 ("other 4xx: refused at once").
    """
    assert is_refused(await tell(monkeypatch, serving(status(421))), "http_421")


async def test_b02_where_a_target_allows_it_the_next_call_takes_another_connection(monkeypatch):
    """
    B02, RFC 9110 §15.5.20: the connection that does not lead there is not used again.
    """
    told = await tell(
        monkeypatch, ending(status(421)), serving(status(202)), verdicts={421: "retry"}
    )

    assert (Phase.SENT, 2, 2) == (told.row.phase, told.row.attempts, told.connections)


async def test_b02_a_421_from_every_connection_ends(monkeypatch):
    """
    B02: as often as there are attempts, and after a wait each time.
    """
    told = await tell(
        monkeypatch,
        serving(status(421)),
        verdicts={421: "retry"},
        policy=replace(target_of().policy, max_attempts=3),
    )

    assert (Phase.DEAD, "attempts_exhausted", "http_421") == (
        told.row.phase,
        told.row.code,
        told.row.cause,
    )
    assert (3, 3) == (len(told.requests), told.connections)
    assert min(told.waits_ms) >= 1_000


async def test_b03_a_425_did_not_happen_and_is_tried_again(monkeypatch):
    """
    B03: even where the target recognises no repeated id. Python's TLS sends no early data.
    """
    told = await tell(monkeypatch, answering(status(425), OK))

    assert (Phase.SENT, 2, False) == (told.row.phase, told.row.attempts, told.row.effect_unknown)


@pytest.mark.parametrize(
    ("rule", "phase", "attempts"),
    [({}, Phase.DEAD, 2), ({409: "sent"}, Phase.SENT, 2), ({409: "retry"}, Phase.SENT, 3)],
    ids=["none", "duplicate", "in progress"],
)
async def test_b04_a_409_after_an_unknown_attempt_keeps_the_doubt(
    monkeypatch, rule, phase, attempts
):
    """
    B04: what 409 means is the target's to declare; that the attempt before it may have taken effect is
    never unsaid. The id stays the same throughout.
    """
    told = await tell(
        monkeypatch,
        silent,
        answering(status(409), OK),
        idempotent=True,
        verdicts=rule,
        policy=IMPATIENT,
    )

    assert (phase, attempts) == (told.row.phase, told.row.attempts)
    assert (phase is Phase.DEAD) == told.row.effect_unknown
    assert (phase is Phase.DEAD) == ("an earlier attempt may have taken effect" in told.summary)
    assert 1 == len({fields_of(request)[b"webhook-id"] for request in told.requests})


@pytest.mark.parametrize(
    ("mode", "stays"), [(EffectMode.RECONCILE_REPLAY, True), (EffectMode.NEW_EXTERNAL_SEND, False)]
)
def test_b04_the_doubt_belongs_to_the_effect_and_not_to_the_budget(mode, stays):
    """
    B04, C-12: a replay under the same id may still meet what an attempt before the redrive did; a new
    effect is another matter.
    """
    dead = Row(phase=Phase.DEAD, delivery_id="dlv_1", target="crm", effect_unknown=True)

    queued = decide(
        dead,
        RedriveAsked(dead.letter_id, mode),
        now_ms=T0,
        jitter=0.0,
        policy=IMPATIENT,
        idempotent=True,
    )

    assert queued is not None
    assert (Phase.QUEUED, stays) == (queued.phase, queued.effect_unknown)


@pytest.mark.parametrize(("number", "profile"), [(401, {}), (403, {}), (403, {401: "retry"})])
async def test_b06_a_401_or_403_is_final(monkeypatch, number, profile):
    """
    B06: one call; 403 also where 401 is tried again.
    """
    told = await tell(monkeypatch, serving(status(number)), verdicts=profile)

    assert is_refused(told, f"http_{number}")


async def test_b06_a_401_is_tried_again_within_bounds_where_the_target_says_so(monkeypatch):
    """
    B06: for servers that could not fetch our key just then; never for ever.
    """
    told = await tell(monkeypatch, serving(status(401)), verdicts={401: "retry"})

    assert ("attempts_exhausted", 12) == (told.row.code, len(told.requests))


@pytest.mark.parametrize("number", [301, 302, 303, 307, 308])
async def test_b07_a_redirect_is_neither_followed_nor_a_success(monkeypatch, number):
    """
    B07, C06: one POST on the wire, and the place that it leads to is not shown.
    """
    async with Peer(serving()) as elsewhere:
        place = b"Location: %s/FAKE\r\n" % elsewhere.url.encode()
        told = await tell(monkeypatch, serving(status(number, place)))

    assert is_refused(told, f"http_{number}")
    assert (1, 0) == (len(told.requests), elsewhere.connections)
    assert told.requests[0].startswith(b"POST ")
    assert b"FAKE" not in told.letter
    assert "FAKE" not in told.shown


@pytest.mark.parametrize("number", [500, 502, 503, 504])
async def test_b11_a_5xx_proves_nothing(monkeypatch, number):
    """
    B11: one call to a target that recognises no repeated id, and it ends in doubt.
    """
    assert is_in_doubt(await tell(monkeypatch, serving(status(number))), f"http_{number}")


@pytest.mark.parametrize("number", [500, 502, 503, 504])
async def test_b11_each_further_attempt_has_the_same_id_and_the_same_body(monkeypatch, number):
    """
    B11, G09: so that a target which does recognise ids can drop the copy.
    """
    told = await tell(monkeypatch, answering(status(number), status(number), OK), idempotent=True)

    assert (Phase.SENT, 3) == (told.row.phase, len(told.requests))
    same = {re.sub(rb"outbox-attempt: \d|webhook-timestamp: \d+", b"", r) for r in told.requests}
    assert 1 == len(same)


async def test_b13_a_429_without_a_hint_waits_its_own_delay(monkeypatch):
    """
    B13: it did not happen, so any target is tried again, and not at once.
    """
    told = await tell(monkeypatch, answering(status(429), status(429), OK))

    assert (Phase.SENT, 3, [1_000, 2_000]) == (told.row.phase, told.row.attempts, told.waits_ms)


async def test_b18_no_answer_in_time_is_in_doubt(monkeypatch):
    """
    B18: a receiver that is slow finishes after our time-out; only it knows.
    """
    told = await tell(monkeypatch, silent, policy=IMPATIENT)

    assert is_in_doubt(told, "read_timeout")
    assert "the effect is unknown" in told.summary


async def test_b18_a_retry_after_no_answer_has_the_same_id_and_the_same_body(monkeypatch):
    """
    B18: never a fresh delivery for what may have been done.
    """
    told = await tell(monkeypatch, silent, serving(), idempotent=True, policy=IMPATIENT)

    first, second = (fields_of(request) for request in told.requests)
    assert (Phase.SENT, 2) == (told.row.phase, told.row.attempts)
    assert first[b"webhook-id"] == second[b"webhook-id"] == first[b"idempotency-key"]
    assert told.requests[0].partition(b"\r\n\r\n")[2] == told.requests[1].partition(b"\r\n\r\n")[2]


@pytest.mark.parametrize(
    ("number", "head", "body"),
    [(400, b"Content-Type: application/json\r\n", b'{"error":"FAKEBAD"}'), (422, b"", b"")],
)
async def test_b26_a_400_or_422_is_final_and_its_answer_is_not_kept(
    monkeypatch, number, head, body
):
    """
    B26, C-11, D-043: one call; of the answer nothing but the status is stored or shown.
    """
    told = await tell(monkeypatch, serving(status(number, head, body)))

    assert is_refused(told, f"http_{number}")
    assert b"FAKEBAD" not in told.letter
    assert "FAKEBAD" not in told.shown + repr(told.row)


@pytest.mark.parametrize("value", ["0.493", "Sun, 06 Nov 1994 08:49:37 EST", "10, 600"])
async def test_a04_an_attempts_line_says_that_its_hint_was_malformed(monkeypatch, value):
    """
    A04, A09: so that an operator can tell our rounding or guess-free waiting from what was asked.
    """
    hint = b"Retry-After: %s\r\n" % value.encode()
    told = await tell(monkeypatch, answering(status(429, hint), OK))

    assert "'hint_malformed': True" in told.shown


async def test_d09_five_attempts_are_five_requests(monkeypatch):
    """
    D09, O-001: one layer owns retries; neither pool nor transport repeats anything.
    """
    told = await tell(
        monkeypatch,
        serving(status(503, b"Retry-After: 1\r\n")),
        policy=replace(target_of().policy, max_attempts=5),
    )

    assert ("attempts_exhausted", 5, 5) == (told.row.code, told.row.attempts, len(told.requests))
    assert [b"%d" % n for n in range(1, 6)] == [
        fields_of(request)[b"outbox-attempt"] for request in told.requests
    ]
