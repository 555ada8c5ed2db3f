"""One ledger partition as this worker sees it: who leads it, what its rows say, what we appended.

The protocol of ledger.md: a claim counts once the own tail has folded it; a record of a superseded
epoch is void and its key is repaired; nothing is acknowledged on an old view. No clock is involved
in being right.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final

import structlog

from streams.edge.failpoint import failpoint
from streams.edge.store import PartitionStore
from streams.engine.barriers import Barriers
from streams.engine.claim import Claim
from streams.engine.debts import Debts
from streams.engine.foreign import ForeignClaims
from streams.engine.leading import Leading
from streams.engine.locks import KeyedLocks
from streams.engine.ports import LedgerLog, Time
from streams.engine.watchers import Watchers
from streams.model.ledger import SEPARATOR, ActivityRow, Kind, Phase, Row
from streams.model.verdict import Judgement
from streams.rules.decide import LOST, NOT_CALLED
from streams.rules.fold import LedgerRecord, fold
from streams.wire.codec import (
    encode_activity_row,
    encode_row,
)
from streams.wire.commands import LateReport
from streams.wire.ledger_batch import Appended, fold_batch

log = structlog.get_logger(__name__)

ADMIT_LOOK_S: Final = 5.0
"""How long one wait for an activity's row lasts before its assignment is looked at again."""

_OWNER: Final = Kind.OWNER
_ADMIT: Final = Kind.ADMIT
_CLAIM: Final = Kind.CLAIM
_REPORT: Final = Kind.REPORT
_REPAIR: Final = Kind.REPAIR
_CLAIMED: Final = Phase.CLAIMED


class Partition(Leading):
    """The ledger protocol for one partition, its I/O behind `LedgerLog`."""

    def __init__(
        self,
        index: int,
        store: PartitionStore,
        ledger: LedgerLog,
        time: Time,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        super().__init__(index, store, ledger, time, spawn)
        self.locks = KeyedLocks()
        self.closing = False
        """Set when the worker stops: no further claim, no waiting for foreign ones; what was called is
        still reported."""
        self.on_lead: Callable[[], None] = lambda: None
        """Called each time this worker comes to lead."""
        # By kind, token and epoch: an owner that adopts our claim reports it under the same token.
        self._waits: dict[tuple[Kind, bytes, int], tuple[asyncio.Future[bool], Row | None]] = {}
        self._watchers = Watchers()
        self.foreign = ForeignClaims(
            self, self._watchers, time, goes_on=lambda: self.leads and not self.closing
        )
        self._debts = Debts(
            self, self.locks, leads=lambda: self.leads, write=self._append_repair, spawn=spawn
        )
        self._barriers = Barriers(
            ledger,
            self._folded,
            leads=lambda: self.leads,
            next_offset=lambda: store.next,
            spawn=spawn,
        )

    # -- ends ---------------------------------------------------------------------------------

    def revoke(self) -> None:
        """Stop claiming at once; whoever waits for a fold learns that it may not come."""
        self._step_down()
        waits, self._waits = self._waits, {}
        for future, _ in waits.values():
            if not future.done():
                future.set_result(False)
        self._admitting.clear()
        self._folded.set()
        self._watchers.wake_all()

    def close(self) -> None:
        """Stop claiming because the worker stops; wakes whoever waits for a foreign claim."""
        self.closing = True
        self._watchers.wake_all()

    # -- reading ------------------------------------------------------------------------------

    def fold(self, records: Sequence[LedgerRecord]) -> None:
        """Apply records of the own tail, in order, in one atomic write; then tell who waits."""
        done: list[tuple[asyncio.Future[bool], bool]] = []
        touched: list[bytes] = []
        led, now_ms = self.leads, self._time.now_ms()
        store, waits = self.store, self._waits
        for record in records:
            kind = record.kind
            if kind is _REPORT:
                failpoint("report_unfolded")
            valid = fold(store, record)
            if kind is _OWNER:
                self._on_owner(record)
                continue
            touched.append(record.key)
            waited = waits.pop((kind, record.token, record.epoch), None)
            if waited is not None:
                done.append((waited[0], valid))
            if valid:
                self._remember(record, waited[1] if waited else None)
                if kind is _ADMIT:
                    store.age(record.key, now_ms)
        failpoint("store_behind")
        self.store.commit()
        if self.leads and not led:
            self._admit_again()
        self._tell(done, touched)
        if self.leads:
            self._debts.pay()
            if not led:
                self.on_lead()

    def restore(self, records: Sequence[Appended]) -> None:
        """Apply records of a bulk read while the partition is not ours: nobody waits for any of them."""
        assert not self.assignment, "what is ours is folded by its tail"
        now_ms = self._time.now_ms()
        self._cool()
        fold_batch(self.store, records, lambda key: self.store.age(key, now_ms))
        self.store.commit()

    def _tell(self, done: list[tuple[asyncio.Future[bool], bool]], touched: list[bytes]) -> None:
        """Tell who waits for a fold: only now, when the store holds it."""
        for future, valid in done:
            if not future.done():
                future.set_result(valid)
        if self._watchers:
            for key in touched:
                self._watchers.wake(key)
        self._folded.set()

    async def barrier(self) -> bool:
        """See everything that was in the log when this was called; True when we still lead (rule 7)."""
        return await self._barriers.pass_one()

    # -- writing ------------------------------------------------------------------------------

    def append(
        self, kind: Kind, key: bytes, row: Row, *, epoch: int, token: bytes
    ) -> Awaitable[bool]:
        """Append a delivery's row; wait for what is returned, until the own tail has folded it.

        Returns:
            A future of the caller's own: True when the record is valid.
        """
        return self._append(kind, key, encode_row(row), epoch=epoch, token=token, row=row)

    def _append(
        self,
        kind: Kind,
        key: bytes,
        value: bytes | None,
        *,
        epoch: int,
        token: bytes,
        row: Row | None = None,
    ) -> Awaitable[bool]:
        folded: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        if self.assignment:
            self._waits[kind, token, epoch] = (folded, row)
            self._ledger.append(kind, key, value, epoch, token)
        else:
            folded.set_result(False)
        return folded

    def admit(self, key: bytes, row: ActivityRow) -> None:
        """Append an activity's row. Nobody waits: what is appended after it is folded after it."""
        token = self._time.token()
        self._admitting[key] = (row, token)
        self._ledger.append(_ADMIT, key, encode_activity_row(row), self._epoch, token)

    def _admit_again(self) -> None:
        """Append once more what was admitted under an epoch that a stray OWNER ended (rule 2).

        Before anybody is told that we lead again, so that no claim can come before its activity's row.
        """
        for key, (row, _) in list(self._admitting.items()):
            self.admit(key, row)

    async def until_admitted(self, key: bytes) -> None:
        """Wait until an activity's row is folded, or the assignment is over.

        What acknowledges a record without a claim must wait for it: a claim is folded after the row.
        """
        assignment = self.assignment
        while self.is_admitting(key) and self.assignment == assignment:
            await self._watchers.changed(key, within_s=ADMIT_LOOK_S)

    def bury(self, activity_key: bytes) -> bool:
        """Append tombstones for an activity and all its deliveries, if nobody is at work on it.

        The activity's own comes first: where a crash leaves but some of them, none may be of a delivery
        whose activity is still known. An old trigger would take that one for never sent.

        Returns:
            Whether it was done.
        """
        keys = [key for key, _ in self.store.under(activity_key + SEPARATOR)]
        busy = any(map(self.locks.is_held, (*keys, activity_key)))
        if busy or self.is_admitting(activity_key) or not self.leads:
            return False
        for key in (activity_key, *keys):
            self._ledger.append(_REPORT, key, None, self._epoch, self._time.token())
        return True

    async def claim(self, key: bytes, row: Row) -> Claim | None:
        """Claim under the delivery's lock, holding a slot of the target (rule 3).

        Args:
            row: The claimed row to append; its token names the claim.

        Returns:
            The claim once it is folded as valid; None when it is void or we no longer lead.
        """
        if not self.leads or self.closing:
            return None
        started, epoch = self._time.monotonic(), self._epoch
        failpoint("before_claim")
        if not await self.append(_CLAIM, key, row, epoch=epoch, token=row.token):
            # It may stand all the same, for who leads next. Without this word that one would have to
            # take it for a lost call, which ends a delivery to a target that is not idempotent (C-07).
            await self._ledger.report_late(
                LateReport(delivery_key=key, token=row.token, judgement=NOT_CALLED)
            )
            return None
        folded = self.row(key)
        if folded is None or folded.token != row.token or folded.phase is not _CLAIMED:
            return None  # another owner has settled it already: we were that slow
        return Claim(key, folded, epoch, started)

    async def settle(self, claim: Claim, row: Row, judgement: Judgement) -> bool:
        """Report a claim's verdict and wait for the fold (rule 4).

        A report that comes too late goes to the owner, which reports it while the row is still claimed
        under that token.
        """
        valid = await self.append(_REPORT, claim.key, row, epoch=claim.epoch, token=claim.row.token)
        if not valid and claim.mine:
            await self._ledger.report_late(
                LateReport(delivery_key=claim.key, token=claim.row.token, judgement=judgement)
            )
        return valid

    async def write(self, kind: Kind, key: bytes, row: Row) -> bool:
        """Append a row that no claim stands behind: turned away, redriven."""
        return await self.append(kind, key, row, epoch=self._epoch, token=self._time.token())

    async def _append_repair(self, key: bytes, value: bytes | None) -> bool:
        return await self._append(_REPAIR, key, value, epoch=self._epoch, token=self._time.token())

    async def adopt(
        self, key: bytes, row: Row, judged: Callable[[Judgement], Row]
    ) -> Judgement | None:
        """Settle a claim that no task of ours holds; never claim over a claim (rule 5).

        Args:
            judged: The row as a judgement settles it.

        Returns:
            The judgement that it was settled by; None where the row is to be looked at anew.
        """
        late = await self.foreign.outcome(key, row)
        if isinstance(late, bool):
            return None
        judgement = late or LOST
        if not await self.settle(self.adopted(key, row), judged(judgement), judgement):
            return None
        self.foreign.forget(row.token)
        return judgement

    def adopted(self, key: bytes, row: Row) -> Claim:
        """The foreign claim, to be settled by us."""
        return Claim(key, row, self._epoch, self._time.monotonic(), mine=False)
