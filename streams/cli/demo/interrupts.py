"""When Ctrl-C, SIGTERM or SIGHUP may end the demo: between two steps of a loop, and in no tidying up."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeVar

_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

T = TypeVar("T")


@contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end this process as Ctrl-C does: through every `finally`."""
    with _handled(_interrupt):
        yield


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let nothing interrupt the tidying up; it takes seconds."""
    with _handled(signal.SIG_IGN):
        yield


def run(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run `work` in an event loop of its own; an interrupt cancels it between two of the loop's steps.

    Raised wherever Python happens to be, as elsewhere, an interrupt leaves a half-made loop or a coroutine
    that nobody runs, which Python then talks about on stderr.

    Raises:
        KeyboardInterrupt: it was interrupted, and is over.
    """
    is_asked = False
    cancel: Callable[[], object] | None = None

    def ask(*_: object) -> None:
        nonlocal is_asked
        is_asked = True
        if cancel is not None:
            cancel()

    async def whole() -> T:
        nonlocal cancel
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None, "asyncio runs a coroutine as a task"
        cancel = partial(loop.call_soon_threadsafe, task.cancel)
        if is_asked:
            cancel()
        try:
            return await work()
        finally:
            cancel = None

    with _handled(ask):
        try:
            result = asyncio.run(whole())
        except asyncio.CancelledError:
            if not is_asked:
                raise
            raise KeyboardInterrupt from None
    if is_asked:
        raise KeyboardInterrupt
    return result


@contextmanager
def _handled(by: Callable[..., object] | signal.Handlers) -> Iterator[None]:
    before = {number: signal.signal(number, by) for number in _ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
