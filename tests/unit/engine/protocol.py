"""One partition of the protocol under a test's hand: a log that lands what it is told to, and a tail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, cast

from streams.engine.partition import Partition
from streams.engine.work import Tasks
from streams.model.ledger import ActivityRow, Admission, Kind, Phase, Row
from streams.model.values import replace
from streams.rules.fold import LedgerRecord
from streams.wire.commands import LateReport
from tests.sim.loop import run_virtual
from tests.sim.machine import SimTime
from tests.sim.memory import MemoryStore

KEY = b"urn:1\x00crm"
ACTIVITY_KEY = b"urn:1"


class Log:
    """What every worker of a partition appends to; nothing lands or is read by itself."""

    def __init__(self) -> None:
        self.records: list[LedgerRecord] = []

    def land(self, record: LedgerRecord) -> int:
        """Append; the offset."""
        self.records.append(replace(record, offset=len(self.records)))
        return len(self.records) - 1


class Ledger:
    """`ports.LedgerLog` of one worker."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.pending: list[LedgerRecord] = []
        self.late: list[LateReport] = []
        self.end_asked = 0
        self.position: Callable[[], int] = lambda: -1

    def append(
        self, kind: Kind, key: bytes, value: bytes | None, epoch: int, token: bytes
    ) -> asyncio.Future[None]:
        self.pending.append(
            LedgerRecord(offset=-1, key=key, kind=kind, epoch=epoch, token=token, value=value)
        )
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    async def end_offset(self) -> int:
        self.end_asked += 1
        await asyncio.sleep(0.001)
        return len(self.log.records)

    async def read_position(self) -> int:
        return self.position()

    async def report_late(self, report: LateReport) -> None:
        self.late.append(report)


class Member:
    """A worker's view of the partition: append, `land` and `read` in whatever order a test says."""

    def __init__(self, log: Log, name: str = "A", *, store: MemoryStore | None = None) -> None:
        self.log = log
        self.ledger = Ledger(log)
        self.store = store or MemoryStore()
        self.faults: list[BaseException] = []
        self.time = SimTime(asyncio.get_running_loop(), Random(name))
        self.tasks = Tasks(self.faults.append)
        self.partition = Partition(
            0, cast("Any", self.store), self.ledger, self.time, self.tasks.spawn
        )
        self.ledger.position = lambda: self.store.next

    def land(self, number: int | None = None) -> list[int]:
        """What it appended, or the first so many of it, reaches the log."""
        number = len(self.ledger.pending) if number is None else number
        landing, self.ledger.pending = self.ledger.pending[:number], self.ledger.pending[number:]
        return [self.log.land(record) for record in landing]

    def read(self, up_to: int | None = None) -> None:
        """Its tail folds what it has not folded yet."""
        fresh = [r for r in self.log.records[:up_to] if r.offset >= self.store.next]
        if fresh:
            self.partition.fold(fresh)

    @property
    def row(self) -> Row:
        """The delivery's row, which there is."""
        found = self.partition.row(KEY)
        assert found is not None
        return found

    async def settle_down(self, *others: Member) -> None:
        """Land and read until nothing more comes of it."""
        for _ in range(20):
            for member in (self, *others):
                member.land()
                member.read()
            await asyncio.sleep(0)

    async def lead(self, assignment: int = 1) -> None:
        """Be assigned, own, and read that back."""
        self.partition.assign(assignment)
        self.land()
        self.read()
        await asyncio.sleep(0)
        assert self.partition.leads


async def turns() -> None:
    """Let everybody who can go on do so, at the same moment."""
    for _ in range(10):
        await asyncio.sleep(0)


def play(scenario: Callable[[Log], Coroutine[Any, Any, None]]) -> None:
    """Play a scenario over a fresh log, in virtual time."""

    async def run() -> None:
        await scenario(Log())

    run_virtual(run())


def row(phase: Phase = Phase.CLAIMED, **changes: Any) -> Row:
    """A delivery's row as its worker would write it."""
    made = Row(
        phase=phase, delivery_id="dlv_1", target="crm", attempts=1, token=b"0" * 16, lease_ms=4_000
    )
    return replace(made, **changes)


def activity_row(*targets: bytes, offset: int = 0, **changes: Any) -> ActivityRow:
    """An activity's row."""
    made = ActivityRow(
        canonical_hash=b"h" * 32,
        activity_id="urn:1",
        tenant="default",
        admissions=(Admission(offset=offset, targets=b"".join(targets) or b"12345678"),),
    )
    return replace(made, **changes)
