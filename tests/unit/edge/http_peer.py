"""A server on raw sockets that follows a script, and a caller of our transport that talks to it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable
from ipaddress import ip_network
from typing import Any, Final, Self

from streams.edge.addresses import Resolver
from streams.edge.http.call import Call, Limits
from streams.edge.http.transport import Transport, default_ssl_context
from streams.model.observation import Observation
from streams.model.values import replace
from streams.rules.addresses import parse_url

LOOPBACK: Final = (ip_network("127.0.0.0/8"), ip_network("::1/128"))
SYSTEM_CAS: Final = default_ssl_context()  # reading them takes 25 ms; once is enough
OK: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Link:
    """The peer's end of one connection."""

    def __init__(self, peer: Peer, sock: socket.socket) -> None:
        self._peer = peer
        self.sock = sock

    async def read(self) -> bytes:
        received = await asyncio.get_running_loop().sock_recv(self.sock, 65_536)
        self._peer.bytes_read += len(received)
        return received

    async def request(self) -> bytes:
        """Read one whole request."""
        received = b""
        while not _is_whole(received):
            more = await self.read()
            if not more:
                raise ConnectionError("the caller closed")
            received += more
        self._peer.requests.append(received)
        return received

    async def send(self, answer: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.sock, answer)

    async def drip(self, answer: bytes) -> None:
        """Send byte by byte, each in a segment of its own."""
        for at in range(len(answer)):
            await self.send(answer[at : at + 1])
            await asyncio.sleep(0.001)

    def reset(self) -> None:
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    async def ended(self) -> None:
        """Wait until the caller has closed the connection."""
        with contextlib.suppress(ConnectionError):
            while await self.read():
                pass
        self._peer.seen_ended += 1


Script = Callable[[Link], Awaitable[None]]


class Peer:
    """Listens on a free port; the nth connection runs the nth script, the last one repeats."""

    def __init__(self, *scripts: Script, host: str = "127.0.0.1") -> None:
        self._scripts = scripts
        self._host = host
        self.connections = 0
        self.bytes_read = 0
        self.requests: list[bytes] = []
        self.links: list[Link] = []
        self.seen_ended = 0

    async def __aenter__(self) -> Self:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        self._listener = socket.socket(family, socket.SOCK_STREAM)
        self._listener.setblocking(False)
        self._listener.bind((self._host, 0))
        self._listener.listen(128)
        self.port: int = self._listener.getsockname()[1]
        self._tasks = [asyncio.create_task(self._accept())]
        return self

    async def __aexit__(self, *exc: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._listener.close()
        for link in self.links:
            link.sock.close()

    @property
    def url(self) -> str:
        return f"http://{f'[{self._host}]' if ':' in self._host else self._host}:{self.port}/hook"

    async def _accept(self) -> None:
        while True:
            sock, _ = await asyncio.get_running_loop().sock_accept(self._listener)
            link = Link(self, sock)
            self.links.append(link)
            script = self._scripts[min(self.connections, len(self._scripts) - 1)]
            self.connections += 1
            self._tasks.append(asyncio.create_task(self._run(script, link)))

    async def _run(self, script: Script, link: Link) -> None:
        with contextlib.suppress(ConnectionError):
            await script(link)
        link.sock.close()


def answering(*answers: bytes) -> Script:
    """A script that reads a request, sends an answer, and so on; then closes."""

    async def script(link: Link) -> None:
        for answer in answers:
            await link.request()
            await link.send(answer)

    return script


def serving(answer: bytes = OK) -> Script:
    """A script that answers every request alike, and keeps the connection."""

    async def script(link: Link) -> None:
        while True:
            await link.request()
            await link.send(answer)

    return script


def ending(answer: bytes, *, reset: bool = False) -> Script:
    """A script that answers once and waits for the caller to close, or resets at once."""

    async def script(link: Link) -> None:
        await link.request()
        await link.send(answer)
        if reset:
            link.reset()
        else:
            await link.ended()

    return script


async def silent(link: Link) -> None:
    """A script that takes the request and says nothing."""
    await link.request()
    await link.ended()


def transport_of(lookup: Callable[[str], list[str]] | None = None, **settings: Any) -> Transport:
    resolver = Resolver(allowed_networks=LOOPBACK, lookup=lookup)
    return Transport(resolver=resolver, **{"ssl_context": SYSTEM_CAS} | settings)


def call_to(url: str, **changes: Any) -> Call:
    call = Call(
        target="default/crm",
        url=parse_url(url),
        headers=[(b"content-type", b"application/json")],
        body=b'{"id":1}',
        timeout_ms=5_000,
        limits=Limits(),
    )
    return replace(call, **changes)


async def post_once(peer: Peer, **changes: Any) -> Observation:
    """Make one call on a transport of its own, and say what was seen, its duration left out."""
    transport = transport_of()
    try:
        seen = await transport.post(call_to(peer.url, **changes))
    finally:
        await transport.close()
    return replace(seen, duration_ms=0)


async def until(holds: Callable[[], bool]) -> None:
    """Let the loop turn until `holds`; the test's own time-out bounds it."""
    while not holds():  # noqa: ASYNC110  # what is waited for sets no event
        await asyncio.sleep(0.001)


def _is_whole(request: bytes) -> bool:
    head, found, body = request.partition(b"\r\n\r\n")
    if not found:
        return False
    length = next(
        int(line.split(b":")[1])
        for line in head.split(b"\r\n")
        if line.lower().startswith(b"content-length:")
    )
    return len(body) >= length
