"""A place to deliver to, for tests, the demo and benchmarks: it behaves as the path of a URL says.

`receiver_paths` lists the behaviours. `/healthz` answers 200 and is not counted as a call.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final, Self, cast

import httptools
import msgspec

from streams.edge.receiver_paths import BEHAVIOURS, REMEMBERING, Answer, End, read_path

_ATTEMPT: Final = re.compile(r"[0-9]{1,9}")
_LINGER_0_S: Final = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request as it was received, whole.

    Attributes:
        t: When its last byte was read, epoch seconds.
        id: Its `webhook-id`, None where it had none.
        attempt: Its `outbox-attempt`, None where it had none or not a number.
        path: Path and query as received.
        status: The status that it is about to be answered with, None where no answer is sent.
        headers: In order, names in lower case.
    """

    t: float
    id: str | None
    attempt: int | None
    path: str
    status: int | None
    method: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def log_line(self) -> bytes:
        """One JSON line: t, id, attempt, path, status, bytes and sha256 of the body."""
        return (
            msgspec.json.encode(
                {
                    "t": self.t,
                    "id": self.id,
                    "attempt": self.attempt,
                    "path": self.path,
                    "status": self.status,
                    "bytes": len(self.body),
                    "sha256": hashlib.sha256(self.body).hexdigest(),
                }
            )
            + b"\n"
        )


@dataclass(slots=True, kw_only=True)
class Receiver:
    """The test receiver: `async with Receiver() as receiver: receiver.url("/ok")`.

    Attributes:
        host: Address to listen on; loopback unless told.
        port: Port to listen on; with 0, the one that was free, once it serves.
        log: File to which each call adds a line before it is answered; `-` is standard output.
        keeps_calls: Whether `calls` grows; off for long runs.
        calls: Every call so far, in the order read.
    """

    host: str = "127.0.0.1"
    port: int = 0
    log: Path | None = None
    keeps_calls: bool = True
    calls: list[Call] = field(default_factory=list)
    _seen: Counter[tuple[str, str]] = field(default_factory=Counter)
    _count: int = 0
    _waiting: list[tuple[int, asyncio.Future[None]]] = field(default_factory=list)
    _connections: set[_Connection] = field(default_factory=set)
    _server: asyncio.Server | None = None
    _file: BinaryIO | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Listen, and know the port.

        Raises:
            OSError: when the port is taken or the log cannot be written.
        """
        if self.log is not None:
            self._file = _open_log(self.log)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Connection(self), self.host, self.port, backlog=4096
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop listening and drop every connection, those that hang included."""
        if self._server is not None:
            self._server.close()
            for connection in tuple(self._connections):
                connection.drop()
            await self._server.wait_closed()
            self._server = None
        if self._file is not None:
            self._file.close()
            self._file = None

    def url(self, path: str) -> str:
        """The absolute URL of `path` here."""
        return f"http://{self.host}:{self.port}{path}"

    async def wait_for_calls(self, count: int) -> None:
        """Return once `count` calls have been read since the start; at once where they have."""
        if self._count < count:
            arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((count, arrived))
            await arrived

    def answer_to(self, path: str, message_id: str | None) -> Answer:
        """What a call of `path` gets now. Counts it for the paths that remember their calls."""
        wanted = read_path(path)
        if wanted is None:
            return Answer(status=404)
        name, number = wanted
        seen = 0
        if name in REMEMBERING:
            key = (message_id or "", path)
            seen = self._seen[key]
            self._seen[key] = seen + 1
        return BEHAVIOURS[name](number, seen)

    def took(self, call: Call) -> None:
        """Write the call down before anything else happens to it, so that a crash loses none."""
        if self._file is not None:
            self._file.write(call.log_line())
            self._file.flush()
        if self.keeps_calls:
            self.calls.append(call)
        self._count += 1
        for waiting in [w for w in self._waiting if w[0] <= self._count]:
            self._waiting.remove(waiting)
            if not waiting[1].done():
                waiting[1].set_result(None)

    def opened(self, connection: _Connection) -> None:
        """Remember a connection, to drop it at the end."""
        self._connections.add(connection)

    def closed(self, connection: _Connection) -> None:
        """Forget it."""
        self._connections.discard(connection)


class _Connection(asyncio.Protocol):
    """One caller: reads requests whole, and answers each as its path says."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: list[bytes] = []
        self._later: asyncio.TimerHandle | None = None
        self._is_busy = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._receiver.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._receiver.closed(self)
        self._transport = None
        if self._later is not None:
            self._later.cancel()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            if self._transport is not None:
                self._transport.write(Answer(status=400, body_bytes=0).head(keep=False))
                self._transport.close()

    def drop(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # httptools calls the following as the parts of a request come.

    def on_message_begin(self) -> None:
        self._url = b""
        self._headers = []
        self._body = []

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        if self._is_busy:
            # A second request before the answer to the first: nobody pipelines to us on purpose.
            self.drop()
            return
        path = self._url.decode("latin-1")
        method = self._parser.get_method().decode("ascii")
        if path.partition("?")[0] == "/healthz":
            self._answer(Answer(), method)
            return
        headers = tuple((n.decode("latin-1"), v.decode("latin-1")) for n, v in self._headers)
        by_name = dict(headers)
        message_id = by_name.get("webhook-id")
        attempt = by_name.get("outbox-attempt", "")
        answer = self._receiver.answer_to(path, message_id)
        self._receiver.took(
            Call(
                t=time.time(),
                id=message_id,
                attempt=int(attempt) if _ATTEMPT.fullmatch(attempt) else None,
                path=path,
                status=answer.status,
                method=method,
                headers=headers,
                body=b"".join(self._body),
            )
        )
        self._answer(answer, method)

    def _answer(self, answer: Answer, method: str) -> None:
        transport = self._transport
        if transport is None:
            return
        match answer.end:
            case End.ANSWER if answer.wait_ms:
                self._is_busy = True
                self._after(answer.wait_ms, lambda: self._write(answer, method))
            case End.ANSWER:
                self._write(answer, method)
            case End.DRIP:
                self._is_busy = True
                transport.write(answer.head(keep=True))
                self._after(answer.wait_ms, lambda: self._drip(answer.wait_ms, answer.body_bytes))
            case End.HANG:
                self._is_busy = True
            case End.CLOSE:
                transport.close()
            case End.RESET:
                # Closing a socket that lingers for 0 s sends RST instead of FIN.
                own = transport.get_extra_info("socket")
                own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_0_S)
                transport.abort()
            case End.GARBAGE:
                transport.write(b"\x00\x01 this is not HTTP\r\n\r\n")
                transport.close()

    def _write(self, answer: Answer, method: str) -> None:
        self._is_busy = False
        if self._transport is None:
            return
        keep = self._parser.should_keep_alive()
        body = b"." * answer.body_bytes if answer.has_body and method != "HEAD" else b""
        self._transport.write(answer.head(keep=keep) + body)
        if not keep:
            self._transport.close()

    def _drip(self, wait_ms: int, left_bytes: int) -> None:
        if self._transport is None:
            return
        self._transport.write(b".")
        if left_bytes > 1:
            self._after(wait_ms, lambda: self._drip(wait_ms, left_bytes - 1))
        else:
            self._is_busy = False

    def _after(self, wait_ms: int, then: Callable[[], None]) -> None:
        self._later = asyncio.get_running_loop().call_later(wait_ms / 1000, then)


def _open_log(path: Path) -> BinaryIO:
    """The file to add to: a receiver that comes back must not lose what it wrote before."""
    if path == Path("-"):
        return os.fdopen(os.dup(1), "ab")
    return path.open("ab")
