"""One `outbox api` process of a black-box test, and a client of it."""

from __future__ import annotations

import asyncio
import json
import signal
import ssl
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import httpx

from tests.integration.world import World

BASE = "/api/v2/notifications"
ADMIN, READER, OTHER = "tok-admin", "tok-reader", "tok-other"
TOKENS = json.dumps(
    [
        {
            "token": ADMIN,
            "subject": "al",
            "tenants": ["default", "acme"],
            "scopes": ["notification:read", "notification:admin"],
        },
        {
            "token": READER,
            "subject": "rea",
            "tenants": ["default"],
            "scopes": ["notification:read"],
        },
        {
            "token": OTHER,
            "subject": "eve",
            "tenants": ["other"],
            "scopes": ["notification:admin"],
        },
    ]
)


@dataclass(slots=True, kw_only=True)
class ApiProcess:
    """Use as an async context: started with it, waited for, ended with it by its pid."""

    world: World
    name: str = "api1"
    overrides: dict[str, object] = field(default_factory=dict)
    trusts: ssl.SSLContext | None = None
    """Whose certificates are taken; with it HTTPS is spoken."""
    port: int = 0
    logged: int = 0
    """Characters that an earlier process of this name left in the log."""
    process: subprocess.Popen[bytes] = field(init=False)
    client: httpx.AsyncClient = field(init=False)

    @property
    def log(self) -> Path:
        return self.world.folder / f"{self.name}.log"

    async def __aenter__(self) -> Self:
        given: dict[str, object] = {
            "worker_id": self.name,
            "data_dir": self.world.folder / self.name,
            "api_address": "127.0.0.1:0",
            "api_tokens": TOKENS,
        }
        self._start(self.world.environment(**(given | self.overrides)))
        try:
            await self.world.until(self._is_listening, "the API's port")
        except AssertionError:
            self.process.kill()
            self.process.wait()
            raise
        self.client = httpx.AsyncClient(
            base_url=f"{'https' if self.trusts else 'http'}://127.0.0.1:{self.port}",
            timeout=30,
            headers=bearer(ADMIN),
            verify=self.trusts or True,
        )
        await self.world.until_true(self._is_ready, "the API to be ready")
        return self

    def _start(self, environment: dict[str, str]) -> None:
        self.logged = len(self.log.read_text()) if self.log.exists() else 0
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "streams", "api"],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    async def __aexit__(self, *_: object) -> None:
        await self.client.aclose()
        self.process.kill()
        await asyncio.to_thread(self.process.wait)

    async def stop(self) -> int:
        """SIGTERM; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return await asyncio.to_thread(self.process.wait, 30)

    def lines(self, event: str) -> list[dict[str, Any]]:
        """The lines of the log that tell of an event."""
        lines = self.log.read_text()[self.logged :].splitlines()
        return [json.loads(line) for line in lines if f'"{event}"' in line]

    def _is_listening(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        lines = self.lines("api.listening")
        if lines:
            self.port = lines[-1]["port"]
        return bool(lines)

    async def _is_ready(self) -> bool:
        return (await self.client.get("/readyz")).status_code == 200

    async def get(self, path: str, **options: Any) -> httpx.Response:
        """GET under the API's base."""
        return await self.client.get(BASE + path, **options, headers=tenant("default"))

    async def redrive(
        self, letter_id: str, mode: str = "reconcile_replay", reason: str = "CRM was down"
    ) -> httpx.Response:
        """Ask for a redrive."""
        return await self.client.post(
            f"{BASE}/dead-letters/{letter_id}:redrive",
            json={"reason": reason, "effect_mode": mode},
            headers=tenant("default"),
        )


def bearer(token: str) -> dict[str, str]:
    """The header of one token."""
    return {"authorization": f"Bearer {token}"}


def tenant(name: str) -> dict[str, str]:
    """The header of one tenant."""
    return {"x-tenant-id": name}
