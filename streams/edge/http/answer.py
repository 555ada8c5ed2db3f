"""One answer as it comes in: bytes are fed, the little that is kept stays here. Does no I/O."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Final

import httptools

from streams.edge.http.call import Wanted, message_id, message_id_in_json
from streams.model.faults import fault_of
from streams.model.observation import Fault, Observation

HEAD_BYTES_MAX: Final = 65_536
"""Bound of everything before an answer's body: interim answers, status line and headers."""

BODY_BYTES_MAX: Final = 65_536
"""C-11: a body is read up to here; then the connection is closed and the status stands."""

INTERIM_MAX: Final = 16
"""Interim (1xx) answers skipped before the final one."""

MISDIRECTED: Final = 421
"""RFC 9110 §15.5.20: this connection does not lead to who can answer; the next call takes another."""

NOTHING_WANTED: Final = Wanted()

_PROTOCOL: Final = b"HTTP/1."  # llhttp also takes HTTP/0.9, HTTP/2.0, RTSP and ICE

_RETRY_AFTER: Final = b"retry-after"

_PLAIN_BYTES_MAX: Final = 4_096
"""A longer piece is not looked through for what `Answer._is_plain` looks for."""

_FINAL: Final = tuple(b"%b%d %d" % (_PROTOCOL, minor, x) for minor in (1, 0) for x in range(2, 6))
"""How an answer begins that no interim one comes before."""


class _Stopped(Exception):  # noqa: N818  # leaves the parser; never seen outside this module
    """Ends the parsing of an answer whose outcome is settled."""


class Answer:
    """Reads the answers of one connection, one after the other.

    By one of two parsers, which differ in nothing but that the plain one names no headers. Where none
    is kept, as the bytes show (`_is_plain`), a call takes 66,500 instructions in place of 72,900
    (five headers, no socket; cachegrind).

    Attributes:
        has_begun: A byte of the answer came.
        has_head: Its final status line and headers came whole: from here on the status stands,
            whatever becomes of the body (field case B17).
        is_settled: Nothing more is to be read.
        is_clean: It ended where it said it would, and the connection may carry another.
        fault: Why it is no answer, once settled; None when `has_head`.
    """

    __slots__ = (
        "_body", "_body_left", "_head_left", "_interim", "_message_id", "_naming", "_parser",
        "_plain", "_prefix", "_retry_after", "_status", "_wanted",
        "fault", "has_begun", "has_head", "is_clean", "is_settled",
    )  # fmt: skip

    _body: list[bytes] | None
    _message_id: str | None
    _prefix: bytes
    _retry_after: tuple[str, ...]
    _wanted: Wanted
    fault: Fault | None

    def __init__(self) -> None:
        self._naming = self._parser = httptools.HttpResponseParser(self)
        nameless = SimpleNamespace(
            on_message_begin=self.on_message_begin,
            on_headers_complete=self.on_headers_complete,
            on_body=self.on_body,
            on_message_complete=self.on_message_complete,
        )
        self._plain = httptools.HttpResponseParser(nameless)
        self._status = self._interim = 0
        self._head_left = HEAD_BYTES_MAX
        self.expect(NOTHING_WANTED)

    def expect(self, wanted: Wanted) -> None:
        """Forget the last answer and wait for the next."""
        self.has_begun = self.has_head = self.is_settled = self.is_clean = False
        self.fault = self._message_id = None
        self._wanted = wanted
        self._retry_after = ()
        self._body = None if wanted.pointer is None else []
        self._prefix = b""
        self._body_left = BODY_BYTES_MAX

    def feed(self, view: memoryview) -> bool:
        """Take at most 64 KiB that came in; say whether the answer is settled."""
        if not self.has_begun:
            self.has_begun = True
            if self._is_plain(view):
                self._parser = self._plain
                self._parse(view)
                return self.is_settled
            self._parser = self._naming
            self._interim = 0
            self._head_left = HEAD_BYTES_MAX
            if not self._is_http(view):
                return self.settle("protocol_malformed")
        elif self._prefix and not self._is_http(view):
            return self.settle("protocol_malformed")
        if self.has_head or len(view) <= self._head_left:
            self._parse(view)
        elif self._parse(view[: self._head_left]):
            self._parse(view[self._head_left :])
        if not self.has_head:
            self._head_left -= len(view)
            if self._head_left <= 0:
                self.settle("protocol_headers_too_large")
        return self.is_settled

    def settle(self, code: str) -> bool:
        """End an answer that has not ended itself: by its status, or by the fault of `code`."""
        if not self.is_settled:
            self.is_settled = True
            self.fault = None if self.has_head else fault_of(code)
        return True

    def observation(self, *, duration_ms: int) -> Observation:
        """Say what was seen, once the answer is settled; lets go of the body."""
        if self.fault is not None:
            return Observation(fault=self.fault, duration_ms=duration_ms)
        found = self._message_id
        if self._body is not None and self._wanted.pointer is not None:
            # A body that broke off is no JSON document either; it needs no test of its own.
            found = message_id_in_json(b"".join(self._body), self._wanted.pointer)
            self._body = None
        return Observation(
            status=self._status,
            retry_after=self._retry_after,
            provider_message_id=found,
            duration_ms=duration_ms,
        )

    # ── What the parser tells ────────────────────────────────────────────────────────────────────

    def on_message_begin(self) -> None:
        """Notice bytes that follow the answer that was asked for."""
        if self.is_settled:
            raise _Stopped

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep the two headers that matter; trailers come after the head and do not count."""
        if self.has_head:
            return
        size = len(name)
        if size == len(_RETRY_AFTER) and name.lower() == _RETRY_AFTER:
            self._retry_after += (value.decode("latin-1").strip(),)
        header = self._wanted.header
        if size == len(header) and self._message_id is None and name.lower() == header:
            self._message_id = message_id(value.decode("latin-1").strip())

    def on_headers_complete(self) -> None:
        """Let a final status stand; count an interim one."""
        status = self._parser.get_status_code()
        if 200 <= status <= 599:
            if self._interim and not self._parser.get_http_version().startswith("1."):
                self._stop("protocol_malformed")
            self._status = status
            self.has_head = True
            return
        if status == 101:
            self._stop("protocol_switched")
        if not 100 <= status < 200:
            self._stop("protocol_malformed")
        self._interim += 1
        if self._interim > INTERIM_MAX:
            self._stop("protocol_interim_storm")

    def on_body(self, body: bytes) -> None:
        """Count the body down; keep it only where a JSON pointer is to be read from it."""
        self._body_left -= len(body)
        if self._body_left < 0:
            self._stop("")
        if self._body is not None:
            self._body.append(body)

    def on_message_complete(self) -> None:
        """Settle the answer, or forget an interim one."""
        if self.has_head:
            self.is_settled = True
            self.is_clean = self._parser.should_keep_alive() and self._status != MISDIRECTED
            return
        self._retry_after = ()
        self._message_id = None

    # ── Within ───────────────────────────────────────────────────────────────────────────────────

    def _is_plain(self, view: memoryview) -> bool:
        """Whether an answer that begins with `view` holds no header that is kept.

        So it is where the whole of a final head is there and does not have such a name in it anywhere:
        llhttp takes no name that is folded or written otherwise. An interim answer may be followed by
        a head that is not there yet.
        """
        if len(view) > _PLAIN_BYTES_MAX:
            return False
        text = bytes(view)
        # By `find`: `in` asks first whether it was given a number, 1,000 instructions each (cachegrind).
        if not text.startswith(_FINAL) or text.find(b"\r\n\r\n") < 0:
            return False
        text = text.lower()
        header = self._wanted.header
        return text.find(_RETRY_AFTER) < 0 and (not header or text.find(header) < 0)

    def _is_http(self, view: memoryview) -> bool:
        """Whether the answer so far can be HTTP/1.x; gathers a prefix that comes in pieces."""
        prefix = self._prefix + view[: len(_PROTOCOL)]
        self._prefix = prefix if len(prefix) < len(_PROTOCOL) else b""
        return prefix.startswith(_PROTOCOL) or _PROTOCOL.startswith(prefix)

    def _parse(self, view: memoryview) -> bool:
        """Feed the parser; say whether a body goes on after what it was fed."""
        try:
            self._parser.feed_data(view)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if isinstance(error, httptools.HttpParserCallbackError) and not isinstance(
                error.__context__, _Stopped
            ):
                raise  # a callback of ours failed: a bug, not an answer
            self.is_clean = False
            self.settle("protocol_malformed")
        return self.has_head and not self.is_settled

    def _stop(self, code: str) -> None:
        self.settle(code)
        raise _Stopped
