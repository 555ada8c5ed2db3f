"""The API as an ASGI application: routes behind the guard, every failure a problem."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import structlog
from prometheus_client import CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from streams.api.asking import Desk, tagged
from streams.api.auth import Authenticator
from streams.api.cancelling import Canceller
from streams.api.guard import Guard, Rate
from streams.api.measuring import ApiMetrics, Measured
from streams.api.openapi import document
from streams.api.problems import Problem, not_found
from streams.api.redriving import Redriver
from streams.api.routes import BASE, OperatorRoutes
from streams.api.target_routes import TargetRoutes
from streams.api.writer import AuditedWriter

log = structlog.get_logger(__name__)

RATE_PER_S: Final = 100.0
RATE_BURST: Final = 200.0

SIGNED_BY_PROVIDERS: Final = f"{BASE}/provider-events/"
"""These requests carry their provider's signature in place of a bearer token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the API is made of.

    Attributes:
        more_routes, more_paths: Further routes, and what OpenAPI says of them.
        new_id: Gives an id that nobody had before.
        now_ms: Wall clock, epoch milliseconds.
    """

    desk: Desk
    redriver: Redriver
    canceller: Canceller
    writer: AuditedWriter
    targets_topic: str
    authenticator: Authenticator
    new_id: Callable[[], str]
    now_ms: Callable[[], int]
    more_routes: Sequence[BaseRoute] = ()
    more_paths: dict[str, Any] | None = None
    rate: Rate | None = None
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)


def build(parts: Parts) -> Starlette:
    """The application."""
    described = document(parts.more_paths)

    async def openapi(request: Request) -> Response:
        return tagged(request, JSONResponse(described))

    targets = TargetRoutes(
        desk=parts.desk,
        writer=parts.writer,
        topic=parts.targets_topic,
        new_id=parts.new_id,
        now_ms=parts.now_ms,
    )
    guard = Middleware(
        Guard,
        authenticator=parts.authenticator,
        rate=parts.rate or Rate(RATE_PER_S, RATE_BURST),
        is_open=lambda path: path == "/healthz" or path.startswith(SIGNED_BY_PROVIDERS),
        new_id=parts.new_id,
    )
    routes: list[BaseRoute] = [
        *_own_pages(parts),
        Route("/openapi.json", openapi),
        *parts.more_routes,
        *OperatorRoutes(
            desk=parts.desk, redriver=parts.redriver, canceller=parts.canceller
        ).routes(),
        *targets.routes(),
    ]
    measured = Middleware(
        Measured, metrics=ApiMetrics(parts.registry, parts.desk.freshness), routes=routes
    )
    return Starlette(
        routes=routes,
        middleware=[measured, guard],
        exception_handlers={Problem: _problem, HTTPException: _http, Exception: _unexpected},
    )


def pages(parts: Parts) -> Starlette:
    """The pages of the process itself, for an address that only its keepers reach: no token, no content."""
    return Starlette(routes=_own_pages(parts))


def _own_pages(parts: Parts) -> list[Route]:
    async def healthz(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def readyz(_: Request) -> Response:
        ready = parts.desk.freshness.is_ready
        status = 200 if ready else 503
        return JSONResponse({"status": "ok" if ready else "unavailable"}, status)

    async def metrics(_: Request) -> Response:
        told = generate_latest(parts.registry)
        return Response(told, media_type="text/plain; version=0.0.4")

    return [
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/metrics", metrics),
    ]


def _request_id(request: Request) -> str:
    return str(getattr(request.state, "request_id", ""))


async def _problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem), "registered for problems only"
    return error.answer(_request_id(request))


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), "registered for Starlette's own only"
    if error.status_code == 404:
        return not_found("path").answer(_request_id(request))
    problem = Problem(
        error.status_code,
        f"http_{error.status_code}",
        "The request cannot be served.",
        error.headers,
    )
    return problem.answer(_request_id(request))


async def _unexpected(request: Request, error: Exception) -> Response:
    # The error's own text may hold content (D-043): its kind and the request's id must do.
    log.error("api.failed", error=type(error).__name__, request_id=_request_id(request))
    problem = Problem(500, "internal", "Something went wrong on our side; it is logged.")
    return problem.answer(_request_id(request))
