"""faust's table manager, replaced: the ledger is restored in bulk and written by nobody but us.

faust needs a table so that its assignor puts partition p of all topics on one worker; its own recovery
reads 7,000 records/s, waits for ever under the batch hand-over (it never sees a changelog record), and
clears queues in a race (upstream #596).
"""

from __future__ import annotations

from typing import Any, Protocol, cast

import faust
from faust.tables.manager import TableManager
from faust.types import TP


class Owning(Protocol):
    """What is told of assignments."""

    def lost(self, revoked: set[TP]) -> None:
        """Stop claiming on these partitions at once."""

    async def gained(self, assigned: set[TP], generation: int) -> None:
        """Take these partitions; returns quickly, the work goes on behind."""


class LedgerTable(faust.Table[bytes, bytes]):
    """The ledger as faust knows it: a name and a changelog topic. Nobody may write through it."""

    def __setitem__(self, key: Any, value: Any) -> None:
        raise TypeError(
            "the ledger is written by appends only (ledger.md), never through the table"
        )

    def __delitem__(self, key: Any) -> None:
        raise TypeError(
            "the ledger is written by appends only (ledger.md), never through the table"
        )


class LedgerTables(TableManager):
    """Tells `Owning` of assignments and leaves faust's recovery out."""

    @property
    def _owning(self) -> Owning:
        return cast("Owning", self.app)

    async def on_start(self) -> None:
        """Register the changelog topic for the assignor; start no recovery."""
        await self._update_channels()

    async def on_stop(self) -> None:
        """Stop fetching."""
        await cast("Any", self.app)._fetcher.stop()

    def on_partitions_revoked(self, revoked: set[TP]) -> None:
        """A rebalance takes partitions."""
        self._owning.lost(revoked)

    async def on_rebalance(
        self,
        assigned: set[TP],
        revoked: set[TP],
        newly_assigned: set[TP],
        generation_id: int = 0,
    ) -> None:
        """A rebalance gave partitions."""
        self._recovery_started.set()
        await self._update_channels()
        await self._owning.gained(assigned, generation_id)

    async def wait_until_recovery_completed(self) -> bool:
        """Nothing of faust's is recovered."""
        return False
