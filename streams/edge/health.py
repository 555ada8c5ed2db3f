"""A worker's own three pages: /healthz, /readyz, /metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest

from streams.errors import FatalError


class HealthServer:
    """Answers on one address; port 0 takes a free one.

    Args:
        address: `HOST:PORT`.
        measure: Called before metrics are shown, to set gauges.
        unready: Reasons why the worker is not ready; none when it is.
        unhealthy: Reasons why it should be restarted; none when it is well.
        partitions: What is known of each assigned partition, for /healthz.
    """

    def __init__(
        self,
        address: str,
        *,
        registry: CollectorRegistry,
        measure: Callable[[], None],
        unready: Callable[[], list[str]],
        unhealthy: Callable[[], list[str]],
        partitions: Callable[[], list[dict[str, Any]]],
    ) -> None:
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._registry = registry
        self._measure = measure
        self._unready = unready
        self._unhealthy = unhealthy
        self._partitions = partitions
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen.

        Raises:
            FatalError: the address cannot be listened on.
        """
        app = web.Application()
        app.router.add_get("/healthz", lambda _: self._health())
        app.router.add_get("/readyz", lambda _: self._state(self._unready()))
        app.router.add_get("/metrics", self._metrics)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, self._host.strip("[]"), self._port).start()
        except OSError as error:
            raise FatalError(
                f"OUTBOX_HEALTH_ADDRESS {self._host}:{self._port} cannot be listened on: "
                f"{error.strerror}; choose another port, or 0 for a free one"
            ) from error
        self._runner = runner

    @property
    def port(self) -> int:
        """The port that is listened on."""
        assert self._runner is not None, "the server was not started"
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _health(self) -> web.Response:
        return await self._state(self._unhealthy(), partitions=self._partitions())

    @staticmethod
    async def _state(reasons: list[str], **more: object) -> web.Response:
        return web.json_response(
            {"status": "ok" if not reasons else "unavailable", "reasons": reasons, **more},
            status=200 if not reasons else 503,
        )

    async def _metrics(self, _: web.Request) -> web.Response:
        self._measure()
        return web.Response(
            body=generate_latest(self._registry), content_type="text/plain", charset="utf-8"
        )
