"""What the API does, as metrics: requests by route, method and status, their latency, the view's lag."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from streams.api.asking import Freshness

NO_ROUTE: Final = "none"
"""Stands for every path that there is not, and for what was refused before it was looked up."""

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_BUCKETS_S: Final = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15)


class ApiMetrics:
    """Bounded labels: routes as they are written here, methods that HTTP names, statuses."""

    def __init__(self, registry: CollectorRegistry, freshness: Freshness) -> None:
        self.requests = Counter(
            "outbox_api_requests",
            "Requests answered",
            ["route", "method", "status"],
            registry=registry,
        )
        self.seconds = Histogram(
            "outbox_api_request_seconds",
            "From a request to the end of its answer",
            ["route"],
            buckets=_BUCKETS_S,
            registry=registry,
        )
        behind = Gauge(
            "outbox_api_view_behind_seconds",
            "How far the read model is behind the log, at most; -1 where it never held it all",
            registry=registry,
        )
        behind.set_function(lambda: -1 if freshness.behind_s is None else freshness.behind_s)
        ready = Gauge(
            "outbox_api_view_ready", "1 where the read model may be asked", registry=registry
        )
        ready.set_function(lambda: int(freshness.is_ready))


class Measured:
    """ASGI middleware, the outermost: it sees refusals too."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        metrics: ApiMetrics,
        routes: list[BaseRoute],
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._now = now
        self._paths = {id(each.endpoint): each.path for each in routes if isinstance(each, Route)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = self._now(), 0

        async def send_and_look(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_and_look)
        except Exception:
            status = status or 500  # answered by what stands around us
            raise
        finally:
            # The router puts what it found into the scope that it was given.
            route = self._paths.get(id(scope.get("endpoint")), NO_ROUTE)
            method = scope["method"] if scope["method"] in _METHODS else "other"
            self._metrics.requests.labels(route, method, str(status or 499)).inc()
            self._metrics.seconds.labels(route).observe(self._now() - began)
