"""Headers and keys of our records."""

import pytest

from streams.errors import RecordError
from streams.model.ledger import Kind
from streams.model.values import replace
from streams.wire.records import (
    CARRIED_BYTES,
    CARRIED_HEADERS,
    LedgerHeaders,
    RetryItem,
    carried_headers,
    ledger_headers,
    ledger_offset_header,
    position_of,
    read_ledger_headers,
    read_ledger_offset,
    read_retry_headers,
    retry_headers,
)

TOKEN = b"\x07" * 16
CRM = RetryItem(delivery_id="dlv_1", target="crm", attempt=2, fence=41)
INBOX = RetryItem(delivery_id="dlv_2", target="https://é.example/inbox", attempt=0, fence=-1)
RETRY = retry_headers(1_767_225_600_000, [CRM])


def test_a_claims_headers_are_those_of_the_protocol():
    """
    ledger.md, "Records": k, e in decimal, t as 16 raw bytes.
    """
    headers = ledger_headers(Kind.CLAIM, 1_234, TOKEN)

    assert [("k", b"CLAIM"), ("e", b"1234"), ("t", TOKEN)] == headers
    assert LedgerHeaders(kind=Kind.CLAIM, epoch=1_234, token=TOKEN) == read_ledger_headers(headers)


def test_an_owner_has_no_epoch():
    """
    ledger.md rule 1: its own offset becomes the epoch.
    """
    headers = ledger_headers(Kind.OWNER, None, TOKEN)

    assert [("k", b"OWNER"), ("t", TOKEN)] == headers
    assert LedgerHeaders(kind=Kind.OWNER, epoch=None, token=TOKEN) == read_ledger_headers(headers)


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("k", b"CLAIM"), ("t", TOKEN)],
        [("k", b"CLAIM"), ("e", b"x"), ("t", TOKEN)],
        [("k", b"CLAIM"), ("e", b"1"), ("t", b"short")],
        [("k", b"CLAIM"), ("e", b"1")],
        [("k", b"NEW"), ("e", b"1"), ("t", TOKEN)],
        [("k", b"OWNER"), ("e", b"1"), ("t", TOKEN)],
    ],
)
def test_a_ledger_record_that_nobody_of_ours_wrote_is_refused(headers):
    with pytest.raises(RecordError) as refused:
        read_ledger_headers(headers)

    assert "ledger_headers_invalid" == refused.value.code


def test_a_retrys_headers_are_those_of_the_contract():
    """
    interface.md §3: `due`, and for each delivery `delivery`, `target`, `attempt`; and its `fence`.
    """
    assert [
        ("due", b"1767225600000"),
        ("delivery", b"dlv_1"),
        ("target", b"crm"),
        ("attempt", b"2"),
        ("fence", b"41"),
        ("traceparent", b"00-1"),
    ] == retry_headers(1_767_225_600_000, [CRM], [("traceparent", b"00-1")])


def test_a_retry_with_several_deliveries_comes_back_in_order():
    headers = retry_headers(5, [CRM, INBOX], [("x", b"\xff"), ("y", b"")])

    assert (5, (CRM, INBOX)) == read_retry_headers(headers)


@pytest.mark.parametrize(
    "headers",
    [
        [],
        RETRY[1:],
        RETRY[:1],
        RETRY[:-1],
        [*RETRY, RETRY[0]],
        [*RETRY, ("delivery", b"dlv_2")],
        [RETRY[0], RETRY[2], RETRY[1], *RETRY[3:]],
        [("due", b""), *RETRY[1:]],
        [("due", b"-1"), *RETRY[1:]],
        [("due", b"1e3"), *RETRY[1:]],
        [("due", b" 5"), *RETRY[1:]],
        [("due", "٣".encode()), *RETRY[1:]],
        [("due", b"9" * 20), *RETRY[1:]],
        [*RETRY[:3], ("attempt", b"-1"), RETRY[4]],
        [*RETRY[:3], ("attempt", b"1_0"), RETRY[4]],
        [*RETRY[:4], ("fence", b"-2")],
        [*RETRY[:4], ("fence", b"")],
        [*RETRY[:2], ("target", b"\xff"), *RETRY[3:]],
    ],
)
def test_a_retry_that_nobody_of_ours_wrote_is_refused(headers):
    """
    C-14: it is dead-lettered, and stops no partition.
    """
    with pytest.raises(RecordError) as refused:
        read_retry_headers(headers)

    assert "retry_headers_invalid" == refused.value.code


def test_a_producers_headers_of_our_names_are_dropped():
    """
    interface.md §3: else a producer could say when its retry is due, or under which fence.
    """
    theirs = [
        ("due", b"0"),
        ("x", b"1"),
        ("delivery", b"d"),
        ("target", b"t"),
        ("attempt", b"9"),
        ("fence", b"1"),
        ("budget", b"9"),
        ("ledger-offset", b"1"),
        ("empty", None),
        ("x", b"2"),
    ]

    assert (("x", b"1"), ("x", b"2")) == carried_headers(theirs)


def test_what_is_carried_does_not_grow_from_hop_to_hop():
    """
    E04: twenty hops later the headers are what they were at the first.
    """
    headers = [("traceparent", b"00-1"), ("x", b"2")]
    for _ in range(20):
        headers = retry_headers(5, [CRM], carried_headers(headers))

    assert retry_headers(5, [CRM], [("traceparent", b"00-1"), ("x", b"2")]) == headers


def test_what_is_carried_is_bounded():
    """
    E04, E08: a record must fit into its own retry.
    """
    many = carried_headers([("x", b"1")] * (CARRIED_HEADERS + 1))
    large = carried_headers([("x", b"1" * (CARRIED_BYTES - 1)), ("y", b"")])
    larger = carried_headers([("x", b"1" * CARRIED_BYTES)])

    assert (CARRIED_HEADERS, 1, 0) == (len(many), len(large), len(larger))


def test_a_dead_letter_says_which_state_it_shows():
    """
    interface.md §3.
    """
    assert ("ledger-offset", b"7") == ledger_offset_header(7)
    assert 7 == read_ledger_offset([("x", b"1"), ledger_offset_header(7)])


@pytest.mark.parametrize("headers", [[], [("ledger-offset", b"x")]])
def test_a_dead_letter_without_a_legible_offset_shows_no_state(headers):
    assert read_ledger_offset(headers) is None


def test_a_record_that_cannot_be_read_is_named_by_its_position():
    """C-14."""
    assert "outbox/3/1024" == position_of("outbox", 3, 1_024)


def parked_item(**fields):
    return replace(RetryItem(delivery_id="dlv_1", target="crm", attempt=0, fence=-1), **fields)


@pytest.mark.parametrize(
    "items",
    [
        (parked_item(parked_since_ms=5),),
        (parked_item(parked_ms=7),),
        (parked_item(), parked_item(parked_ms=7, parked_since_ms=5), parked_item(target="b")),
    ],
)
def test_parked_time_is_carried_for_each_delivery(items):
    """
    C-17: it is no part of a delivery's age, and its neighbours in the record have their own.
    """
    assert (9, items) == read_retry_headers(retry_headers(9, items))


def test_a_retry_of_a_claimed_delivery_has_the_four_headers_of_before():
    """
    Workers of the version before read it.
    """
    names = [name for name, _ in retry_headers(9, [CRM])]

    assert ["due", "delivery", "target", "attempt", "fence"] == names


def test_the_budget_is_carried_for_each_delivery_that_has_one():
    """D-066: beside one that was claimed, whose fence says it."""
    items = (parked_item(budget=2, parked_ms=7), CRM, parked_item(target="b", budget=1))

    assert (9, items) == read_retry_headers(retry_headers(9, items))


@pytest.mark.parametrize("value", [b"", b"0", b"-1", b"x"])
def test_a_budget_that_cannot_be_read_is_refused(value):
    with pytest.raises(RecordError) as refused:
        read_retry_headers([*retry_headers(9, [CRM]), ("budget", value)])

    assert "retry_headers_invalid" == refused.value.code


@pytest.mark.parametrize("value", [b"", b"1", b"1,", b"-1,2", b"1,-2", b"a,b"])
def test_parked_time_that_cannot_be_read_is_refused(value):
    headers = [*retry_headers(9, [parked_item()]), ("parked", value)]

    with pytest.raises(RecordError) as refused:
        read_retry_headers(headers)

    assert "retry_headers_invalid" == refused.value.code


def test_a_producers_header_of_our_name_is_not_carried():
    """
    Interface §3: it would pass for the parked time of a delivery.
    """
    assert (("x", b"y"),) == carried_headers([("parked", b"1,1"), ("x", b"y")])
