"""The fault matrix on raw sockets, on asyncio's loop and on uvloop (TLS: `test_http_tls`).

Two claims hold over every row (C-05): a request of which a byte may have left is never called
"before", and a call that never wrote is never called ambiguous. What was written is not guessed: a
spy on `Connection.send` says so.
"""

from __future__ import annotations

import asyncio
import errno
import socket

import pytest

from streams.edge.http import dial
from streams.edge.http import transport as transport_module
from streams.model.faults import FAULTS, fault_of
from streams.model.observation import Observation, Stage
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

LARGE = b"x" * 8_000_000
SHORT_MS = 150


async def close_unread(link: Link) -> None:
    await link.read()


async def reset_unread(link: Link) -> None:
    await link.read()
    link.reset()


async def read_nothing(link: Link) -> None:
    await asyncio.Event().wait()


async def reset_after_part(link: Link) -> None:
    await link.read()
    await asyncio.sleep(0.02)
    link.reset()


async def endless_headers(link: Link) -> None:
    await link.request()
    await link.send(b"HTTP/1.1 200 OK\r\n")
    while True:
        await link.send(b"X-More: and more\r\n" * 100)


async def endless_header(link: Link) -> None:
    await link.request()
    await link.send(b"HTTP/1.1 200 OK\r\nX-More: ")
    while True:
        await link.send(b"and more" * 100)


async def head_dripping(link: Link) -> None:
    await link.request()
    while True:
        await link.drip(b"HTTP/1.1 200 OK\r\n" + b"X-More: and more\r\n" * 1_000)


INTERIM = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"

AFTER: dict[str, tuple[Script, str, dict[str, object]]] = {
    "reset after the request": (ending(b"", reset=True), "read_reset", {}),
    "closed after the request": (answering(b""), "read_closed", {}),
    "closed with nothing read back": (close_unread, "read_closed", {}),
    "reset once the request arrived": (reset_unread, "read_reset", {}),
    "no answer": (silent, "read_timeout", {"timeout_ms": SHORT_MS}),
    "half a status line, closed": (answering(b"HTTP/1.1 20"), "protocol_truncated", {}),
    "half a status line, reset": (ending(b"HTTP/1.1 20", reset=True), "read_reset", {}),
    "half a prefix, closed": (answering(b"HT"), "protocol_truncated", {}),
    "half a head, closed": (
        answering(b"HTTP/1.1 200 OK\r\nContent-Le"),
        "protocol_truncated",
        {},
    ),
    "half a head, silence": (
        ending(b"HTTP/1.1 200 OK\r\nContent-Le"),
        "read_timeout",
        {"timeout_ms": SHORT_MS},
    ),
    "head in a slow drip": (head_dripping, "read_timeout", {"timeout_ms": SHORT_MS}),
    "endless headers": (endless_headers, "protocol_headers_too_large", {}),
    "endless header": (endless_header, "protocol_headers_too_large", {}),
    "one large head": (
        ending(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 65_536 + b"\r\n\r\n"),
        "protocol_headers_too_large",
        {},
    ),
    "storm of interim answers": (ending(INTERIM * 17), "protocol_interim_storm", {}),
    "interim answer, closed": (answering(INTERIM), "protocol_truncated", {}),
    "interim answer, then HTTP/2": (
        ending(INTERIM + b"HTTP/2.0 200 OK\r\n\r\n"),
        "protocol_malformed",
        {},
    ),
    "switching protocols": (
        ending(b"HTTP/1.1 101 X\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n"),
        "protocol_switched",
        {},
    ),
    "switching to nothing": (ending(b"HTTP/1.1 101 X\r\n\r\n"), "protocol_switched", {}),
    "HTTP/0.9": (ending(b"<html>200 OK</html>"), "protocol_malformed", {}),
    "HTTP/0.9 by name": (ending(b"HTTP/0.9 200 OK\r\n\r\n"), "protocol_malformed", {}),
    "HTTP/2 by name": (ending(b"HTTP/2.0 200 OK\r\n\r\n"), "protocol_malformed", {}),
    "RTSP": (ending(b"RTSP/1.0 200 OK\r\n\r\n"), "protocol_malformed", {}),
    "ICE": (ending(b"ICE/1.0 200 OK\r\n\r\n"), "protocol_malformed", {}),
    "garbage": (ending(b"\x00\xff\x15\x03\x01"), "protocol_malformed", {}),
    "blank lines first": (ending(b"\r\n\r\n" + OK), "protocol_malformed", {}),
    "status of two digits": (ending(b"HTTP/1.1 20 OK\r\n\r\n"), "protocol_malformed", {}),
    "status 000": (ending(b"HTTP/1.1 000 OK\r\n\r\n"), "protocol_malformed", {}),
    "status 999": (ending(b"HTTP/1.1 999 OK\r\n\r\n"), "protocol_malformed", {}),
    "header without a colon": (ending(b"HTTP/1.1 200 OK\r\nx\r\n\r\n"), "protocol_malformed", {}),
    "two lengths": (
        ending(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok"),
        "protocol_malformed",
        {},
    ),
    "length and chunks": (
        ending(b"HTTP/1.1 200 X\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"),
        "protocol_malformed",
        {},
    ),
    "length is no number": (
        ending(b"HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\nok"),
        "protocol_malformed",
        {},
    ),
    "large body, reset while writing": (reset_after_part, "write_failed", {"body": LARGE}),
    "large body, never read": (
        read_nothing,
        "write_timeout",
        {"body": LARGE, "timeout_ms": SHORT_MS},
    ),
}


@pytest.mark.parametrize("case", AFTER)
def test_a_fault_after_the_request_is_never_called_before(run, written, case):
    """
    C-05, D-010: a request of which a byte may have left has an unknown effect, whatever came back.
    """
    script, code, changes = AFTER[case]

    async def scenario() -> Observation:
        async with Peer(script) as peer:
            return await post_once(peer, **changes)

    assert Observation(fault=fault_of(code)) == run(scenario())
    assert len(written) == 1
    assert not fault_of(code).is_before


def test_a_refused_connection_is_before_the_request(run, written):
    """C-05, field case B19: nobody listens, so nobody was told."""

    async def scenario() -> Observation:
        async with Peer(silent) as peer:
            pass
        return await post_once(peer)

    assert Observation(fault=fault_of("connect_refused")) == run(scenario())
    assert written == []


def test_a_blackholed_connection_is_before_the_request(run, written):
    """
    C-05, field case B19: no answer to the SYN. A full backlog on loopback drops it as a firewall
    does.
    """

    async def scenario() -> Observation:
        with socket.socket() as listener, socket.socket() as filler:
            listener.bind(("127.0.0.1", 0))
            listener.listen(0)
            filler.connect(listener.getsockname())
            transport = transport_of()
            url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
            seen = await transport.post(call_to(url, timeout_ms=SHORT_MS))
            assert transport._pool.open_connections == 0
            await transport.close()
            return seen

    assert run(scenario()).fault == fault_of("connect_timeout")
    assert written == []


def test_a_connection_that_nobody_accepts_and_then_resets_is_after(run, written):
    """
    C-05: the kernel takes the request before any program accepts. That it was never read cannot be
    proved from here.
    """

    async def scenario() -> Observation:
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen(5)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        transport = transport_of()
        call = asyncio.create_task(transport.post(call_to(url)))
        await until(lambda: len(written) == 1)
        listener.close()
        seen = await call
        await transport.close()
        return seen

    assert run(scenario()).fault == fault_of("read_reset")


@pytest.mark.parametrize("how", ["closed", "reset", "spoke"])
def test_a_connection_that_ends_before_the_request_is_written_is_before(
    run, written, monkeypatch, how
):
    """
    C-05: the socket is asked once more before the first byte is handed over; what the loop has not
    read yet is seen, and nothing is written.
    """

    async def scenario() -> Observation:
        peer_ready = asyncio.Event()

        async def script(link: Link) -> None:
            if how == "reset":
                link.reset()
            elif how == "spoke":
                await link.send(b"SSH-2.0-OpenSSH_9.9\r\n")
                peer_ready.set()
                await link.ended()
            else:
                link.sock.close()
            peer_ready.set()

        connect = dial.connect

        async def connect_then_wait(addresses):
            sock = await connect(addresses)
            await peer_ready.wait()
            return sock

        monkeypatch.setattr(transport_module, "connect", connect_then_wait)
        async with Peer(script) as peer:
            return await post_once(peer)

    assert Observation(fault=fault_of("connect_closed")) == run(scenario())
    assert written == []


@pytest.mark.parametrize("reset", [False, True])
def test_a_peer_that_ends_at_once_is_called_by_what_was_written(run, written, reset):
    """
    C-05: which of the two sides is faster is chance; the verdict follows our own writing, never the
    peer's intent.
    """

    async def script(link: Link) -> None:
        if reset:
            link.reset()

    async def scenario() -> Observation:
        async with Peer(script) as peer:
            return await post_once(peer)

    seen = run(scenario())

    assert seen.fault is not None
    assert seen.fault.is_before is (written == [])


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ECONNREFUSED, "connect_refused"),
        (errno.ETIMEDOUT, "connect_timeout"),
        (errno.EHOSTUNREACH, "connect_unreachable"),
        (errno.ENETUNREACH, "connect_unreachable"),
        (errno.ECONNRESET, "connect_reset"),
        (errno.EMFILE, "connect_failed"),
        (errno.EADDRNOTAVAIL, "connect_failed"),
    ],
)
def test_each_error_of_connect_has_its_code(run, written, monkeypatch, number, code):
    """C-05, field case B19: 0 connect failures are called ambiguous."""

    async def failing(addresses):
        raise OSError(number, "")

    async def scenario() -> Observation:
        monkeypatch.setattr(transport_module, "connect", failing)
        async with Peer(silent) as peer:
            return await post_once(peer)

    assert Observation(fault=fault_of(code)) == run(scenario())
    assert fault_of(code).is_before
    assert written == []


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (socket.gaierror(socket.EAI_NONAME, ""), "name_not_found"),
        (socket.gaierror(socket.EAI_AGAIN, ""), "name_temporary"),
        (["10.0.0.5"], "address_forbidden"),
    ],
)
def test_a_name_that_leads_nowhere_is_before_the_request(run, written, answer, code):
    """C-05, C-10, field case B19: each has its own code, and nothing is dialled."""

    def lookup(host):
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def scenario() -> Observation:
        transport = transport_of(lookup)
        seen = await transport.post(call_to("http://some.example/"))
        assert transport._pool.open_connections == 0
        await transport.close()
        return replace(seen, duration_ms=0)

    assert Observation(fault=fault_of(code)) == run(scenario())
    assert written == []


def test_a_name_that_takes_too_long_is_before_the_request(run, written, monkeypatch):
    """The deadline covers the look-up as well, and the code names it."""

    async def scenario() -> Observation:
        transport = transport_of()

        async def never(*_):
            await asyncio.Event().wait()

        monkeypatch.setattr(transport._resolver, "resolve", never)
        seen = await transport.post(call_to("http://some.example/", timeout_ms=SHORT_MS))
        await transport.close()
        return seen

    assert run(scenario()).fault == fault_of("name_timeout")
    assert written == []


def test_a_forbidden_address_is_not_dialled(run, written):
    """C-10: checked at the socket, with a listener on the forbidden address."""

    async def scenario() -> tuple[Observation, int]:
        async with Peer(serving()) as peer:
            transport = transport_of()
            transport._resolver._allowed_networks = ()
            seen = await transport.post(call_to(peer.url))
            await transport.close()
            return seen, peer.connections

    seen, connections = run(scenario())

    assert fault_of("address_forbidden") == seen.fault
    assert connections == 0


# ── Used connections ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("reset", [False, True])
def test_a_used_connection_that_ends_right_after_the_write_is_no_safe_retry(run, written, reset):
    """
    C-05, issue 5: the peer may have read the request before it closed. Other clients repeat it.
    """

    async def script(link: Link) -> None:
        await link.request()
        await link.send(OK)
        await link.request()
        if reset:
            link.reset()

    async def scenario() -> tuple[Observation, int]:
        async with Peer(script) as peer:
            transport = transport_of()
            await transport.post(call_to(peer.url))
            seen = await transport.post(call_to(peer.url))
            await transport.close()
            return replace(seen, duration_ms=0), peer.connections

    assert (Observation(fault=fault_of("stale_connection")), 1) == run(scenario())
    assert not fault_of("stale_connection").is_before


def test_a_connection_that_was_closed_while_idle_is_no_fault(run, written):
    """The close was seen before the write: another connection is taken, nothing is lost."""

    async def scenario() -> tuple[Observation, int, int]:
        async with Peer(answering(OK), serving()) as peer:
            transport = transport_of()
            await transport.post(call_to(peer.url))
            await until(lambda: transport._pool.open_connections == 0)
            seen = await transport.post(call_to(peer.url))
            await transport.close()
            return replace(seen, duration_ms=0), peer.connections, len(peer.requests)

    assert (Observation(status=200), 2, 2) == run(scenario())


def test_a_close_that_the_loop_has_not_seen_yet_is_found_on_a_long_idle_connection(run, written):
    """
    The socket itself is asked after a second of idleness; a request written into that close would
    be ambiguous for nothing.
    """

    async def scenario() -> tuple[Observation, int]:
        async with Peer(serving()) as peer:
            transport = transport_of()
            await transport.post(call_to(peer.url))
            lane = transport._pool._lanes["default/crm"]
            lane.idle[0].idle_since -= 2.0
            peer.links[0].sock.shutdown(socket.SHUT_RDWR)
            seen = await transport.post(call_to(peer.url))
            await transport.close()
            return replace(seen, duration_ms=0), len(peer.requests)

    assert (Observation(status=200), 2) == run(scenario())


def test_every_code_belongs_to_the_stage_that_it_names():
    """C-05: `is_before` follows from the code alone, so the table must not contradict itself."""
    prefixes = {"stale": Stage.READ, "request": Stage.ADDRESS}

    wrong = [
        code
        for code, note in FAULTS.items()
        if note.fault.stage is not prefixes.get(code.split("_")[0], note.fault.stage)
        or (code.split("_")[0] not in prefixes and code.split("_")[0] != note.fault.stage.value)
        or note.fault.code != code
        or not note.advice
    ]

    assert wrong == []
