"""An event loop without a clock or a socket: time is a number that jumps to the next timer.

Everything that happens is decided by the program and its seed, so a run can be repeated exactly. Work
that belongs to a worker carries the worker's life in its context: a frozen life's callbacks are kept
back, as the kernel keeps back a stopped process.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Coroutine
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")

LIFE: ContextVar[Life | None] = ContextVar("LIFE", default=None)
"""Which process, from its start to its end, the running code belongs to; None for the world."""


class Life:
    """One process from start to end."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        self.frozen = False


class StuckError(AssertionError):
    """Nothing is left that could ever happen, yet somebody waits."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs callbacks in the order in which they were made, and timers in the order of their time."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        # Timers are floats: one that is a rounding error away is due.
        self._clock_resolution = 1e-6
        self._parked: list[asyncio.Handle] = []
        self.faults: list[str] = []
        """What was raised where nobody could catch it."""
        self.set_exception_handler(self._note)

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now

    def thaw(self, life: Life) -> None:
        """Let what was kept back of a frozen life run, in its order."""
        life.frozen = False
        parked, self._parked = self._parked, []
        for handle in parked:
            if handle._context.get(LIFE) is life:  # type: ignore[attr-defined]
                self._ready.append(handle)  # type: ignore[attr-defined]
            else:
                self._parked.append(handle)

    def _run_once(self) -> None:
        ready, timers = self._ready, self._scheduled  # type: ignore[attr-defined]
        while timers and timers[0]._cancelled:
            heapq.heappop(timers)._scheduled = False
        if not ready:
            if not timers:
                raise StuckError("nothing is left that could happen")
            self._now = max(self._now, timers[0]._when)
        while timers and timers[0]._when <= self._now + self._clock_resolution:
            handle = heapq.heappop(timers)
            handle._scheduled = False
            ready.append(handle)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            life = handle._context.get(LIFE)
            if life is not None and life.frozen:
                self._parked.append(handle)
            else:
                handle._run()

    def _note(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        handle = context.get("handle")
        life = None if handle is None else handle._context.get(LIFE)
        if isinstance(context.get("exception"), asyncio.CancelledError):
            return  # an append of a process that is gone
        if life is None or not life.dead:
            self.faults.append(f"{context.get('message')}: {context.get('exception')!r}")

    def _process_events(self, event_list: object) -> None:
        """There are no sockets."""

    def _write_to_self(self) -> None:
        """There are no threads."""


def run_virtual(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to its end in a loop of its own, then end whatever it left behind."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(work)
    finally:
        _end_all(loop)
        loop.close()


def _end_all(loop: VirtualLoop) -> None:
    for handle in loop._parked:
        life = handle._context.get(LIFE)  # type: ignore[attr-defined]
        life.frozen = False
        loop._ready.append(handle)  # type: ignore[attr-defined]
    loop._parked.clear()
    while left := asyncio.all_tasks(loop):
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.wait(left, timeout=1.0))
