"""One connection: writes one request, reads one answer, and knows what that proves.

It is the only place that can tell *before* from *after* (C-05), by four facts: whether the
connection stood, whether it was a used one, whether the kernel took the whole request, and whether
a byte of an answer came.
"""

from __future__ import annotations

import asyncio
import select
import ssl
from typing import TYPE_CHECKING, Final, cast

from streams.edge.failpoint import failpoint
from streams.edge.http.answer import Answer

if TYPE_CHECKING:
    from collections.abc import Callable

    from streams.edge.http.call import Wanted
    from streams.model.observation import Observation
    from streams.rules.addresses import Origin

LONG_IDLE_S: Final = 1.0
"""From this idle time on, the socket is asked for a close that the loop has not seen yet."""

_TIMER_SLACK_S: Final = 0.001  # uvloop's timers count whole milliseconds and may fire early


class Connection(asyncio.BufferedProtocol):
    """One TCP or TLS connection to one origin.

    A buffered protocol: all connections of a pool receive into one buffer, where a plain protocol
    would have asyncio allocate 256 KiB for each read. Each read is parsed before the next happens.

    Attributes:
        lane: Whose share of the pool this connection counts for.
        origin: What it is connected to.
        context: The TLS context it was made with; None for http.
        idle_since: Loop time at which its last call ended.
    """

    __slots__ = (
        "_answer", "_buffer", "_closed", "_deadline", "_loop", "_on_closed", "_timer", "_transport",
        "_unwritten", "_used", "_waiter", "context", "idle_since", "lane", "origin",
    )  # fmt: skip

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        buffer: memoryview,
        lane: str,
        origin: Origin,
        context: ssl.SSLContext | None,
        on_closed: Callable[[Connection], None],
    ) -> None:
        self.lane = lane
        self.origin = origin
        self.context = context
        self.idle_since = 0.0
        self._loop = loop
        self._buffer = buffer
        self._on_closed = on_closed
        self._answer = Answer()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._deadline = 0.0
        self._closed = False
        self._unwritten = False
        self._used = False

    # ── What the pool and the transport ask ──────────────────────────────────────────────────────

    @property
    def is_reusable(self) -> bool:
        """Whether the last answer ended cleanly and the connection may carry another request."""
        return self._answer.is_clean and not self._closed and not self._unwritten

    def leads_to(self, origin: Origin, context: ssl.SSLContext | None) -> bool:
        """Whether it was made for just this; not so any more once an operator edits the target."""
        return self.origin == origin and self.context is context

    def is_quiet(self, *, now: float) -> bool:
        """Whether a request may be written: still open, and the peer has said nothing unasked.

        A fresh or long idle connection asks the socket too: a close, a reset or a banner that has
        arrived but was not read by the loop yet is then a fault *before* the request. Not so a
        fresh TLS one: session tickets of the peer may wait on its socket (RFC 8446 §4.6.1).
        """
        transport = self._transport
        if self._closed or transport is None or transport.is_closing():
            return False
        if (now - self.idle_since < LONG_IDLE_S) if self._used else self.context is not None:
            return True
        readable = select.poll()
        readable.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
        return not readable.poll(0)

    def send(self, request: bytes, deadline: float, wanted: Wanted) -> asyncio.Future[None] | None:
        """Write `request` in one piece; the future ends when `observe` has something to tell.

        Returns None when the connection is closing: then no byte was handed to the kernel.
        """
        transport = self._transport
        if self._closed or transport is None or transport.is_closing():
            return None
        self._answer.expect(wanted)
        waiter = self._waiter = self._loop.create_future()
        self._deadline = deadline
        # One timer for many requests: it is left running, and moved on when it fires too early.
        if self._timer is None or self._timer.when() > deadline:
            self._start_timer()
        transport.write(request)
        failpoint("in_call")
        return waiter

    def observe(self, *, now: float, duration_ms: int) -> Observation:
        """Say what the call saw, once the future of `send` is done."""
        self._used = True
        self.idle_since = now
        return self._answer.observation(duration_ms=duration_ms)

    def close(self) -> None:
        """End the connection at once and free its place in the pool. May be repeated.

        A call in flight on it ends as if the peer had closed.
        """
        if self._closed:
            return
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            self._transport.abort()
        self._on_closed(self)

    # ── What the event loop tells ────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport; have it report every byte that the kernel does not take at once.

        Under TLS up to 64 KiB more may wait unreported; both sides of that line are *after*.
        """
        # By its methods, not by its class: uvloop's does not derive from asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=0)

    def pause_writing(self) -> None:
        """Note that a part of the request still waits in this process."""
        self._unwritten = True

    def resume_writing(self) -> None:
        """Note that the kernel has taken the whole request."""
        self._unwritten = False

    def get_buffer(self, sizehint: int) -> memoryview:
        """Give the buffer that all connections share."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Parse what was read."""
        if self._waiter is None:
            self.close()  # bytes that nobody asked for: the next answer could not be trusted
        elif self._answer.feed(self._buffer[:nbytes]):
            self._wake()

    def eof_received(self) -> bool:
        """Settle a call by the peer's orderly close; close our side too."""
        self._end("read_closed")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Settle a call by the loss of the connection."""
        if isinstance(exc, ssl.SSLError):
            self._end("read_tls_failed")
        else:
            self._end("read_closed" if exc is None else "read_reset")

    # ── Within ───────────────────────────────────────────────────────────────────────────────────

    def _end(self, code: str) -> None:
        """Settle by the connection's end; `code` is what that means for a request that left."""
        if self._unwritten:
            code = "write_failed"
        elif self._answer.has_begun:
            code = "protocol_truncated" if code == "read_closed" else code
        elif self._used:
            # Not a safe retry: the peer may have read the request before it closed (C-05).
            code = "stale_connection"
        self._settle(code)

    def _settle(self, code: str) -> None:
        if self._waiter is not None:
            self._answer.settle(code)
            self._wake()
        self.close()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _start_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._deadline, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._waiter is None:
            return
        if self._deadline - self._loop.time() > _TIMER_SLACK_S:
            self._start_timer()
        else:
            self._settle("write_timeout" if self._unwritten else "read_timeout")
