"""Providers' own words become ours, whatever their shape (D-053)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.model.observed import About, Downstream, Engagement
from streams.rules.providers import EVENTS_MAX, read_events
from streams.rules.shapes import SHAPES


def read(shape, body):
    return read_events(SHAPES[shape], "p", body, observed_ms=5)


def one(shape, body):
    [told] = read(shape, body).told
    return told


def meaning(shape, body):
    event = one(shape, body).event
    return event.state, event.engagement, event.about


RESEND = {
    "type": "email.bounced",
    "created_at": "2026-01-27T14:59:44.101Z",
    "data": {
        "email_id": "m1",
        "to": ["jane@example.com"],
        "bounce": {"type": "Permanent", "subType": "General", "message": "a text"},
    },
}


@pytest.mark.parametrize(
    ("shape", "body", "expected"),
    [
        ("ses", {"eventType": "Delivery", "delivery": {}}, ("delivered", "none", "")),
        ("ses", {"eventType": "Bounce"}, ("temporarily_failed", "none", "provider")),
        ("ses", {"eventType": "Reject"}, ("rejected", "none", "content")),
        ("ses", {"eventType": "Click"}, ("unknown", "clicked", "")),
        ("ses", {"eventType": "Of next year"}, ("unknown", "none", "")),
        ("sendgrid", {"event": "deferred"}, ("temporarily_failed", "none", "provider")),
        (
            "sendgrid",
            {"event": "bounce", "type": "blocked"},
            ("temporarily_failed", "none", "provider"),
        ),
        ("sendgrid", {"event": "spamreport"}, ("complained", "none", "recipient")),
        ("sendgrid", {"event": "open"}, ("unknown", "opened", "")),
        ("mailgun", {"event-data": {"event": "complained"}}, ("complained", "none", "recipient")),
        ("mailgun", {"event-data": {"event": "clicked"}}, ("unknown", "clicked", "")),
        ("resend", RESEND, ("bounced", "none", "recipient")),
        ("resend", {"type": "email.opened"}, ("unknown", "opened", "")),
        ("twilio", {"MessageStatus": "queued"}, ("unknown", "none", "")),
        ("twilio", {"MessageStatus": "read"}, ("delivered", "opened", "")),
        (
            "twilio",
            {"MessageStatus": "undelivered", "ErrorCode": "30007"},
            ("bounced", "none", "content"),
        ),
        ("twilio", {"MessageStatus": "failed", "ErrorCode": "99"}, ("rejected", "none", "")),
        ("fcm", {"event": "delivered"}, ("delivered", "none", "")),
        ("plain", {"state": "temporarily_failed"}, ("temporarily_failed", "none", "provider")),
        ("plain", {"engagement": "opened"}, ("unknown", "opened", "")),
    ],
)
def test_a_providers_word_has_one_meaning(shape, body, expected):
    """
    D-049, D-051: each word in our words; one that is not known says nothing and is kept.
    """
    assert expected == tuple(map(str, meaning(shape, body)))


def test_every_field_is_found_where_the_shape_says():
    """
    D-053: ids, code and time; the summary is made of words and codes that were checked.
    """
    told = one("resend", RESEND)

    assert ("m1", "email.bounced.permanent", "General", 1_769_525_984_101, 5) == (
        told.message_id,
        told.event.kind,
        told.event.provider_code,
        told.event.provider_ms,
        told.event.observed_ms,
    )
    assert told.event.summary == (
        "bounced (email.bounced.permanent), code General; about the recipient"
    )


@pytest.mark.parametrize(
    ("at", "ms"),
    [
        (1_767_225_600, 1_767_225_600_000),
        (1_767_225_600.659519, 1_767_225_600_659),
        ("1767225600", 1_767_225_600_000),
        ("1767225600.5", 1_767_225_600_500),
        (1_767_225_600_123, 1_767_225_600_123),
        ("2026-01-01T00:00:00Z", 1_767_225_600_000),
        ("2026-01-01T00:00:00.250+00:00", 1_767_225_600_250),
        ("2026-01-01 00:00:00", 1_767_225_600_000),
        ("2026-01-01T01:00:00+01:00", 1_767_225_600_000),
        ("yesterday", 0),
        ("", 0),
        (-1, 0),
        (True, 0),
        (None, 0),
        (1e300, 0),
        ("9" * 400, 0),
        ([1], 0),
        ("0001-01-01T00:00:00+23:59", 0),
    ],
)
def test_a_providers_time_is_read_in_each_of_its_forms(at, ms):
    """
    H06: fractions order events of one second; what is no time is none.
    """
    assert ms == one("plain", {"state": "bounced", "at": at}).event.provider_ms


def test_our_own_id_comes_back_with_its_generation():
    """
    D-071, C-12.
    """
    own = "dlv_" + "0f" * 16
    told = one("plain", {"webhook_id": f"{own}-12", "state": "bounced"})

    assert (own, 12) == (told.delivery_id, told.generation)


@pytest.mark.parametrize(
    "text", ["dlv_1-1", "x", f"dlv_{'0f' * 16}", f"dlv_{'0f' * 16}-0", 7, None]
)
def test_what_is_not_our_own_id_names_no_delivery(text):
    """
    C-13: nothing is guessed.
    """
    told = one("plain", {"webhook_id": text, "state": "bounced"})

    assert ("", 0) == (told.delivery_id, told.generation)


def test_an_address_becomes_a_subject_of_its_message():
    """
    D-043, H02: the same recipient within a message, unlike in another, and no address.
    """
    bodies = [
        {"message_id": m, "recipient": r, "state": "bounced", "at": 1}
        for m, r in [
            ("m1", "Jane@Example.com "),
            ("m1", "jane@example.com"),
            ("m2", "jane@example.com"),
        ]
    ]
    first, second, third = (one("plain", body).event for body in bodies)

    assert first.subject == second.subject != third.subject
    assert 12 == len(first.subject)
    assert first.event_id == second.event_id != third.event_id


def test_without_any_field_of_its_own_the_item_is_its_identity():
    """
    D-055: the same text again is the same event; other text is another.
    """
    first, again, other = (
        one("plain", {"state": "bounced", "x": x}).event.event_id for x in (1, 1, 2)
    )

    assert first == again != other


@pytest.mark.parametrize("code", ["smtp; 550 no such user", "a" * 65, "ключ", {"a": 1}, ""])
def test_what_is_no_code_is_not_kept(code):
    """
    D-043: a sentence in a code's place is a provider's text.
    """
    assert "" == one("plain", {"state": "bounced", "code": code}).event.provider_code


@pytest.mark.parametrize("kind", ["a" * 65, "<script>", "ü"])
def test_a_word_that_is_none_is_another_word(kind):
    """
    D-043: labels and answers hold no text of anybody's choice.
    """
    assert "other" == one("ses", {"eventType": kind}).event.kind


def test_a_secret_in_an_events_id_is_masked():
    """
    D-044: whatever a provider uses for an id.
    """
    event = one("plain", {"state": "bounced", "event_id": "Bearer FAKEEX0001FAKEEX0001"}).event

    assert "FAKEEX0001" not in repr(event)


def test_a_body_of_too_many_events_is_read_to_the_bound():
    """
    O-005: bounded work; the rest is counted.
    """
    body = [{"event": "open", "sg_event_id": str(n)} for n in range(EVENTS_MAX + 3)]

    reading = read("sendgrid", body)

    assert (EVENTS_MAX, 3) == (len(reading.told), reading.unread)


@pytest.mark.parametrize("body", [None, 1, "x", [], {}, [[]], [None, "x", {}]])
@pytest.mark.parametrize("shape", SHAPES)
def test_what_holds_no_event_gives_none(shape, body):
    """
    H04: counted, not raised.
    """
    assert () == read(shape, body).told


WORDS = [
    *("event", "events", "state", "at", "code", "Message", "mail", "bounce", "recipients", "email"),
    *("timestamp", "event-data", "data", "type", "body", "error", "details", "errorCode"),
    *("MessageStatus", "recipient", "message_id", "webhook_id"),
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(WORDS),
            inner,
            max_size=6,
        )
    ),
    max_leaves=15,
)


@given(shape=st.sampled_from(sorted(SHAPES)), body=JSON)
def test_any_body_is_read_or_counted(shape, body):
    """
    D-053: total; what comes out is within its bounds.
    """
    for told in read(shape, body).told:
        event = told.event
        assert event.event_id.startswith("evt_")
        assert max(map(len, (event.kind, event.provider_code, told.message_id))) <= 128
        assert (event.state, event.engagement, event.about) in {
            (s, e, a) for s in Downstream for e in Engagement for a in About
        }
        event.summary.encode()
