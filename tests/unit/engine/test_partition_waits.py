"""Whose record a waiting append takes for its own, and what becomes of a claim that was given up."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from streams.engine.partition import Partition
from streams.model.ledger import OWNER_KEY, Kind, Phase, Row
from streams.model.verdict import Judgement, Verdict
from streams.rules.decide import NOT_CALLED
from streams.rules.fold import LedgerRecord
from streams.wire.codec import encode_row
from streams.wire.commands import LateReport
from tests.sim.memory import MemoryStore
from tests.unit.engine.fakes import Time

KEY = b"a\x00strict"
TOKEN = b"c" * 16
CLAIMED = Row(phase=Phase.CLAIMED, delivery_id="d", target="strict", attempts=1, token=TOKEN)
SENT = Row(phase=Phase.SENT, delivery_id="d", target="strict", attempts=1, token=TOKEN)
DEAD = Row(phase=Phase.DEAD, delivery_id="d", target="strict", attempts=1, token=TOKEN)
ACCEPTED = Judgement(verdict=Verdict.SENT, code="http_200", status=200)


@dataclass
class Log:
    """`ports.LedgerLog` that only remembers: a test lands what it wants to land."""

    late: list[LateReport] = field(default_factory=list)

    def append(self, kind: Kind, key: bytes, value: bytes | None, epoch: int, token: bytes) -> Any:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    async def end_offset(self) -> int:
        return 0

    async def read_position(self) -> int:
        return 0

    async def report_late(self, report: LateReport) -> None:
        self.late.append(report)


def record(offset: int, kind: Kind, row: Row, epoch: int) -> LedgerRecord:
    """A delivery's ledger record under the one claim's token."""
    value = encode_row(row)
    return LedgerRecord(
        offset=offset, key=KEY, kind=kind, epoch=epoch, token=TOKEN, value=value
    )  # fmt: skip


def owner(offset: int, token: bytes) -> LedgerRecord:
    """An OWNER record."""
    return LedgerRecord(
        offset=offset, key=OWNER_KEY, kind=Kind.OWNER, epoch=-1, token=token, value=None
    )


@pytest.fixture
async def log() -> Log:
    return Log()


@pytest.fixture
async def partition(log: Log) -> Partition:
    """One that leads since offset 0."""
    loop = asyncio.get_running_loop()
    store: Any = MemoryStore()
    leading = Partition(0, store, log, Time(), loop.create_task)
    leading.assign(1)
    leading.fold([owner(0, b"t" * 16)])
    assert leading.leads
    return leading


async def test_a_report_of_the_owner_that_adopted_our_claim_is_not_taken_for_ours(
    partition: Partition, log: Log
) -> None:
    """
    D-004, rule 4: it bears the same token. A worker that woke took it for its own `sent`, wrote a
    receipt of that, and kept a row that the ledger never had (seen in crash window 10).
    """
    claiming = asyncio.ensure_future(partition.claim(KEY, CLAIMED))
    await asyncio.sleep(0)
    partition.fold([record(1, Kind.CLAIM, CLAIMED, epoch=0)])
    claim = await claiming
    assert claim is not None
    settling = asyncio.ensure_future(partition.settle(claim, SENT, ACCEPTED))
    await asyncio.sleep(0)

    partition.fold(
        [
            owner(2, b"o" * 16),
            record(3, Kind.REPORT, DEAD, epoch=2),
            record(4, Kind.REPORT, SENT, epoch=0),
        ]
    )

    assert not await settling
    assert Phase.DEAD is partition.row(KEY).phase
    assert [ACCEPTED] == [report.judgement for report in log.late]
    partition.revoke()


async def test_a_claim_given_up_before_its_fold_is_reported_as_not_called(
    partition: Partition, log: Log
) -> None:
    """
    C-07, rule 4: the claim may stand for the next owner, who would have to take it for a lost call and
    dead-letter what was never sent. A rebalance must not do that to a target that is not idempotent.
    """
    claiming = asyncio.ensure_future(partition.claim(KEY, CLAIMED))
    await asyncio.sleep(0)

    partition.revoke()

    assert None is await claiming
    assert [LateReport(delivery_key=KEY, token=TOKEN, judgement=NOT_CALLED)] == log.late
