"""The call that works: what is written, what is kept, which connection is used, who waits."""

from __future__ import annotations

import asyncio
import errno
import gzip
import socket

import pytest

from streams.edge.http.answer import BODY_BYTES_MAX
from streams.edge.http.call import wanted
from streams.errors import TargetError
from streams.model.faults import fault_of
from streams.model.observation import Observation
from streams.model.values import replace
from tests.unit.edge.http_peer import (
    OK,
    Link,
    Peer,
    Script,
    answering,
    call_to,
    ending,
    post_once,
    serving,
    silent,
    transport_of,
    until,
)

SHORT_MS = 150
CHUNKED = b"HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\n"


async def body_dripping(link: Link) -> None:
    await link.request()
    await link.send(b"HTTP/1.1 202 Accepted\r\nContent-Length: 60000\r\n\r\n")
    await link.drip(b"x" * 60_000)


async def body_endless(link: Link) -> None:
    await link.request()
    await link.send(b"HTTP/1.1 202 Accepted\r\n\r\n")
    while True:
        await link.send(b"x" * 10_000)


async def head_in_pieces(link: Link) -> None:
    await link.request()
    await link.drip(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
    await link.ended()


async def early_answer(link: Link) -> None:
    await link.read()
    await link.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
    await asyncio.Event().wait()


def bomb() -> bytes:
    packed = gzip.compress(b"\0" * 20_000_000)
    head = b"HTTP/1.1 202 Accepted\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
    return head % len(packed) + packed


STANDS: dict[str, tuple[Script, int, dict[str, object]]] = {
    "chunked body cut off": (answering(CHUNKED + b"5\r\nhel"), 202, {}),
    "chunked body reset": (ending(CHUNKED + b"5\r\nhel", reset=True), 202, {}),
    "chunk size is no number": (ending(CHUNKED + b"zz\r\nhello\r\n"), 202, {}),
    "chunk longer than it says": (ending(CHUNKED + b"3\r\nhello\r\n0\r\n\r\n"), 202, {}),
    "body shorter than its length": (
        answering(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc"),
        200,
        {},
    ),
    "body longer than its length": (
        ending(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabcdef"),
        200,
        {},
    ),
    "second answer in the same segment": (ending(OK + OK), 200, {}),
    "endless body": (body_endless, 202, {}),
    "body over the bound": (
        ending(b"HTTP/1.1 200 OK\r\nContent-Length: 65537\r\n\r\n" + b"x" * 65_537),
        200,
        {},
    ),
    "body in a slow drip": (body_dripping, 202, {"timeout_ms": SHORT_MS}),
    "body that never comes": (
        ending(b"HTTP/1.1 503 X\r\nContent-Length: 5\r\n\r\n"),
        503,
        {"timeout_ms": SHORT_MS},
    ),
    "body up to the end of the connection": (answering(b"HTTP/1.1 200 OK\r\n\r\nhello"), 200, {}),
    "HTTP/1.0": (ending(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok"), 200, {}),
    "connection: close": (
        ending(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"),
        200,
        {},
    ),
    "answer before the request was read": (early_answer, 413, {"body": b"x" * 8_000_000}),
    "upgrade that was not asked for": (
        ending(b"HTTP/1.1 426 X\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n"),
        426,
        {"timeout_ms": SHORT_MS},
    ),
}

KEPT: dict[str, tuple[Script, int]] = {
    "body that is not gzip": (
        ending(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc"),
        200,
    ),
    "gzip bomb": (ending(bomb()), 202),
    "length": (ending(OK), 200),
    "chunks": (ending(CHUNKED + b"5\r\nhello\r\n0\r\n\r\n"), 202),
    "chunks with trailers": (ending(CHUNKED + b"0\r\nRetry-After: 9\r\n\r\n"), 202),
    "204": (ending(b"HTTP/1.1 204 No Content\r\n\r\n"), 204),
    "redirect": (
        ending(b"HTTP/1.1 307 X\r\nLocation: http://127.0.0.1/\r\nContent-Length: 0\r\n\r\n"),
        307,
    ),
    "status without a reason": (ending(b"HTTP/1.1 202\r\nContent-Length: 0\r\n\r\n"), 202),
    "100 first": (ending(b"HTTP/1.1 100 Continue\r\n\r\n" + OK), 200),
    "16 interim answers": (ending(b"HTTP/1.1 102 X\r\nRetry-After: 7\r\n\r\n" * 16 + OK), 200),
    "head byte by byte": (head_in_pieces, 202),
    "body at the bound": (
        ending(b"HTTP/1.1 200 OK\r\nContent-Length: 65536\r\n\r\n" + b"x" * 65_536),
        200,
    ),
    "head and body over 64 KiB together": (
        ending(
            b"HTTP/1.1 200 OK\r\nX: " + b"x" * 60_000 + b"\r\nContent-Length: 60000\r\n\r\n"
            + b"x" * 60_000
        ),
        200,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", STANDS)
def test_a_status_stands_once_its_head_is_whole(run, case):
    """
    C-11, field case B17: whatever becomes of the body, the answer was given; the connection is
    spent, and closed.
    """
    script, status, changes = STANDS[case]

    async def scenario() -> Observation:
        async with Peer(script) as peer:
            transport = transport_of()
            seen = await transport.post(call_to(peer.url, **changes))
            assert transport._pool.open_connections == 0
            await transport.close()
            return replace(seen, duration_ms=0)

    assert Observation(status=status) == run(scenario())


@pytest.mark.parametrize("case", KEPT)
def test_a_connection_is_kept_after_an_answer_that_ended_cleanly(run, case):
    """O-041: the next call needs no handshake. Headers of interim answers and trailers are not
    the answer's.
    """
    script, status = KEPT[case]

    async def scenario() -> Observation:
        async with Peer(script) as peer:
            transport = transport_of()
            seen = await transport.post(call_to(peer.url))
            assert transport._pool.open_connections == 1
            await transport.close()
            return replace(seen, duration_ms=0)

    assert Observation(status=status) == run(scenario())


def test_a_kept_connection_carries_the_next_call(run):
    """O-041, O-042: two calls, one connection; each is a whole request of its own."""

    async def scenario() -> tuple[int, list[bytes]]:
        async with Peer(serving()) as peer:
            transport = transport_of()
            await transport.post(call_to(peer.url, body=b"1"))
            await transport.post(call_to(peer.url, body=b"2"))
            await transport.close()
            return peer.connections, [each[-1:] for each in peer.requests]

    assert (1, [b"1", b"2"]) == run(scenario())


def test_bytes_that_come_while_idle_spend_the_connection(run):
    """A late surplus would be taken for the next call's answer: the worst of all mistakes."""

    async def script(link: Link) -> None:
        await link.request()
        await link.send(OK)
        await asyncio.sleep(0.01)
        await link.send(OK)
        await link.ended()

    async def scenario() -> int:
        async with Peer(script, serving(b"HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n")) as peer:
            transport = transport_of()
            await transport.post(call_to(peer.url))
            await until(lambda: transport._pool.open_connections == 0)
            seen = await transport.post(call_to(peer.url))
            await transport.close()
            assert seen.status is not None
            return seen.status

    assert run(scenario()) == 500


def test_the_request_is_what_the_interface_promises(run):
    """Interface.md §4: the body as it is, given headers in order, the host with its port."""

    async def scenario() -> tuple[bytes, int]:
        async with Peer(serving()) as peer:
            await post_once(peer, headers=[(b"webhook-id", b"d-1"), (b"user-agent", b"outbox")])
            return peer.requests[0], peer.port

    request, port = run(scenario())

    expected = (
        b"POST /hook HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nwebhook-id: d-1\r\nuser-agent: outbox\r\n"
        b'Accept-Encoding: identity\r\nContent-Length: 8\r\n\r\n{"id":1}'
    )
    assert expected % port == request


def test_the_host_of_an_ipv6_target_stands_in_brackets(run):
    """RFC 9110 §7.2; and IPv6 is dialled as well as IPv4."""

    async def scenario() -> tuple[bytes, int]:
        async with Peer(serving(), host="::1") as peer:
            await post_once(peer)
            return peer.requests[0], peer.port

    request, port = run(scenario())

    assert b"\r\nHost: [::1]:%d\r\n" % port in request


@pytest.mark.parametrize(
    "header", [(b"x\r\nhost", b"evil"), (b"x", b"1\r\n\r\nPOST /"), (b"x", b"\n")]
)
def test_a_header_with_a_line_break_is_not_sent(run, header):
    """C-14: any producer names a content type; it must forge no request, and end no worker."""

    async def scenario() -> tuple[Observation, int]:
        async with Peer(serving()) as peer:
            return await post_once(peer, headers=[header]), peer.connections

    assert (Observation(fault=fault_of("request_invalid")), 0) == run(scenario())


def test_a_redirect_is_not_followed(run):
    """Field cases B07, C06: one request on the wire, whatever Location says."""

    async def scenario() -> tuple[int | None, int]:
        async with Peer(serving()) as elsewhere:
            location = elsewhere.url.encode()
            head = b"HTTP/1.1 307 X\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n"
            async with Peer(serving(head % location)) as peer:
                seen = await post_once(peer)
            return seen.status, elsewhere.connections

    assert (307, 0) == run(scenario())


def test_every_retry_after_is_kept_in_order(run):
    """D-018, field case A11: which of them counts is for `rules.retry_after` to say."""
    answer = (
        b"HTTP/1.1 429 X\r\nRetry-After: 5\r\nretry-after:  Fri, 31 Dec 1999 23:59:59 GMT \r\n"
        b"Retry-After: \r\nContent-Length: 0\r\n\r\n"
    )

    async def scenario() -> Observation:
        async with Peer(serving(answer)) as peer:
            return await post_once(peer)

    expected = ("5", "Fri, 31 Dec 1999 23:59:59 GMT", "")
    assert Observation(status=429, retry_after=expected) == run(scenario())


def json_answer(body: bytes, head: bytes = b"") -> bytes:
    return b"HTTP/1.1 200 OK\r\n%sContent-Length: %d\r\n\r\n%s" % (head, len(body), body)


@pytest.mark.parametrize(
    ("source", "answer", "expected"),
    [
        ("header:X-Message-Id", json_answer(b"", b"x-message-id:  abc \r\n"), "abc"),
        ("header:x-id", json_answer(b"", b"X-Id: a\r\nX-Id: b\r\n"), "a"),
        ("header:x-id", json_answer(b""), None),
        ("header:x-id", json_answer(b"", b"X-Id: " + b"a" * 128 + b"\r\n"), "a" * 128),
        ("header:x-id", json_answer(b"", b"X-Id: " + b"a" * 129 + b"\r\n"), None),
        ("header:x-id", json_answer(b"", b"X-Id: a\tb\r\n"), None),
        ("json:/id", json_answer(b'{"id":"m-1"}'), "m-1"),
        ("json:/id", json_answer(b'{"id":17}'), "17"),
        ("json:/id", json_answer(b'{"id":true}'), None),
        ("json:/id", json_answer(b'{"id":null}'), None),
        ("json:/id", json_answer(b'{"id":""}'), None),
        ("json:/id", json_answer(b'{"id":"a\\nb"}'), None),
        ("json:/a~1b/1/~0c", json_answer(b'{"a/b":[0,{"~c":"deep"}]}'), "deep"),
        ("json:/a/9", json_answer(b'{"a":[0]}'), None),
        ("json:/a/b", json_answer(b'{"a":"text"}'), None),
        ("json:/id", json_answer(b"not json"), None),
        ("json:/id", json_answer(b"[" * 60_000), None),
        ("json:/id", json_answer(b'{"id":"\xff"}'), None),
        ("json:/id", json_answer(b'{"id":"m-1"' + b" " * BODY_BYTES_MAX + b"}"), None),
        (None, json_answer(b'{"id":"m-1"}', b"x-id: abc\r\n"), None),
    ],
)
def test_the_message_id_is_the_only_thing_kept_of_an_answer(run, source, answer, expected):
    """D-070, D-071, C-11: at most 128 printable characters, from where the target says, or none."""

    async def scenario() -> Observation:
        async with Peer(serving(answer)) as peer:
            return await post_once(peer, message_id_from=source)

    assert Observation(status=200, provider_message_id=expected) == run(scenario())


@pytest.mark.parametrize("source", ["", "header:", "header:\u00fc", "json:id", "cookie:x", "json:"])
def test_a_source_of_message_ids_in_neither_form_is_refused(source):
    """Issue 5, `message_id_from`: said when the target is put, not when the first answer comes."""
    with pytest.raises(TargetError, match="message_id_from"):
        wanted(source)


def test_the_duration_is_wall_time_in_milliseconds(run):
    """O-039: what the deadline bounds is what the observation shows."""

    async def scenario() -> int:
        async with Peer(silent) as peer:
            transport = transport_of()
            seen = await transport.post(call_to(peer.url, timeout_ms=SHORT_MS))
            await transport.close()
            return seen.duration_ms

    assert run(scenario()) >= SHORT_MS - 2


def test_a_shorter_deadline_than_that_of_the_call_before_is_kept(run):
    """One timer serves many calls of a connection; it must be moved forward as well as back."""

    async def script(link: Link) -> None:
        await link.request()
        await link.send(OK)
        await silent(link)

    async def scenario() -> Observation:
        async with Peer(script) as peer:
            transport = transport_of()
            await transport.post(call_to(peer.url, timeout_ms=60_000))
            seen = await transport.post(call_to(peer.url, timeout_ms=SHORT_MS))
            await transport.close()
            return replace(seen, duration_ms=0)

    assert Observation(fault=fault_of("read_timeout")) == run(scenario())


def test_a_later_deadline_than_that_of_the_call_before_is_kept(run):
    """The timer of the first call fires within the second, and must not end it."""

    async def script(link: Link) -> None:
        await link.request()
        await link.send(OK)
        await link.request()
        await asyncio.sleep(2 * SHORT_MS / 1_000)
        await link.send(OK)
        await link.ended()

    async def scenario() -> Observation:
        async with Peer(script) as peer:
            transport = transport_of()
            await transport.post(call_to(peer.url, timeout_ms=SHORT_MS))
            seen = await transport.post(call_to(peer.url, timeout_ms=5_000))
            await transport.close()
            return replace(seen, duration_ms=0)

    assert Observation(status=200) == run(scenario())


# ── Several addresses ────────────────────────────────────────────────────────────────────────────


def test_a_dead_address_gives_way_to_the_next(run):
    """RFC 8305: a name with a dead first address is delivered to by its second."""

    async def scenario() -> Observation:
        async with Peer(serving()) as peer:
            transport = transport_of(lambda _: ["127.0.0.2", "::1", "127.0.0.1"])
            seen = await transport.post(call_to(f"http://two.example:{peer.port}/"))
            await transport.close()
            return replace(seen, duration_ms=0)

    assert Observation(status=200) == run(scenario())


def test_a_name_whose_addresses_all_failed_is_looked_up_anew(run):
    """A fail-over in DNS is followed by the next attempt, not after the memory's half minute."""
    answers = [["127.0.0.2"], ["127.0.0.1"]]

    async def scenario() -> list[Observation]:
        async with Peer(serving()) as peer:
            transport = transport_of(lambda _: answers.pop(0))
            call = call_to(f"http://moved.example:{peer.port}/")
            seen = [await transport.post(call), await transport.post(call)]
            await transport.close()
            return [replace(each, duration_ms=0) for each in seen]

    expected = [Observation(fault=fault_of("connect_refused")), Observation(status=200)]
    assert expected == run(scenario())


def on_one_port(first: str, second: str) -> tuple[socket.socket, socket.socket]:
    """Bind a port that is free on both addresses; one that others use on the second is let go of."""
    while True:
        one = socket.socket()
        one.bind((first, 0))
        try:
            return one, socket.create_server((second, one.getsockname()[1]))
        except OSError as error:
            one.close()
            if error.errno != errno.EADDRINUSE:
                raise


def test_a_silent_address_does_not_hold_up_the_next(run):
    """RFC 8305 §5: 250 ms of head start, not the whole deadline; the loser's socket is closed."""

    async def scenario() -> Observation:
        silent_one, listener = on_one_port("127.0.0.2", "127.0.0.1")
        with silent_one, socket.socket() as filler:
            silent_one.listen(0)
            filler.connect(silent_one.getsockname())
            port = silent_one.getsockname()[1]

            async def serve(reader, writer):
                await reader.readuntil(b"\r\n\r\n")
                writer.write(OK)
                writer.close()

            server = await asyncio.start_server(serve, sock=listener)
            transport = transport_of(lambda _: ["127.0.0.2", "127.0.0.1"])
            seen = await transport.post(call_to(f"http://two.example:{port}/"))
            await transport.close()
            server.close()
            await server.wait_closed()
            return replace(seen, duration_ms=0)

    assert Observation(status=200) == run(scenario())
