"""Lines read from a file, a pipe or a terminal: streamed, numbered, none held whole beyond a bound."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from typing import Final, NamedTuple

CHUNK_BYTES: Final = 64 * 1024


class Line(NamedTuple):
    """One line without its end (LF, or CR LF).

    Attributes:
        number: From 1, as editors count.
        text: Its bytes; None where it was longer than the bound and was let go of.
    """

    number: int
    text: bytes | None


class Cutter:
    """Cuts chunks into lines. Holds at most one line's beginning."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._begun = b""
        self._is_too_long = False
        self._number = 0

    def cut(self, chunk: bytes) -> list[Line]:
        """Give the lines that end in `chunk`."""
        *whole, self._begun = (self._begun + chunk).split(b"\n")
        lines = [self._line(text) for text in whole]
        # One byte more than the bound may be the CR of a line's end.
        if len(self._begun) > self._max_bytes + 1:
            self._begun = b""
            self._is_too_long = True
        return lines

    def end(self) -> list[Line]:
        """Give the last line, where it has no end."""
        if not self._begun and not self._is_too_long:
            return []
        last, self._begun = self._begun, b""
        return [self._line(last)]

    def _line(self, text: bytes) -> Line:
        self._number += 1
        is_too_long, self._is_too_long = self._is_too_long, False
        text = text.removesuffix(b"\r")
        return Line(self._number, None if is_too_long or len(text) > self._max_bytes else text)


async def read_lines(descriptor: int, max_bytes: int) -> AsyncIterator[list[Line]]:
    """Read lines as they come, those of one read together; blocks nothing else.

    Args:
        descriptor: Of an open file, pipe or terminal.
        max_bytes: Longest line that is given whole.

    Raises:
        OSError: it cannot be read.
    """
    cutter = Cutter(max_bytes)
    while chunk := await _read(descriptor):
        yield cutter.cut(chunk)
    yield cutter.end()


async def _read(descriptor: int) -> bytes:
    """Read once, on a thread of its own.

    A daemon and not an executor's: those are joined at exit, and Ctrl-C would wait for the next
    line of a pipe that is silent. A file object is not used because its lock would be held too.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[bytes] = loop.create_future()

    def deliver(chunk: bytes, error: OSError | None) -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(chunk)

    def run() -> None:
        chunk, failure = b"", None
        try:
            chunk = os.read(descriptor, CHUNK_BYTES)
        except OSError as error:
            failure = error
        try:
            loop.call_soon_threadsafe(deliver, chunk, failure)
        except RuntimeError:
            return  # the loop has ended, and with it whoever asked

    threading.Thread(target=run, name="line-reader", daemon=True).start()
    return await answer
