"""How an answer is read, whatever the pieces it comes in; and what a connection asks of its socket."""

from __future__ import annotations

import asyncio

import pytest

from streams.edge.http.answer import HEAD_BYTES_MAX, Answer
from streams.edge.http.call import Wanted
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


ANSWERS = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\nX-Id: m1\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.0 204 \r\nx-ID: m1\r\nx-id: m2\r\n\r\n",
    b"HTTP/1.1 503 No\r\nRETRY-AFTER: 7\r\nretry-after:8\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nX: retry-after\r\nContent-Length: 11\r\n\r\nx-id: stray",
    b"HTTP/1.1 200 OK\r\nX: a\r\n folded\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Id: m1\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nto the end",
    b"HTTP/1.1 421 No\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n",
    b"HTTP/1.1 200 OK\r\nNo colon\r\n\r\n",
    b"HTTP/1.1 2xx OK\r\n\r\n",
    b"HTTP/1.1 200 OK\n\nHTTP/1.1 200 OK\r\n\r\n",
    b"HTTP/1.1 103 Hints\r\nRetry-After: 1\r\n\r\nHTTP/1.1 200 OK\r\nX-Id: m1\r\n\r\n",
    b"HTTP/1.1 101 Switch\r\nUpgrade: x\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nX: " + b"x" * 5_000 + b"\r\nX-Id: m1\r\nContent-Length: 0\r\n\r\n",
]


def told(answer: Answer, wanted: Wanted, *pieces: bytes) -> tuple[object, ...]:
    answer.expect(wanted)
    for piece in pieces:
        answer.feed(memoryview(piece))
    is_settled = answer.is_settled
    answer.settle("read_closed")
    return answer.observation(duration_ms=1), is_settled, answer.is_clean, answer.has_head


@pytest.mark.parametrize("wanted", [Wanted(), Wanted(header=b"x-id"), Wanted(pointer=("id",))])
@pytest.mark.parametrize("whole", ANSWERS)
def test_an_answer_that_comes_at_once_is_what_it_is_in_pieces(whole, wanted):
    """Where no header of it is kept the parser names none; nothing else may come of that."""
    first, second = Answer(), Answer()

    assert told(second, wanted, whole[:1], whole[1:]) == told(first, wanted, whole)
    if first.is_clean:  # then its connection carries another, by the same parsers
        assert told(second, wanted, whole[:1], whole[1:]) == told(first, wanted, whole)


@pytest.mark.parametrize("cut", [20, 40, 60])
def test_a_header_that_is_not_there_yet_is_kept_when_it_comes(cut):
    """What is kept of an answer is decided by its whole head, or it is looked for header by header."""
    whole = b"HTTP/1.1 503 No\r\nX: 1\r\nRetry-After: 7\r\nX-Id: m1\r\nContent-Length: 0\r\n\r\n"

    answer = fed(whole[:cut], whole[cut:])

    assert Observation(status=503, retry_after=("7",)) == answer.observation(duration_ms=0)


def test_one_answers_headers_are_not_the_next_ones():
    """A connection carries many answers; what the last one asked for is not asked for again."""
    answer = fed(b"HTTP/1.1 503 No\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n")

    answer.expect(Wanted())
    answer.feed(memoryview(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"))

    assert Observation(status=200) == answer.observation(duration_ms=0)


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
