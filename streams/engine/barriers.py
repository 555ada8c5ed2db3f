"""Barriers: seeing all that was in the log when one asked (ledger.md, rule 7)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from streams.engine.ports import LedgerLog

LOOK_S: Final = 0.5
"""How long one wait for a fold lasts before the tail is asked how far it has read."""


class Barriers:
    """The barriers of one partition. Those that are asked for at the same time share one question."""

    def __init__(
        self,
        ledger: LedgerLog,
        folded: asyncio.Event,
        *,
        leads: Callable[[], bool],
        next_offset: Callable[[], int],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        """Take the partition's parts.

        Args:
            folded: Set after each fold, and when the partition is lost.
            leads: Whether we lead it now.
            next_offset: How far its log is folded.
        """
        self._ledger = ledger
        self._folded = folded
        self._leads = leads
        self._next_offset = next_offset
        self._spawn = spawn
        self._asked: list[asyncio.Future[bool]] = []
        self._runs = False

    async def pass_one(self) -> bool:
        """Wait until all is folded that was in the log when this was called.

        Returns:
            True when we still lead after that. Calls that come while the end is being asked for share
            the next question.
        """
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._asked.append(answer)
        if not self._runs:
            self._runs = True
            self._spawn(self._run())
        return await answer

    async def _run(self) -> None:
        try:
            while self._asked:
                asked, self._asked = self._asked, []
                fresh = self._leads() and await self._catch_up(await self._ledger.end_offset())
                for answer in asked:
                    if not answer.done():
                        answer.set_result(fresh)
        finally:
            self._runs = False

    async def _catch_up(self, end: int) -> bool:
        while self._leads() and self._next_offset() < end:
            self._folded.clear()
            try:
                await asyncio.wait_for(self._folded.wait(), timeout=LOOK_S)
            except TimeoutError:
                # Compaction may have taken the last records: the tail passed them without a fold.
                if await self._ledger.read_position() >= end:
                    break
        return self._leads()
