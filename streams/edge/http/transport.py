"""The call as a whole: a connection found or made, one exchange on it, one deadline over all."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Final

from streams.edge.http.answer import HEAD_BYTES_MAX
from streams.edge.http.call import encode, wanted
from streams.edge.http.connection import Connection
from streams.edge.http.dial import connect, connect_fault, timeout_fault, tls_fault, wrap
from streams.edge.http.pool import Pool
from streams.errors import TargetError
from streams.model.faults import fault_of
from streams.model.observation import Fault, Observation, Stage

if TYPE_CHECKING:
    import socket

    from streams.edge.addresses import Resolver
    from streams.edge.http.call import Call

CONNECTIONS_TOTAL_MAX: Final = 1_000
"""Default bound of connections per process: leaves room for Kafka under 1,024 descriptors."""


class Transport:
    """Makes calls. One for each event loop, for as long as the worker lives.

    The engine calls `post` directly; `face.Face` puts httpx's types over it where somebody wants
    them, so the hot path pays nothing for that seam.
    """

    def __init__(
        self,
        *,
        resolver: Resolver,
        ssl_context: ssl.SSLContext | None = None,
        max_connections_total: int = CONNECTIONS_TOTAL_MAX,
    ) -> None:
        self._resolver = resolver
        self._ssl_context = ssl_context or default_ssl_context()
        self._pool = Pool(max_connections_total=max_connections_total)
        self._buffer = memoryview(bytearray(HEAD_BYTES_MAX))

    async def post(self, call: Call) -> Observation:
        """Make one call, once, and say what was seen. Never retries, never follows a redirect.

        A failed exchange is a value, and so is a call that cannot be written: its headers may come
        from any producer (C-14), and must not end a worker. Cancelling it closes its connection.
        """
        try:
            request = encode(call)
            keep = wanted(call.message_id_from)
        except TargetError:
            return Observation(fault=fault_of("request_invalid"))
        loop = asyncio.get_running_loop()
        started = loop.time()
        deadline = started + call.timeout_ms / 1_000
        while True:
            connection = self._pool.take(
                call.target, call.url.origin, self._context_of(call), now=started
            )
            if connection is None:
                found = await self._obtain(call, deadline)
                if isinstance(found, Fault):
                    elapsed_ms = int((loop.time() - started) * 1_000)
                    return Observation(fault=found, duration_ms=elapsed_ms)
                connection = found
            exchange = connection.send(request, deadline, keep)
            if exchange is not None:
                break
        try:
            await exchange
        except BaseException:
            connection.close()
            raise
        ended = loop.time()
        seen = connection.observe(now=ended, duration_ms=int((ended - started) * 1_000))
        self._pool.give_back(connection)
        return seen

    async def close(self) -> None:
        """End every connection, and every call with it."""
        self._pool.close()

    def _context_of(self, call: Call) -> ssl.SSLContext | None:
        if call.url.origin.scheme == "http":
            return None
        return call.ssl_context or self._ssl_context

    async def _obtain(self, call: Call, deadline: float) -> Connection | Fault:
        """Wait for a connection of the target, or open one, until the deadline."""
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    handed = await self._pool.admit(call.target, call.limits)
            except TimeoutError:
                return timeout_fault(Stage.POOL)
            if handed is None:
                return await self._open(call, deadline)
            if handed.leads_to(call.url.origin, self._context_of(call)):
                return handed
            handed.close()

    async def _open(self, call: Call, deadline: float) -> Connection | Fault:
        """Open a connection in the place that was granted for it, or give the place back."""
        opened: Connection | Fault | None = None
        try:
            opened = await self._open_in_place(call, deadline)
        finally:
            if not isinstance(opened, Connection):
                self._pool.vacate(call.target)
        return opened

    async def _open_in_place(self, call: Call, deadline: float) -> Connection | Fault:
        if self._pool.is_closed:
            return fault_of("pool_closed")
        origin, context = call.url.origin, self._context_of(call)
        stage = Stage.NAME
        try:
            async with asyncio.timeout_at(deadline):
                addresses = await self._resolver.resolve(origin.host, origin.port, call.url.address)
                if isinstance(addresses, Fault):
                    return addresses
                stage = Stage.CONNECT
                sock = await connect(addresses)
                stage = Stage.CONNECT if context is None else Stage.TLS
                # From here on the socket is the event loop's to close.
                connection = await self._wrap(call, sock, deadline)
        except OSError as error:  # the deadline's TimeoutError is one
            if stage is Stage.CONNECT:
                self._resolver.forget(origin.host)
            if isinstance(error, TimeoutError):
                return timeout_fault(stage)
            return tls_fault(error) if stage is Stage.TLS else connect_fault(error)
        return self._adopt(connection)

    async def _wrap(self, call: Call, sock: socket.socket, deadline: float) -> Connection:
        loop = asyncio.get_running_loop()
        origin, context = call.url.origin, self._context_of(call)

        def make() -> Connection:
            return Connection(
                loop=loop,
                buffer=self._buffer,
                lane=call.target,
                origin=origin,
                context=context,
                on_closed=self._pool.forget,
            )

        # One second past the deadline, so that it is always ours that ends the handshake.
        remaining_s = max(deadline - loop.time(), 0.0) + 1.0
        return await wrap(sock, make, context, origin.host, timeout_s=remaining_s)

    def _adopt(self, connection: Connection) -> Connection | Fault:
        """Take a new connection into the pool, unless it ended before the request."""
        now = asyncio.get_running_loop().time()
        if not self._pool.is_closed and connection.is_quiet(now=now):
            self._pool.adopt(connection)
            return connection
        connection.close()
        if self._pool.is_closed:
            return fault_of("pool_closed")
        return fault_of("connect_closed" if connection.context is None else "tls_reset")


def default_ssl_context() -> ssl.SSLContext:
    """Make the TLS context of targets that bring none: system CAs, names checked, HTTP/1.1."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
