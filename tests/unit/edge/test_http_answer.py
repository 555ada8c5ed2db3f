"""How an answer is read, whatever the pieces it comes in; and what a connection asks of its socket."""

from __future__ import annotations

import asyncio

import pytest

from streams.edge.http.answer import HEAD_BYTES_MAX, Answer
from streams.edge.http.connection import Connection
from streams.model.faults import fault_of
from streams.model.observation import Observation
from streams.rules.addresses import Origin


def fed(*pieces: bytes) -> Answer:
    answer = Answer()
    for piece in pieces:
        answer.feed(memoryview(piece))
    return answer


@pytest.mark.parametrize("at", range(1, 8))
def test_the_protocol_is_checked_in_whatever_pieces_it_comes(at):
    """llhttp takes HTTP/2.0 for an answer; we speak HTTP/1 only, and say so."""
    line = b"HTTP/2.0 200 OK\r\n\r\n"

    answer = fed(line[:at], line[at:])

    assert fault_of("protocol_malformed") == answer.fault


def head_of(size: int) -> bytes:
    start, end = b"HTTP/1.1 200 OK\r\nX: ", b"\r\nContent-Length: 2\r\n\r\n"
    return start + b"x" * (size - len(start) - len(end)) + end


def test_a_head_over_the_bound_is_refused_although_its_end_was_read_with_it():
    """The bound counts bytes, not reads."""
    head = head_of(HEAD_BYTES_MAX + 1)

    answer = fed(head[:10], head[10:] + b"ok")

    assert fault_of("protocol_headers_too_large") == answer.fault


def test_a_head_at_the_bound_is_read_with_the_body_behind_it():
    """The bound itself is allowed, and what follows it in the same read is the body."""
    head = head_of(HEAD_BYTES_MAX - 1)

    answer = fed(head[:10], head[10:] + b"ok")

    assert Observation(status=200) == answer.observation(duration_ms=0)
    assert answer.is_clean


class Socket(asyncio.Transport):
    def set_write_buffer_limits(self, high=None, low=None):
        self.high = high


async def test_every_byte_that_the_kernel_did_not_take_is_reported():
    """
    C-05: the default lets 64 KiB wait unseen, and a request that never left in whole would be
    called a lost answer.
    """
    connection = Connection(
        loop=asyncio.get_running_loop(),
        buffer=memoryview(bytearray(1)),
        lane="crm",
        origin=Origin("http", "crm.example", 80),
        context=None,
        on_closed=lambda _: None,
    )
    transport = Socket()

    connection.connection_made(transport)

    assert transport.high == 0
