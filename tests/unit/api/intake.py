"""Provider events without Kafka: the real route, histories on disk, a log that is read at once."""

from __future__ import annotations

import hmac
import json
from base64 import b64decode, b64encode
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import httpx
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette

from streams.api.app import _problem, _unexpected
from streams.api.histories import Histories
from streams.api.problems import Problem
from streams.api.provider_events import PATH, EventCounts, Intake, routes
from streams.api.providers import Provider
from streams.model.ledger import Phase
from streams.model.observed import Merged
from streams.model.verdict import Verdict
from streams.rules.merge import merge
from streams.rules.shapes import SHAPES
from streams.wire.observations import (
    MESSAGE_ID_HEADER,
    ObservationRecord,
    encode_observation,
    event_of,
)
from streams.wire.signatures.verifying import Verifier, Window

NOW_MS = 1_767_225_600_000
SECRET = f"whsec_{b64encode(bytes(range(32))).decode()}"
OTHER_SECRET = f"whsec_{b64encode(bytes(32)).decode()}"


def delivery_id(number: int) -> str:
    return f"dlv_{number:032x}"


def attempt(number: int = 1, **fields: Any) -> ObservationRecord:
    """What a worker wrote of an attempt that was accepted."""
    given: dict[str, Any] = {
        "activity_id": f"urn:{number}",
        "tenant": "acme",
        "delivery_id": delivery_id(number),
        "target": "mail",
        "generation": 1,
        "attempt": 1,
        "verdict": Verdict.SENT,
        "code": "http_202",
        "status": 202,
        "observed_ms": NOW_MS - 1_000,
        "phase": Phase.SENT,
        "provider_message_id": f"m{number}",
        "worker": "w1",
        "duration_ms": 12,
        "failure_phase": None,
    }
    return ObservationRecord(**(given | fields))


@dataclass
class Bench:
    """A route, its providers, and what came of what was posted.

    Attributes:
        down: Whether the log takes nothing.
        pauses: Waits that the route asked for; `on_pause` happens in them.
    """

    folder: Path
    shape: str = "plain"
    window: Window = field(default_factory=Window)
    down: bool = False
    pauses: list[float] = field(default_factory=list)
    appended: list[tuple[int, bytes, bytes]] = field(default_factory=list)
    owned: dict[str, Any] = field(default_factory=dict)
    on_pause: Any = None
    now_ms: int = NOW_MS

    def __post_init__(self) -> None:
        self.registry = CollectorRegistry()
        self.histories = Histories(self.folder, "test")
        self.histories.is_ready = True
        self._offset = 0
        self.provider = Provider(
            name="mail",
            tenant="acme",
            shape=SHAPES[self.shape],
            verifier=Verifier([SECRET]),
            window=self.window,
        )
        self.intake = Intake(
            providers={"mail": self.provider},
            deliveries=SimpleNamespace(delivery=self.owned.get),
            histories=self.histories,
            events=self,
            counts=EventCounts(self.registry),
            now_ms=lambda: self.now_ms,
            pause=self._pause,
            replica="api-1",
        )
        handlers: Any = {Problem: _problem, Exception: _unexpected}
        self.app = Starlette(routes=routes(self.intake), exception_handlers=handlers)

    async def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        if self.on_pause is not None:
            self.on_pause()

    async def append(self, records: Any) -> None:
        """`EventLog`: what is written is read at once."""
        if self.down:
            raise Problem(503, "log_unavailable", "Down.")
        for partition, key, value in records:
            self.appended.append((partition, key, value))
            self._put(partition, key, value)

    def _put(self, partition: int, key: bytes, value: bytes, headers: Any = ()) -> None:
        record: Any = SimpleNamespace(
            offset=self._offset, key=key, value=value, headers=headers, timestamp=self.now_ms
        )
        self._offset += 1
        self.histories.take(partition, [record])

    def sent(self, number: int = 1, **fields: Any) -> str:
        """A delivery that was sent: the worker's history of it is there."""
        seen = attempt(number, **fields)
        message_id = seen.provider_message_id
        headers = [] if message_id is None else [(MESSAGE_ID_HEADER, message_id.encode())]
        self._put(3, seen.delivery_id.encode(), encode_observation(seen), headers)
        self.owned[seen.delivery_id] = SimpleNamespace(
            delivery_id=seen.delivery_id,
            tenant=seen.tenant,
            activity_id=seen.activity_id,
            generation=seen.generation,
            partition=3,
        )
        return seen.delivery_id

    async def post(
        self,
        body: object,
        *,
        secret: str = SECRET,
        age_s: int = 0,
        provider: str = "mail",
        headers: dict[str, str] | None = None,
        form: bool = False,
    ) -> httpx.Response:
        """Post a signed body: JSON, a form, or bytes as they are."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        if form:
            raw = urlencode(body).encode()  # type: ignore[arg-type]
        at = self.now_ms // 1_000 - age_s
        given = {
            "content-type": "application/x-www-form-urlencoded" if form else "application/json",
            "webhook-id": "msg_1",
            "webhook-timestamp": str(at),
            "webhook-signature": signature(secret, raw, at),
        }
        transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://api") as client:
            path = PATH.format(provider=provider)
            return await client.post(path, content=raw, headers=given | (headers or {}))

    def merged(self, of: str, generation: int = 1) -> Merged:
        """What the events of a delivery add up to."""
        entries = self.histories.entries(of)
        events = [event for entry in entries if (event := event_of(entry.seen)) is not None]
        return merge(events, generation=generation)

    def count(self, outcome: str, provider: str = "mail") -> float:
        """The counter of one outcome."""
        labels = {"provider": provider, "outcome": outcome}
        return self.registry.get_sample_value("outbox_provider_events_total", labels) or 0.0


def signature(secret: str, body: bytes, at_s: int) -> str:
    """Of Standard Webhooks; that ours is its reference's is `test_verifying`'s matter."""
    key = b64decode(secret.removeprefix("whsec_"))
    return "v1," + b64encode(hmac.digest(key, b"msg_1.%d." % at_s + body, "sha256")).decode()
