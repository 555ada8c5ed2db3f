"""Ends a process whose event loop does not turn any more: nothing inside the loop could say so."""

from __future__ import annotations

import asyncio
import faulthandler
import os
import sys
import threading
from collections.abc import Callable
from typing import Final

TICK_S: Final = 1.0


class Watchdog:
    """A thread that counts its own ticks since the loop last turned.

    Ticks and not seconds: a process that was frozen as a whole is not at fault when it wakes.

    Args:
        ticks: After how many without a turn of the loop the process ends.
        end: What ends it; it must not come back.
    """

    def __init__(self, ticks: int, end: Callable[[str], None], *, tick_s: float = TICK_S) -> None:
        self._ticks = ticks
        self._end = end
        self._tick_s = tick_s
        self._missed = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Watch this loop."""
        self._loop = loop
        self._thread.start()

    def stop(self) -> None:
        """Watch no longer."""
        self._stopped.set()

    def _turned(self) -> None:
        self._missed = 0

    def _watch(self) -> None:
        while not self._stopped.wait(self._tick_s):
            self._missed += 1
            if self._missed > self._ticks:
                self._end(f"the event loop did not turn for {self._ticks * self._tick_s:.0f} s")
                return
            try:
                self._loop.call_soon_threadsafe(self._turned)
            except RuntimeError:
                return  # the loop is closed: the process ends by itself


def end_process(reason: str) -> None:
    """Exit 1 with the reason and where each thread stands: names of functions, no contents."""
    sys.stderr.write(f"outbox: {reason}: the worker cannot go on\n")
    faulthandler.dump_traceback(all_threads=True)
    sys.stderr.flush()
    os._exit(1)
