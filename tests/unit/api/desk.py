"""The whole API without Kafka: ledger records are folded by hand, and a log in memory is written to."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.routing import BaseRoute

from streams.api.app import Parts, build
from streams.api.asking import Desk
from streams.api.auth import Authenticator, StaticTokens, Verifier
from streams.api.cancelling import Canceller
from streams.api.content import ContentRoute
from streams.api.database import Database
from streams.api.guard import Rate
from streams.api.job_routes import JobRoutes
from streams.api.jobs import RedriveJobs
from streams.api.owners import Owners
from streams.api.problems import Problem
from streams.api.redriving import Redriver
from streams.api.view import View
from streams.api.writer import Outgoing
from streams.model.ledger import SEPARATOR, ActivityRow, Admission, FailurePhase, Kind, Phase, Row
from streams.model.policy import ACTIVITY
from streams.model.target import TargetRecord
from streams.model.values import replace
from streams.rules.decide import CancelAsked, RedriveAsked, decide
from streams.rules.fold import LedgerRecord
from streams.wire.audit import AuditRecord, encode_audit
from streams.wire.codec import encode_activity_row, encode_row
from streams.wire.commands import Cancel, Redrive, decode_command
from streams.wire.targets import encode_target

NOW_MS = 1_767_225_600_000
BASE = "/api/v2/notifications"
CANARY = "canary-7f3a"
TOKENS = (
    ("t-admin", "al", ("acme",), ("notification:read", "notification:admin")),
    ("t-reader", "rea", ("acme",), ("notification:read",)),
    ("t-both", "bo", ("acme", "other"), ("notification:read",)),
    ("t-other", "eve", ("other",), ("notification:read", "notification:admin")),
)


def auth(token: str, tenant: str | None = None) -> dict[str, str]:
    """The headers of one caller."""
    return {"authorization": f"Bearer {token}"} | ({"x-tenant-id": tenant} if tenant else {})


def row(number: int, **fields: object) -> Row:
    """A delivery's row, waiting unless it is told otherwise."""
    given: dict[str, object] = {
        "phase": Phase.WAITING,
        "delivery_id": f"dlv_{number:032x}",
        "target": "crm",
        "attempts": 1,
        "admitted_ms": NOW_MS + number,
        "first_claim_ms": NOW_MS + number,
        "due_ms": NOW_MS + number + 60_000,
    }
    return Row(**(given | fields))  # type: ignore[arg-type]


def dead_row(number: int, **fields: object) -> Row:
    """One that was refused."""
    given: dict[str, object] = {
        "phase": Phase.DEAD,
        "code": "http_400",
        "cause": "http_400",
        "status": 400,
        "failure_phase": FailurePhase.REJECTED_PERMANENT,
        "settled_ms": NOW_MS + 1_000 + number,
        "due_ms": 0,
    }
    return row(number, **(given | fields))


@dataclass
class Fresh:
    """A view that is as fresh as it is told to be. Implements `asking.Freshness`."""

    is_ready: bool = True
    behind_s: float | None = 0.25

    def looks(self) -> int:
        return 0

    def is_beyond(self, wanted: object) -> bool:
        return False


@dataclass
class Record:
    """As much of a Kafka record as the view looks at."""

    value: bytes | None
    offset: int
    key: bytes = b""
    topic: str = "t"
    partition: int = 0


class Log:
    """What the API writes: kept, shown to the view, and applied as an owner would. For `AuditedWriter`."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.audits: list[AuditRecord] = []
        self.records: list[Outgoing] = []
        self.fails: Problem | None = None
        self.has_owner = True

    async def write(self, audit: AuditRecord, records: Sequence[Outgoing]) -> None:
        if self.fails is not None:
            raise self.fails
        self.audits.append(audit)
        self.records += records
        offset = len(self.audits) - 1
        self.world.view.take_audit([Record(encode_audit(audit), offset)])
        for each in records:
            if each.topic == "targets":
                self.world.take_target(each.key, each.value)
            elif self.has_owner:
                self.world.apply(each)


@dataclass
class Contents:
    """Records of the outbox topic, by offset. Implements `content.Contents`."""

    values: dict[int, bytes] = field(default_factory=dict)
    fails: Problem | None = None

    async def fetch(self, partition: int, offset: int) -> bytes | None:
        if self.fails is not None:
            raise self.fails
        return self.values.get(offset)


@dataclass
class World:
    """A view of one partition, filled by hand."""

    folder: Path
    rate: Rate = field(default_factory=lambda: Rate(1e6, 1e6))
    verifiers: tuple[Verifier, ...] = field(default_factory=lambda: (StaticTokens(TOKENS),))
    fresh: Fresh = field(default_factory=Fresh)
    offsets: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    rows: dict[str, tuple[bytes, Row]] = field(default_factory=dict)
    is_closed: bool = False
    contents: Contents = field(default_factory=Contents)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    pauses: list[float] = field(default_factory=list)
    more_routes: Callable[[Desk], Sequence[BaseRoute]] = lambda _: ()
    more_paths: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        self.database = Database(self.folder / "api", "cluster")
        self.view = View(self.database, 1)
        self.log = Log(self)
        self._ids = itertools.count(1)
        self._app: Starlette | None = None
        self._targets = itertools.count()
        self.fold(Kind.OWNER, b"\x00owner", None, epoch=-1)

    def fold(self, kind: Kind, key: bytes, value: bytes | None, *, epoch: int = 1_000_000) -> None:
        record = LedgerRecord(
            offset=next(self.offsets),
            key=key,
            kind=kind,
            epoch=epoch,
            token=b"t" * 16,
            value=value,
        )
        self.view.fold(0, [record])

    def admit(self, activity_id: str, tenant: str = "acme", owed: int = 1) -> bytes:
        """An activity's own row; gives its key."""
        key = (activity_id if tenant == "default" else f"{tenant}|{activity_id}").encode()
        admission = Admission(offset=0, targets=bytes(8 * owed))
        activity = ActivityRow(
            canonical_hash=bytes(32),
            activity_id=activity_id,
            tenant=tenant,
            first_seen_ms=NOW_MS,
            admissions=(admission,),
        )
        self.fold(Kind.ADMIT, key, encode_activity_row(activity))
        return key

    def put(self, activity_key: bytes, *rows: Row) -> None:
        """Deliveries of an activity."""
        for each in rows:
            key = activity_key + SEPARATOR + each.target.encode()
            self.rows[each.delivery_id] = key, each
            self.fold(Kind.REPORT, key, encode_row(each))

    def deliver(self, number: int, each: Row | None = None, tenant: str = "acme") -> Row:
        """An activity with one delivery."""
        found = each or row(number)
        self.put(self.admit(f"urn:{number}", tenant), found)
        return found

    def apply(self, command: Outgoing) -> None:
        """What the owner makes of a command."""
        asked = decode_command(command.value or b"")
        assert isinstance(asked, (Redrive, Cancel))
        key, before = self.rows[asked.letter_id.rpartition(".")[0]]
        after = decide(
            before,
            RedriveAsked(asked.letter_id, asked.mode)
            if isinstance(asked, Redrive)
            else CancelAsked(asked.letter_id),
            now_ms=NOW_MS + 5_000,
            jitter=0.0,
            policy=ACTIVITY,
            idempotent=False,
        )
        if after is not None:
            self.rows[after.delivery_id] = key, after
            self.fold(Kind.REDRIVE, key, encode_row(after))

    def register(self, name: str, tenant: str = "acme", **fields: object) -> None:
        """A registered target."""
        record = TargetRecord(name=name, tenant=tenant, url="https://crm.example/hook")
        known = replace(record, updated_ms=1, **fields)
        self.take_target(f"{tenant}/{name}".encode(), encode_target(known))

    def take_target(self, key: bytes, value: bytes | None) -> None:
        record = Record(value, next(self._targets), key)
        self.view.take_targets([record])

    def close(self) -> None:
        """Release the files, once."""
        if not self.is_closed:
            self.is_closed = True
            self.database.close()

    def new_id(self) -> str:
        return f"id-{next(self._ids)}"

    def app(self, patience_s: float = 0.05) -> Starlette:
        """The application over this view: one, however often it is asked for."""
        if self._app is None:
            self._app = self._made(patience_s)
        return self._app

    def _made(self, patience_s: float) -> Starlette:
        owners = Owners(
            view=self.view,
            writer=self.log,  # type: ignore[arg-type]
            topic="commands",
            new_id=self.new_id,
            now_ms=lambda: NOW_MS,
            patience_s=patience_s,
        )
        redriver = Redriver(owners)
        desk = Desk(view=self.view, freshness=self.fresh, patience_s=patience_s)
        self.jobs = RedriveJobs(
            self.view,
            self.log,  # type: ignore[arg-type]
            redriver,
            replica="api1",
            new_id=self.new_id,
            now_ms=lambda: NOW_MS + 2_000,
            pause=self.pause,
        )
        content = ContentRoute(
            desk=desk,
            contents=self.contents,
            writer=self.log,  # type: ignore[arg-type]
            new_id=self.new_id,
            now_ms=lambda: NOW_MS,
        )
        return build(
            Parts(
                desk=desk,
                redriver=redriver,
                canceller=Canceller(owners),
                more_routes=[
                    *content.routes(),
                    *JobRoutes(desk=desk, jobs=self.jobs).routes(),
                    *self.more_routes(desk),
                ],
                more_paths=self.more_paths,
                registry=self.registry,
                writer=self.log,  # type: ignore[arg-type]
                targets_topic="targets",
                authenticator=Authenticator(self.verifiers),
                new_id=self.new_id,
                now_ms=lambda: NOW_MS,
                rate=self.rate,
            )
        )

    async def pause(self, seconds: float) -> None:
        """As long as it takes to let everything else have its turn."""
        self.pauses.append(seconds)
        await asyncio.sleep(0)

    def client(self, token: str = "t-admin") -> httpx.AsyncClient:
        """A client of it."""
        return httpx.AsyncClient(
            transport=httpx.ASGITransport(self.app(), raise_app_exceptions=False),
            base_url="http://api",
            headers=auth(token) if token else {},
        )
