"""What the test receiver does with a call, read from the path of its URL.

| path | what a call sees |
|---|---|
| `/ok` | 200 |
| `/status/N`, `/N` | status N, 200..599 |
| `/flaky/N` | 503 for the first N calls of an id, then 200 |
| `/retry-after/S` | 429 with `Retry-After: S` for the first call of an id, then 200 |
| `/redirect` | 302 to `/ok/redirected`: a call there proves that it was followed |
| `/slow/MS` | 200 after so many milliseconds |
| `/drip/MS` | 200 at once, then a body that comes one byte each so many milliseconds |
| `/big/N` | 200 with a body of N bytes |
| `/hang` | no answer until the caller closes |
| `/close` | the connection closed without an answer |
| `/reset` | the connection reset (RST) after the request was read |
| `/garbage` | bytes that are not HTTP |

Anything may follow (`/ok/users/al/inbox`, `/flaky/2/a?b`), so that there are as many inbox URLs as
a test wants. "An id" is the `webhook-id` header under one path. Everything else is 404.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from http import HTTPStatus
from typing import Final


class End(Enum):
    """What happens to the connection once a call was read."""

    ANSWER = auto()
    """An answer, and the connection lives on."""
    DRIP = auto()
    """An answer whose body does not come to an end in a sensible time."""
    HANG = auto()
    CLOSE = auto()
    RESET = auto()
    GARBAGE = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one call gets.

    Attributes:
        status: HTTP status, None where no answer is sent.
        headers: Further header lines, each ended by CRLF.
        body_bytes: Length of the answer's body.
        wait_ms: Before the answer; between two bytes where it drips.
    """

    status: int | None = 200
    headers: bytes = b""
    body_bytes: int = 2
    wait_ms: int = 0
    end: End = End.ANSWER

    def head(self, *, keep: bool) -> bytes:
        """Status line and headers; asks the caller to close unless `keep`."""
        assert self.status is not None
        length = b"content-length: %d\r\n" % self.body_bytes if self.has_body else b""
        connection = b"" if keep else b"connection: close\r\n"
        reason = _REASONS.get(self.status, b"")
        start = b"HTTP/1.1 %d %s\r\n" % (self.status, reason)
        return start + length + self.headers + connection + b"\r\n"

    @property
    def has_body(self) -> bool:
        """Whether its status allows one."""
        return self.status not in _BODILESS


def read_path(path: str) -> tuple[str, int] | None:
    """The behaviour that a path names, with its number (0 where it takes none), or None.

    The path may carry a query; both are as received.
    """
    _, name, *more = path.partition("?")[0].split("/")
    number = more[0] if more else ""
    if _STATUS.fullmatch(name):
        return "status", int(name)
    if name not in BEHAVIOURS:
        return None
    if name not in _NUMBERED:
        return name, 0
    allowed = _STATUS if name == "status" else _DIGITS
    return (name, int(number)) if allowed.fullmatch(number) else None


_DIGITS: Final = re.compile(r"[0-9]{1,9}")
_STATUS: Final = re.compile(r"[2-5][0-9]{2}")
_BODILESS: Final = frozenset({204, 304})
_REASONS: Final = {s.value: s.phrase.encode() for s in HTTPStatus}
_DRIP_BYTES: Final = 1_000

REMEMBERING: Final = frozenset({"flaky", "retry-after"})
"""Behaviours that depend on how often an id has called."""

BEHAVIOURS: Final[dict[str, Callable[[int, int], Answer]]] = {
    "ok": lambda _n, _seen: Answer(),
    "status": lambda n, _seen: Answer(status=n),
    "flaky": lambda n, seen: Answer(status=503 if seen < n else 200),
    "retry-after": lambda n, seen: (
        Answer(status=429, headers=b"retry-after: %d\r\n" % n) if seen == 0 else Answer()
    ),
    "redirect": lambda _n, _seen: Answer(status=302, headers=b"location: /ok/redirected\r\n"),
    "slow": lambda n, _seen: Answer(wait_ms=n),
    "drip": lambda n, _seen: Answer(wait_ms=n, body_bytes=_DRIP_BYTES, end=End.DRIP),
    "big": lambda n, _seen: Answer(body_bytes=n),
    "hang": lambda _n, _seen: Answer(status=None, end=End.HANG),
    "close": lambda _n, _seen: Answer(status=None, end=End.CLOSE),
    "reset": lambda _n, _seen: Answer(status=None, end=End.RESET),
    "garbage": lambda _n, _seen: Answer(status=None, end=End.GARBAGE),
}
"""By a path's first segment: from the number in its second, and the id's calls so far."""

_NUMBERED: Final = frozenset({"status", "flaky", "retry-after", "slow", "drip", "big"})
