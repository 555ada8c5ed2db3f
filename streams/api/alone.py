"""Work for a name, one at a time, brought to its end also where its caller goes away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

Done = TypeVar("Done")


class OneAtATime:
    """Runs work; what was begun is not cut off, for half a transaction must not be left standing."""

    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, list[None]]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self, name: str, work: Callable[[], Awaitable[Done]]) -> Done:
        """Do `work` once all earlier work of this name is done, and give what it gives."""

        async def alone() -> Done:
            async with self._only(name):
                return await work()

        task = asyncio.ensure_future(alone())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    async def finish(self) -> None:
        """Wait for what is under way."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    @asynccontextmanager
    async def _only(self, name: str) -> AsyncIterator[None]:
        lock, waiting = self._locks.setdefault(name, (asyncio.Lock(), []))
        waiting.append(None)
        try:
            async with lock:
                yield
        finally:
            waiting.pop()
            if not waiting:
                del self._locks[name]
