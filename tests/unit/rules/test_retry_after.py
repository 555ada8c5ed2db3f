"""What servers really put into Retry-After, and how long we wait for it."""

import time
from datetime import UTC, datetime

import pytest

from streams.rules.retry_after import MAX_WAIT_MS, is_malformed, wait_ms


def ms(text):
    return int(datetime.fromisoformat(text).astimezone(UTC).timestamp()) * 1_000


NOW = ms("2026-01-01T00:00:00Z")
NOW_1994 = ms("1994-11-06T08:48:37Z")


@pytest.mark.parametrize(
    "zone", ["America/New_York", "UTC", "Asia/Jerusalem", "Asia/Kolkata", "Pacific/Auckland"]
)
def test_a_date_is_read_alike_in_every_zone_of_the_host(zone, monkeypatch):
    """
    A01, D-018: an HTTP date is UTC, wherever the worker stands.
    """
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        waited = wait_ms(("Thu, 25 Jun 2020 21:30:12 GMT",), ms("2020-06-25T21:28:12Z"))
    finally:
        monkeypatch.undo()
        time.tzset()

    assert waited == 120_000


@pytest.mark.parametrize(
    "value",
    [
        "Sun, 06 Nov 1994 08:49:37 GMT",
        "Sunday, 06-Nov-94 08:49:37 GMT",
        "Sun Nov  6 08:49:37 1994",
        "  Sun, 06 Nov 1994 08:49:37 GMT\t",
        "sun, 06 nov 1994 08:49:37 gmt",
    ],
)
def test_all_three_layouts_of_a_date_are_read(value):
    """
    A02: RFC 9110 §5.6.7 obliges a recipient to accept all three.
    """
    assert wait_ms((value,), NOW_1994) == 60_000


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("0", 0), ("20", 20), ("0020", 20), ("120", 120), (" 7 ", 7), ("000", 0)],
)
def test_whole_seconds_are_read(value, seconds):
    """
    D-018: delay-seconds.
    """
    assert seconds * 1_000 == wait_ms((value,), NOW)


@pytest.mark.parametrize(
    ("value", "seconds"), [("0.493", 1), ("292.052427053", 293), ("1.5", 2), ("2.0", 2)]
)
def test_fractions_are_rounded_up(value, seconds):
    """
    A04: outside the grammar, and real; rounding up never comes earlier than asked.
    """
    assert seconds * 1_000 == wait_ms((value,), NOW)


@pytest.mark.parametrize("value", ["-5", "-0", "+5", "- 5", "-0.5"])
def test_signs_are_not_read(value):
    """
    A05: the grammar has none; the own backoff applies.
    """
    assert wait_ms((value,), NOW) is None


@pytest.mark.parametrize(
    ("value", "wait"),
    [
        ("86400", 86_400_000),
        ("9999999999", 9_999_999_999_000),
        ("99999999999999999999", MAX_WAIT_MS),
        ("9" * 5_000, MAX_WAIT_MS),
        ("0" * 5_000 + "7", 7_000),
        ("9" * 5_000 + ".5", MAX_WAIT_MS),
    ],
)
def test_huge_numbers_are_clamped(value, wait):
    """
    A07: no overflow, no ValueError past 4,300 digits; C-06 gives the clamped wait its own code.
    """
    assert wait == wait_ms((value,), NOW)


@pytest.mark.parametrize(
    "value",
    [
        "Sun, 06 Nov 1994 08:49:37",
        "Sun, 06 Nov 1994 08:49:37 -0000",
        "Sun, 06 Nov 1994 08:49:37 +0200",
        "Sun, 06 Nov 1994 08:49:37 EST",
        "Sun, 06 Nov 1994 08:49:37 UTC",
    ],
)
def test_dates_without_the_literal_gmt_are_not_read(value):
    """
    A09: one rule for all of them, and the log line can say that the value was malformed.
    """
    assert (None, True) == (wait_ms((value,), NOW_1994), is_malformed((value,)))


@pytest.mark.parametrize(
    ("values", "seconds"),
    [
        (("10", "600"), 600),
        (("2814, 2",), 2_814),
        (("600", "garbage"), 600),
        (("2,,2814,",), 2_814),
        (("5, Sun, 06 Nov 1994 08:49:37 GMT, 7",), 60),
        (("Sunday, 06-Nov-94 08:49:37 GMT", "30"), 60),
    ],
)
def test_the_longest_of_several_values_counts(values, seconds):
    """
    A11: a singleton field given twice; the careful reading is the longer wait.
    """
    assert seconds * 1_000 == wait_ms(values, NOW_1994)


@pytest.mark.parametrize(
    "value",
    [
        "", " ", "soon", "1e3", "0x10", "10s", "1.", ".5", "1.2.3", "٣", "²", "NaN", "inf",
        "10;q=1", "Sun", "Sun,", "Sun, 31 Feb 2027 08:49:37 GMT", "Sun, 06 Nov 2027 24:00:00 GMT",
        "Sun, 06 Nov 0000 08:49:37 GMT", "Sun, 6 Nov 2027 08:49:37 GMT",
        "Sun, 06 Nov 2027 08:60:00 GMT",
        "Sonntag, 06-Nov-27 08:49:37 GMT", "2027-11-06T08:49:37Z", "1\n2", "1\x0b",
    ],
)  # fmt: skip
def test_what_is_no_wait_is_not_read(value):
    """
    D-018: nothing is guessed, nothing raised.
    """
    assert wait_ms((value,), NOW) is None


def test_no_field_is_no_wait():
    """
    B13: 429 without a hint leaves the own backoff.
    """
    assert wait_ms((), NOW) is None


def test_a_date_that_is_past_asks_for_nothing():
    """
    D-018: it never shortens a delay, so it is 0 and not negative.
    """
    assert wait_ms(("Sun, 06 Nov 1994 08:49:37 GMT",), NOW) == 0


@pytest.mark.parametrize(
    ("now", "year", "instant"),
    [
        ("1994-11-06T08:48:37Z", "94", "1994-11-06T08:49:37Z"),
        ("1999-12-31T00:00:00Z", "00", "2000-11-06T08:49:37Z"),
        ("2026-01-01T00:00:00Z", "75", "2075-11-06T08:49:37Z"),
        ("2026-11-06T08:49:37Z", "76", "2076-11-06T08:49:37Z"),
        ("2026-11-06T08:49:36Z", "76", None),
        ("2026-01-01T00:00:00Z", "94", None),
        ("2080-01-01T00:00:00Z", "05", "2105-11-06T08:49:37Z"),
    ],
)
def test_two_digit_years_lie_at_most_fifty_years_ahead(now, year, instant):
    """
    Issue 5: RFC 9110 §5.6.7; beyond fifty years it is the most recent such year of the past.
    """
    expected = 0 if instant is None else ms(instant) - ms(now)

    waited = wait_ms((f"Sunday, 06-Nov-{year} 08:49:37 GMT",), ms(now))

    assert expected == waited


def test_a_leap_second_is_the_second_after():
    """
    RFC 9110 §5.6.7: second 60 is in the grammar.
    """
    waited = wait_ms(("Sat, 31 Dec 2016 23:59:60 GMT",), ms("2016-12-31T23:59:00Z"))

    assert waited == 60_000


def test_the_wait_to_a_date_is_exact_in_milliseconds():
    """
    D-018: half a second into the second, half a second less to wait, never a whole one less.
    """
    assert wait_ms(("Sun, 06 Nov 1994 08:49:37 GMT",), NOW_1994 + 500) == 59_500


@pytest.mark.parametrize(
    ("values", "malformed"),
    [
        ((), False),
        (("20",), False),
        (("Sun Nov  6 08:49:37 1994",), False),
        (("Sunday, 06-Nov-94 08:49:37 GMT",), False),
        (("0.493",), True),
        (("-5",), True),
        (("10", "600"), True),
        (("2814, 2",), True),
        (("",), True),
    ],
)
def test_a_field_outside_the_grammar_is_told_apart(values, malformed):
    """
    A04, A09: a diagnostic notes an invalid hint.
    """
    assert malformed == is_malformed(values)
