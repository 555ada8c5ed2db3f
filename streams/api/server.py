"""Serves the API on one address until it is told to stop, or until its read model fails."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

import structlog
import uvicorn
from starlette.types import ASGIApp

from streams.errors import FatalError

log = structlog.get_logger(__name__)

GRACE_S: Final = 15
"""How long requests in flight are waited for at a stop: longer than a redrive takes at most."""

CONNECTIONS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    """Where to listen; port 0 takes a free one. Without a certificate HTTP is spoken.

    Attributes:
        setting: That names it.
    """

    host: str
    port: int
    setting: str = "OUTBOX_API_ADDRESS"
    cert_file: Path | None = None
    key_file: Path | None = None

    @property
    def is_loopback(self) -> bool:
        """Whether nobody beyond this machine can connect."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False


class _Server(uvicorn.Server):
    """uvicorn's own handlers would end the process by the signal again, after a clean stop."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def bind(listen: Listen) -> socket.socket:
    """Take the address.

    Raises:
        FatalError: it cannot be listened on.
    """
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    try:
        return socket.create_server((listen.host, listen.port), family=family, backlog=512)
    except OSError as error:
        raise FatalError(
            f"{listen.setting} {listen.host}:{listen.port} cannot be listened on: "
            f"{error.strerror}; choose another port, or 0 for a free one"
        ) from error


async def serve(
    app: ASGIApp,
    listen: Listen,
    *works: Callable[[], Coroutine[Any, Any, None]],
) -> None:
    """Serve until SIGTERM or SIGINT. What runs beside it, must; where it ends, we end.

    Raises:
        FatalError: the address cannot be listened on.
        StreamsError: what one of `works` raises.
    """
    taken = bind(listen)
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)  # its tracebacks may hold content
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=GRACE_S,
        limit_concurrency=CONNECTIONS_MAX,
        ssl_certfile=listen.cert_file,
        ssl_keyfile=listen.key_file,
    )
    server = _Server(config)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _stop, server)
    beside = [asyncio.ensure_future(work()) for work in works]
    for task in beside:
        task.add_done_callback(lambda _: _stop(server))
    host, port = taken.getsockname()[:2]
    log.info("api.listening", address=f"{host}:{port}", port=port, tls=listen.cert_file is not None)
    try:
        await server.serve(sockets=[taken])
    finally:
        for task in beside:
            task.cancel()
        ended = await asyncio.gather(*beside, return_exceptions=True)
    for error in ended:
        if isinstance(error, BaseException) and not isinstance(error, asyncio.CancelledError):
            raise _first(error)


async def serve_pages(app: ASGIApp, listen: Listen) -> None:
    """Serve further pages on an address of their own, until cancelled.

    Raises:
        FatalError: the address cannot be listened on.
    """
    taken = bind(listen)
    config = uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="off", server_header=False
    )
    server = _Server(config)
    log.info("api.pages", port=taken.getsockname()[1])
    try:
        await server.serve(sockets=[taken])
    except asyncio.CancelledError:
        await server.shutdown(sockets=[taken])
        raise


def _stop(server: uvicorn.Server) -> None:
    server.should_exit = True


def _first(error: BaseException) -> BaseException:
    """The error of a group that says why: one line is printed."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
