"""One partition's real engine at a desk: claims, calls, verdicts and follow-ups, without Kafka.

The ledger answers at once, time jumps to whatever is due next, and retries come back as the real ones
do. Calls are scripted, or go over real sockets through our own transport.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from prometheus_client import generate_latest

from streams.edge.http.transport import Transport
from streams.edge.telemetry import Metrics
from streams.engine import telling
from streams.engine.caller import HttpCaller
from streams.engine.delivery import Caller, Deliverer
from streams.engine.gate import Gate
from streams.engine.letters import Letters
from streams.engine.outfit import Outfitter
from streams.engine.partition import Partition
from streams.engine.telling import Teller
from streams.engine.trigger import Carried, Trigger
from streams.model.activity import Activity, Recipient
from streams.model.ledger import ActivityRow, Admission, Kind, Phase, Row
from streams.model.observation import Observation
from streams.model.policy import ACTIVITY, Policy
from streams.model.receipt import DeadLetter
from streams.model.target import Target
from streams.model.values import replace
from streams.model.verdict import Judgement
from streams.rules.decide import Turned
from streams.rules.fold import LedgerRecord
from streams.rules.identity import canonical_hash, delivery_id, delivery_key, target_hash
from streams.rules.pacing import Aside
from streams.rules.triggers import letters_of
from streams.rules.verdict import judge
from streams.wire.commands import LateReport
from tests.sim.memory import MemoryStore

T0 = 1_767_225_600_000
QUICK = replace(ACTIVITY, timeout_ms=2_000, lease_ms=10_000)
"""The `activity` policy, but a call that hangs ends soon; its margin allows for a slow machine."""


class DeskTime:
    """`ports.Time` that stands still until it is told to jump; jitter is none."""

    def __init__(self) -> None:
        self.ms = T0
        self._tokens = 0

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1_000

    def jitter(self) -> float:
        return 0.0

    def token(self) -> bytes:
        self._tokens += 1
        return self._tokens.to_bytes(16, "big")


class DeskLedger:
    """`ports.LedgerLog`: what is appended in one turn of the loop is folded in the next."""

    def __init__(self) -> None:
        self.records: list[LedgerRecord] = []
        self._fresh: list[LedgerRecord] = []
        self.partition: Partition

    def append(
        self, kind: Kind, key: bytes, value: bytes | None, epoch: int, token: bytes
    ) -> Awaitable[object]:
        at = len(self.records)
        record = LedgerRecord(offset=at, key=key, kind=kind, epoch=epoch, token=token, value=value)
        self.records.append(record)
        self._fresh.append(record)
        loop = asyncio.get_running_loop()
        if len(self._fresh) == 1:
            loop.call_soon(self._fold)
        done: asyncio.Future[object] = loop.create_future()
        done.set_result(at)
        return done

    def _fold(self) -> None:
        records, self._fresh = self._fresh, []
        self.partition.fold(records)

    async def end_offset(self) -> int:
        return len(self.records)

    async def read_position(self) -> int:
        return len(self.records)

    async def report_late(self, report: LateReport) -> None:
        raise AssertionError("nobody is frozen at a desk")


@dataclass
class Lines:
    """Stands in for a module's logger and keeps its lines: level, event, fields."""

    seen: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)

    def __getattr__(self, level: str) -> Callable[..., None]:
        return lambda event, **fields: self.seen.append((level, event, fields))

    def bind(self) -> Lines:
        """Nothing is bound to it: the same, as structlog's."""
        return self

    def of(self, event: str) -> list[dict[str, Any]]:
        """The fields of every line of an event."""
        return [fields for _, name, fields in self.seen if name == event]


class Scripted:
    """`delivery.Caller`: gives a target's observations one after the other; the last one repeats."""

    def __init__(self, **answers: Sequence[Observation]) -> None:
        self._answers = answers
        self.calls: list[tuple[str, Row]] = []

    async def call(self, target: Target, activity: Activity, row: Row) -> Judgement:
        answers = self._answers.get(target.key) or self._answers["anyone"]
        made = sum(1 for key, _ in self.calls if key == target.key) if len(answers) > 1 else 0
        self.calls.append((target.key, row))
        return judge(answers[min(made, len(answers) - 1)], target)


@dataclass
class Paper:
    """`delivery.Outputs`: keeps what would be written."""

    retries: list[tuple[Trigger, Row]] = field(default_factory=list)
    asides: list[tuple[Trigger, Row, int]] = field(default_factory=list)
    settled: list[Row] = field(default_factory=list)
    waits_ms: list[int] = field(default_factory=list)
    time: DeskTime = field(default_factory=DeskTime)
    letters: Letters | None = None

    async def follow_up(self, trigger: Trigger, row: Row | None) -> None:
        if row is not None and row.phase is Phase.WAITING:
            self.retries.append((trigger, row))
            self.waits_ms.append(row.due_ms - self.time.ms)
        elif row is not None:
            self.settled.append(row)
            if row.phase is Phase.DEAD and self.letters is not None:
                await self.letters.write(trigger.partition, trigger.carried.activity.key)

    async def put_aside(self, trigger: Trigger, row: Row, wait_ms: int) -> None:
        self.asides.append((trigger, row, wait_ms))

    async def park(self, trigger: Trigger, row: Row, wait_ms: int) -> None:
        raise AssertionError("no target of a desk is disabled")


class Desk:
    """Delivers activities to their end, and shows all that was left behind."""

    def __init__(self, caller: Caller, targets: dict[str, Target], *, lines: Lines) -> None:
        self.time = DeskTime()
        self.ledger = DeskLedger()
        self.paper = Paper(time=self.time)
        self.metrics = Metrics()
        self.teller = Teller(self.metrics)
        self.lines = lines
        self.faults: list[BaseException] = []
        self._targets = targets
        if isinstance(caller, OverSockets):
            caller.sit_down(self)
        self.caller = caller
        self._tasks: set[asyncio.Task[None]] = set()
        self.partition = Partition(
            0, cast("Any", MemoryStore()), self.ledger, self.time, self._spawn
        )
        self.ledger.partition = self.partition
        self.deliverer = Deliverer(
            targets=self,
            gate=Gate(self.time),
            caller=caller,
            outputs=self.paper,
            telling=self.teller,
            time=self.time,
        )

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- `delivery.Targets` --

    async def find(self, tenant: str, recipient: Recipient) -> Target | Turned | Aside:
        known = self._targets.get(recipient.key)
        target = known or replace(self._targets["anyone"], key=recipient.key)
        caller = self.caller
        return await caller.equip(target) if isinstance(caller, OverSockets) else target

    def policy_of(self, tenant: str, recipient: Recipient) -> Policy:
        return ACTIVITY

    # -- work --

    async def deliver(self, activity: Activity) -> list[Row]:
        """Admit an activity, deliver it and every retry of it until nothing is open."""
        if not self.partition.leads:
            self.partition.assign(1)
            await self.partition.until_led(1)
        keys = [delivery_key(activity, recipient) for recipient in activity.recipients]
        hashes = b"".join(map(target_hash, keys))
        self.partition.admit(activity.key, _row_of(activity, hashes))
        carried = Carried(activity=activity, value=activity.body, headers=())
        due = [
            Trigger(
                partition=self.partition,
                assignment=1,
                key=key,
                delivery_id=delivery_id(activity, recipient),
                carried=carried,
                recipient=recipient,
                admitted_ms=self.time.ms,
            )
            for key, recipient in zip(keys, activity.recipients, strict=True)
        ]
        while due:
            await asyncio.gather(*map(self.deliverer.on_trigger, due))
            due = self._come_again()
        return [self.row(key) for key in keys]

    def _come_again(self) -> list[Trigger]:
        """Time jumps to the earliest retry; those of the same second come with it."""
        retries, asides = self.paper.retries, self.paper.asides
        waiting = [(row.due_ms, trigger, row) for trigger, row in retries]
        waiting += [(self.time.ms + wait, trigger, row) for trigger, row, wait in asides]
        retries.clear()
        asides.clear()
        if waiting:
            self.time.ms = max(due for due, _, _ in waiting)
        return [
            replace(trigger, fence=row.fence, attempts=row.attempts) for _, trigger, row in waiting
        ]

    def row(self, key: bytes) -> Row:
        """A delivery's row."""
        row = self.partition.row(key)
        assert row is not None
        return row

    def letter(self, activity: Activity) -> DeadLetter | None:
        """The activity's dead letter, as its rows now say."""
        known = self.partition.activity(activity.key)
        assert known is not None
        return letters_of(known, self.partition.deliveries(activity.key))

    def shown(self) -> str:
        """Every log line and every metric."""
        return repr(self.lines.seen) + generate_latest(self.metrics.registry).decode()


class OverSockets:
    """`delivery.Caller`: our own HTTP caller and transport."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.gone: list[str] = []
        """The targets that said so."""

    def sit_down(self, desk: Desk) -> None:
        """Take the desk's time and metrics."""
        self._caller = HttpCaller(
            desk.time, desk.metrics, on_gone=lambda target, _code: self.gone.append(target.key)
        )
        self._outfitter = Outfitter(self._transport, self._transport._resolver, desk.time)

    async def equip(self, target: Target) -> Target | Aside:
        """Give a target what it is called with."""
        return await self._outfitter.equip(target.key, target)

    async def call(self, target: Target, activity: Activity, row: Row) -> Judgement:
        return await self._caller.call(target, activity, row)


@asynccontextmanager
async def desk_of(
    monkeypatch: pytest.MonkeyPatch, caller: Caller, **targets: Target
) -> AsyncIterator[Desk]:
    """A desk whose log lines are kept."""
    lines = Lines()
    monkeypatch.setattr(telling, "log", lines)
    desk = Desk(caller, targets, lines=lines)
    yield desk
    desk.partition.revoke()


def target_of(url: str = "https://crm.example/hook", **changes: Any) -> Target:
    """A registered target `crm`: not idempotent, and quick to give a call up."""
    plain = Target(key="crm", tenant="default", url=url, idempotent=False, policy=QUICK)
    return replace(plain, **changes)


def activity_for(*recipients: Recipient, body: bytes = b'{"type":"Note"}') -> Activity:
    """An activity for these recipients; by default for the target `crm`."""
    return Activity(
        activity_id="https://example.com/activities/1",
        tenant="default",
        actor="",
        recipients=recipients or (Recipient(target="crm"),),
        body=body,
        content_type="application/activity+json",
    )


def _row_of(activity: Activity, hashes: bytes) -> ActivityRow:
    return ActivityRow(
        canonical_hash=canonical_hash(activity),
        activity_id=activity.activity_id,
        tenant=activity.tenant,
        first_seen_ms=T0,
        admissions=(Admission(offset=0, targets=hashes),),
    )
