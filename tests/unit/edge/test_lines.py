"""Lines are cut as they come, numbered, and bounded, whoever writes them."""

from __future__ import annotations

import asyncio
import os

import pytest

from streams.edge.lines import Cutter, Line, read_lines


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_lines_do_not_depend_on_the_chunks_that_they_come_in(size):
    """A pipe gives what it has, never lines."""
    text = b"one\n\ntwo \r\nthree\xff\nlast"
    cutter = Cutter(10)

    lines = [
        line for at in range(0, len(text), size) for line in cutter.cut(text[at : at + size])
    ] + cutter.end()

    assert [b"one", b"", b"two ", b"three\xff", b"last"] == [line.text for line in lines]
    assert [1, 2, 3, 4, 5] == [line.number for line in lines]


@pytest.mark.parametrize("size", [1, 3, 100])
def test_a_line_over_the_bound_is_let_go_of_and_counted(size):
    """A line without an end must not fill the memory; the next one is still the next one."""
    text = b"x" * 50 + b"\n1234567890\r\n" + b"12345678901\n" + b"y" * 50
    cutter = Cutter(10)

    lines = [
        line for at in range(0, len(text), size) for line in cutter.cut(text[at : at + size])
    ] + cutter.end()

    assert [Line(1, None), Line(2, b"1234567890"), Line(3, None), Line(4, None)] == lines


def test_what_is_held_of_a_line_stays_under_the_bound():
    """Bounded memory, however long the line is."""
    cutter = Cutter(10)

    for _ in range(1_000):
        assert [] == cutter.cut(b"x" * 100)
        assert len(cutter._begun) <= 11


async def test_a_pipe_is_read_as_it_is_written():
    """`tail -f | outbox produce`: a line is sent when it comes and not when 64 KiB have come."""
    reading, writing = os.pipe()
    lines = read_lines(reading, 100)
    try:
        os.write(writing, b"first\nsec")
        first = await anext(lines)
        os.write(writing, b"ond\n")
        second = await anext(lines)
    finally:
        os.close(writing)
    rest = [line for batch in [each async for each in lines] for line in batch]
    os.close(reading)

    assert ([Line(1, b"first")], [Line(2, b"second")], []) == (first, second, rest)


async def test_a_silent_pipe_holds_nobody_up():
    """Ctrl-C must not wait for the next line; the reader's thread ends with the process."""
    reading, writing = os.pipe()
    lines = read_lines(reading, 100)

    task = asyncio.ensure_future(anext(lines))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    os.close(writing)
    os.close(reading)


async def test_what_cannot_be_read_is_raised():
    """The thread's error is the reader's."""
    reading, writing = os.pipe()
    os.close(writing)
    os.close(reading)

    with pytest.raises(OSError, match="Bad file descriptor"):
        await anext(read_lines(reading, 100))
