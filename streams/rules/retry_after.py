"""How long a target asks us to wait: the `Retry-After` field (RFC 9110 §10.2.3, §5.6.7).

The one rule for what servers really send: numbers are rounded up to whole seconds, the longest wait
among several readable values counts, and what is outside the grammar otherwise (signs, a date
without the literal GMT, words) is not read at all, so that the own backoff applies. No host time
zone is involved: HTTP dates are UTC, and the arithmetic here never sees a local time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

MAX_WAIT_MS: Final = 10**15
"""What absurd waits are clamped to (31,000 years): past every policy's limit, so that clamping
never shortens a wait that a policy would grant, and small enough for a due time in 64 bits."""

_MONTHS: Final = (
    *("jan", "feb", "mar", "apr", "may", "jun"),
    *("jul", "aug", "sep", "oct", "nov", "dec"),
)
_ANY_CASE: Final = re.IGNORECASE | re.ASCII
_SHORT_DAY: Final = "(?:mon|tue|wed|thu|fri|sat|sun)"
_LONG_DAY: Final = "(?:monday|tuesday|wednesday|thursday|friday|saturday|sunday)"
_MONTH: Final = f"(?P<month>{'|'.join(_MONTHS)})"
_TIME: Final = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})"

_DATES: Final = (
    # IMF-fixdate: Sun, 06 Nov 1994 08:49:37 GMT
    re.compile(
        rf"{_SHORT_DAY}, (?P<day>[0-9]{{2}}) {_MONTH} (?P<year>[0-9]{{4}}) {_TIME} gmt",
        _ANY_CASE,
    ),
    # rfc850-date: Sunday, 06-Nov-94 08:49:37 GMT
    re.compile(
        rf"{_LONG_DAY}, (?P<day>[0-9]{{2}})-{_MONTH}-(?P<year>[0-9]{{2}}) {_TIME} gmt",
        _ANY_CASE,
    ),
    # asctime-date: Sun Nov  6 08:49:37 1994
    re.compile(
        rf"{_SHORT_DAY} {_MONTH} (?P<day>[0-9]{{2}}| [0-9]) {_TIME} (?P<year>[0-9]{{4}})",
        _ANY_CASE,
    ),
)
_SECONDS: Final = re.compile(r"(?P<whole>[0-9]+)(?:\.(?P<part>[0-9]+))?", re.ASCII)
_DAY_NAME: Final = re.compile(f"{_SHORT_DAY}|{_LONG_DAY}", _ANY_CASE)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def wait_ms(values: tuple[str, ...], now_ms: int) -> int | None:
    """The longest wait that `values` ask for, or None when none of them can be read.

    Args:
        values: Every `Retry-After` value of the answer, in order; each may be a comma list.
        now_ms: Epoch milliseconds; dates are counted from it, one that is past asks for 0.

    Returns:
        0 to `MAX_WAIT_MS`, whole seconds where a number was given.
    """
    waits = [_member_ms(member, now_ms) for value in values for member in _members(value)]
    return max((wait for wait in waits if wait is not None), default=None)


def is_malformed(values: tuple[str, ...]) -> bool:
    """Whether the field breaks its grammar, so that an attempt's log line can say so (A04, A09).

    It is a singleton: one number of whole seconds, or one date.
    """
    if not values:
        return False
    members = [member for value in values for member in _members(value)]
    if len(members) != 1:
        return True
    return "." in members[0] or _member_ms(members[0], 0) is None


def _members(value: str) -> Iterator[str]:
    """The members of a comma list; the comma after a day's name belongs to its date."""
    day = ""
    for part in value.split(","):
        member = part.strip(" \t")
        if day:
            yield f"{day}, {member}"
            day = ""
        elif _DAY_NAME.fullmatch(member):
            day = member
        elif member:
            yield member
    if day:
        yield day


def _member_ms(member: str, now_ms: int) -> int | None:
    if number := _SECONDS.fullmatch(member):
        return _seconds_ms(number["whole"], number["part"] or "")
    for layout in _DATES:
        if date := layout.fullmatch(member):
            return _until_ms(date, now_ms)
    return None


def _seconds_ms(whole: str, part: str) -> int:
    digits = whole.lstrip("0")
    # Compared by length first: CPython refuses to read more than 4,300 digits.
    if len(digits) > len(str(MAX_WAIT_MS)):
        return MAX_WAIT_MS
    seconds = int(digits or "0") + (1 if part.strip("0") else 0)
    return min(seconds * 1_000, MAX_WAIT_MS)


def _until_ms(date: re.Match[str], now_ms: int) -> int | None:
    month = _MONTHS.index(date["month"].lower()) + 1
    day, hour, minute, second = (int(date[part]) for part in ("day", "hour", "minute", "second"))
    now = _EPOCH + timedelta(milliseconds=now_ms)
    year = int(date["year"])
    if len(date["year"]) == 2:
        year = _full_year(year, (month, day, hour, minute, second), now)
    # A leap second is second 60; `datetime` has none, the one after 59 is the same instant to us.
    leap = 1 if second == 60 else 0
    try:
        then = datetime(year, month, day, hour, minute, second - leap, tzinfo=UTC)
    except ValueError:
        return None
    wait = (then - now) // timedelta(milliseconds=1) + leap * 1_000
    return min(max(wait, 0), MAX_WAIT_MS)


def _full_year(two_digits: int, rest: tuple[int, ...], now: datetime) -> int:
    """The latest year of these digits that is not more than 50 years ahead (RFC 9110 §5.6.7)."""
    year = now.year - now.year % 100 + 100 + two_digits
    clock = (now.month, now.day, now.hour, now.minute, now.second)
    while (year - 50, rest) > (now.year, clock):
        year -= 100
    return year
