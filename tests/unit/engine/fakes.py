"""What stands in for the world in tests of the engine: a clock, a transport, registry records."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from streams.edge.addresses import Resolver
from streams.edge.http.call import Call
from streams.engine.outfit import InboxSigning, Outfitter
from streams.engine.registry import Registry
from streams.model.activity import Activity, Recipient
from streams.model.ledger import Phase, Row
from streams.model.observation import Observation
from streams.model.policy import ACTIVITY, NOTIFICATION
from streams.wire.targets import TargetRecord, decode_target_state, encode_target

POLICIES = {"activity": ACTIVITY, "notification": NOTIFICATION}
NOW_MS = 1_767_225_600_000


@dataclass
class Time:
    """`ports.Time` that stands still until it is moved."""

    s: float = 1_000.0

    def now_ms(self) -> int:
        return NOW_MS + int(self.s * 1_000)

    def monotonic(self) -> float:
        return self.s

    def jitter(self) -> float:
        return 0.0

    def token(self) -> bytes:
        return b"t" * 16


@dataclass
class Poster:
    """`call.Poster` that answers each call with the same status."""

    status: int = 200
    calls: list[Call] = field(default_factory=list)
    is_closed: bool = False

    async def post(self, call: Call) -> Observation:
        self.calls.append(call)
        return Observation(status=self.status)

    async def close(self) -> None:
        self.is_closed = True


class RegistryWorld:
    """A registry without Kafka: what it writes is noted and, as its tail would, read back by `echo`."""

    def __init__(self, signing: InboxSigning | None = None) -> None:
        self.time, self.poster = Time(), Poster()
        self.written: list[tuple[bytes, bytes]] = []
        self.released: list[str] = []
        self.offset = 0
        self.registry = Registry(
            "outbox.targets",
            {},
            POLICIES,
            (),
            outfitter=Outfitter(
                self.poster, Resolver(allowed_networks=()), self.time, inbox_signing=signing
            ),
            append=lambda key, value: self.written.append((key, value)),
            time=self.time,
        )
        self.registry.on_release = self.released.append

    def take(self, key: str, value: bytes | None) -> None:
        """A record of the topic."""
        record: Any = SimpleNamespace(offset=self.offset, key=key.encode(), value=value)
        self.offset += 1
        self.registry.take([record])

    def put(self, name: str = "crm", **fields: Any) -> None:
        """As `outbox targets put` does."""
        given = {"tenant": "default", "url": "https://crm.example/hook"} | fields
        record = TargetRecord(name=name, **given)
        self.take(f"{record.tenant}/{name}", encode_target(record))

    def echo(self) -> None:
        """What it wrote comes back."""
        for key, value in self.written:
            self.take(key.decode(), value)

    @property
    def states(self) -> dict[str, Any]:
        """What it wrote, by key."""
        return {key.decode(): decode_target_state(value) for key, value in self.written}

    async def find(self, name: str = "crm", tenant: str = "default") -> Any:
        return await self.registry.find(tenant, Recipient(target=name))

    async def find_inbox(self, url: str = "https://b.example/inbox") -> Any:
        return await self.registry.find("default", Recipient(inbox=url))


def activity(body: bytes = b'{"type":"Create"}') -> Activity:
    return Activity(
        activity_id="urn:1",
        tenant="default",
        actor="",
        recipients=(Recipient(target="crm"),),
        body=body,
        content_type="application/activity+json",
    )


def claimed(attempts: int = 1) -> Row:
    return Row(phase=Phase.CLAIMED, delivery_id="dlv_1", target="crm", attempts=attempts)


async def until(holds: Any) -> None:
    """Wait for a condition of this event loop."""
    async with asyncio.timeout(5):
        while not holds():  # noqa: ASYNC110  # what is waited for sets no event
            await asyncio.sleep(0)
