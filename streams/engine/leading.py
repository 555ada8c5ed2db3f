"""Who leads one ledger partition: OWNER records, epochs, and a stray owner overruled (rules 1 and 2)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

import structlog

from streams.edge.store import PartitionStore
from streams.engine.ports import LedgerLog, Time
from streams.engine.rows import Rows
from streams.model.ledger import OWNER_KEY, Kind
from streams.rules.fold import LedgerRecord

log = structlog.get_logger(__name__)

REOWN_DELAY_S: Final = 0.25
"""How long to wait before claiming a partition back from a foreign OWNER (rule 2). A frozen worker that
wakes believes itself the owner until its next heartbeat; without a pause the two would trade OWNER
records as fast as the broker takes them."""


class Leading(Rows):
    """The rows of one partition, and whether this worker may write them."""

    def __init__(
        self,
        index: int,
        store: PartitionStore,
        ledger: LedgerLog,
        time: Time,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        super().__init__(store)
        self.index = index
        self.assignment = 0
        """Which assignment of this partition stands; 0 while it is not ours."""
        self.leads = False
        """Assigned, and the folded epoch is our own. Asked ten times a delivery, so it is no property:
        `_look` follows whatever it depends on."""
        self._ledger = ledger
        self._time = time
        self._spawn = spawn
        self._owner_token = b""
        self._epoch = -1
        self._folded = asyncio.Event()

    def holds(self, assignment: int) -> bool:
        """Whether we lead, and still in that assignment."""
        return self.assignment == assignment and self.leads

    def assign(self, assignment: int) -> None:
        """Take the partition: append OWNER with a fresh token; we lead once it is folded (rule 2)."""
        self.assignment = assignment
        self._own()

    def _step_down(self) -> None:
        """The partition is not ours any more."""
        self.assignment = 0
        self._epoch = -1
        self._owner_token = b""
        self._look()

    def forget(self) -> None:
        """See `Rows`."""
        super().forget()
        self._look()

    def _look(self) -> None:
        self.leads = self.assignment != 0 and 0 <= self._epoch == self.store.epoch

    def _own(self) -> None:
        self._epoch = -1
        self._look()
        self._owner_token = self._time.token()
        self._ledger.append(Kind.OWNER, OWNER_KEY, None, -1, self._owner_token)

    def _on_owner(self, record: LedgerRecord) -> None:
        if record.token == self._owner_token:
            self._epoch = record.offset
            log.info("partition.led", partition=self.index, epoch=record.offset)
        elif self.assignment and self._epoch >= 0:
            # One that is folded before ours lies before it, and is overruled by it already.
            log.warning("partition.foreign_owner", partition=self.index, offset=record.offset)
            self._spawn(self._own_again(self.assignment, self._owner_token))
        self._look()

    async def _own_again(self, assignment: int, token: bytes) -> None:
        await asyncio.sleep(REOWN_DELAY_S)
        if self.assignment == assignment and self._owner_token == token and not self.leads:
            self._own()

    async def until_led(self, assignment: int) -> bool:
        """Wait while the partition is ours and not led: a stray OWNER is being overruled (rule 2).

        Returns:
            True once we lead in that assignment, False when the assignment is over.
        """
        while self.assignment == assignment and not self.leads:
            self._folded.clear()
            await self._folded.wait()
        return self.assignment == assignment
