"""How a vetted address becomes a connection, and what it means when it does not."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from typing import TYPE_CHECKING, Final

from streams.model.faults import fault_of
from streams.model.observation import Fault, Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streams.edge.addresses import Address
    from streams.edge.http.connection import Connection

STAGGER_S: Final = 0.25
"""Head start of one address over the next (RFC 8305 §5): a dead IPv6 route costs no more."""

_CONNECT_CODES: Final = {
    errno.ECONNREFUSED: "connect_refused",
    errno.ETIMEDOUT: "connect_timeout",
    errno.ECONNRESET: "connect_reset",
    errno.ECONNABORTED: "connect_reset",
    errno.EHOSTUNREACH: "connect_unreachable",
    errno.ENETUNREACH: "connect_unreachable",
    errno.EACCES: "connect_unreachable",  # a local firewall's reject
    errno.EPERM: "connect_unreachable",
}

# X509_V_ERR_… of OpenSSL's x509_vfy.h.
_CERTIFICATE_CODES: Final = {
    10: "tls_certificate_expired",
    62: "tls_name_mismatch",  # HOSTNAME_MISMATCH
    64: "tls_name_mismatch",  # IP_ADDRESS_MISMATCH
}


def connect_fault(error: OSError) -> Fault:
    """Say what a failed connection attempt means. Nothing was written: all of it is *before*."""
    return fault_of(_CONNECT_CODES.get(error.errno or 0, "connect_failed"))


def tls_fault(error: OSError) -> Fault:
    """Say what a failed TLS handshake means. The request is written after it: *before*."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return fault_of(_CERTIFICATE_CODES.get(error.verify_code, "tls_certificate_invalid"))
    if isinstance(error, ConnectionError | ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return fault_of("tls_reset")
    return fault_of("tls_failed")


def timeout_fault(stage: Stage) -> Fault:
    """Say what it means that the deadline passed in `stage`, one of those before the request."""
    return fault_of(f"{stage.value}_timeout")


async def connect(addresses: Sequence[Address]) -> socket.socket:
    """Connect to the first of `addresses` that answers; each next one starts 250 ms later.

    Raises:
        OSError: why the last of them to fail did, when none answered.
    """
    waiting = list(addresses)
    running: set[asyncio.Task[socket.socket]] = set()
    failure = OSError("no address to connect to")
    try:
        while waiting or running:
            if waiting:
                running.add(asyncio.create_task(_connect_one(waiting.pop(0))))
            done, running = await asyncio.wait(
                running,
                timeout=STAGGER_S if waiting else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            connected = [task.result() for task in done if task.exception() is None]
            for surplus in connected[1:]:
                surplus.close()
            if connected:
                return connected[0]
            for task in done:
                error = task.exception()
                if not isinstance(error, OSError):
                    task.result()  # a bug of ours
                failure = error if isinstance(error, OSError) else failure
        raise failure
    finally:
        for task in running:
            task.add_done_callback(_drop)
            task.cancel()


async def wrap(
    sock: socket.socket,
    make: Callable[[], Connection],
    context: ssl.SSLContext | None,
    host: str,
    *,
    timeout_s: float,
) -> Connection:
    """Put a connection on a connected socket, behind a TLS handshake when `context` is given.

    The certificate is checked against `host`, whatever address was dialled (field case C04).

    Raises:
        OSError: when the handshake fails (`ssl.SSLError` is one).
    """
    loop = asyncio.get_running_loop()
    if context is None:
        _, connection = await loop.create_connection(make, sock=sock)
        return connection
    _, connection = await loop.create_connection(
        make, sock=sock, ssl=context, server_hostname=host, ssl_handshake_timeout=timeout_s
    )
    return connection


async def _connect_one(address: Address) -> socket.socket:
    sock = socket.socket(address.family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        # A request is one write, so there is nothing for Nagle to gather.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(sock, address.sockaddr)
    except BaseException:
        sock.close()
        raise
    return sock


def _drop(task: asyncio.Task[socket.socket]) -> None:
    """Close the socket of an attempt that won although it was no longer wanted."""
    if not task.cancelled() and task.exception() is None:
        task.result().close()
