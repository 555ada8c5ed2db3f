"""Debts: keys whose last record is void, repaired before compaction can keep that one (ledger.md, rule 6)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from streams.edge.failpoint import failpoint
from streams.engine.locks import KeyedLocks
from streams.engine.rows import Rows, value_of_repair


class Debts:
    """What one partition owes."""

    def __init__(
        self,
        rows: Rows,
        locks: KeyedLocks,
        *,
        leads: Callable[[], bool],
        write: Callable[[bytes, bytes | None], Awaitable[object]],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        """Take the partition's parts.

        Args:
            leads: Whether we lead it now.
            write: Appends a REPAIR of a key, and returns once it is folded.
        """
        self._rows = rows
        self._locks = locks
        self._leads = leads
        self._write = write
        self._spawn = spawn
        self._repairing: set[bytes] = set()

    def pay(self) -> None:
        """Repair every key that owes it and is not being repaired."""
        for key in sorted(self._rows.store.owed):
            if key not in self._repairing:
                self._repairing.add(key)
                self._spawn(self._repair(key))

    async def _repair(self, key: bytes) -> None:
        """Append the folded row again, or a tombstone, under the delivery's lock."""
        try:
            async with self._locks.hold(key):
                if not self._leads() or key not in self._rows.store.owed:
                    return
                if self._rows.is_admitting(key):
                    # An activity's row is appended without the lock: that append pays the debt, and a
                    # repair that lands behind it would erase it.
                    return
                stored = self._rows.store.get(key)
                value = None if stored is None else value_of_repair(key, stored)
                failpoint("repair_unwritten")
                await self._write(key, value)
        finally:
            self._repairing.discard(key)
