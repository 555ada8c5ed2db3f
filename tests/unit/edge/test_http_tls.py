"""The fault matrix under TLS: real handshakes, real certificates, on both loops.

As in `test_http_faults`, a spy on `Connection.send` says whether a byte was handed over.
"""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime

import pytest
import trustme

from streams.model.faults import fault_of
from streams.model.observation import Observation, Stage
from streams.model.values import replace
from tests.unit.edge.http_peer import OK, Link, Peer, call_to, transport_of

SHORT_MS = 150


CA = trustme.CA()
OTHER_CA = trustme.CA()


def server_context(cert: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    cert.configure_cert(context)
    return context


def client_context(ca: trustme.CA = CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    ca.configure_trust(context)
    return context


async def post_tls(
    context: ssl.SSLContext, *, host: str = "localhost", ca: trustme.CA = CA, end: bytes = OK
) -> Observation:
    """Call a TLS server that answers `end` once, under the name `host`."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(end)
        writer.transport.abort() if not end else writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    transport = transport_of(lambda _: ["127.0.0.1"], ssl_context=client_context(ca))
    seen = await transport.post(call_to(f"https://{host}:{port}/hook", body=b""))
    await transport.close()
    server.close()
    await server.wait_closed()
    return replace(seen, duration_ms=0)


def test_a_call_over_tls_is_answered(run):
    """The certificate is checked against the name, whatever address was dialled (C04)."""
    assert Observation(status=200) == run(post_tls(server_context(CA.issue_cert("localhost"))))


def test_a_call_over_tls_to_an_address_is_checked_against_the_address(run):
    """A certificate may name an IP address; SNI may not, and ssl leaves it out."""
    context = server_context(CA.issue_cert("127.0.0.1"))

    assert Observation(status=200) == run(post_tls(context, host="127.0.0.1"))


@pytest.mark.parametrize(
    ("cert", "host", "ca", "code"),
    [
        (
            CA.issue_cert("localhost", not_after=datetime(2020, 1, 1, tzinfo=UTC)),
            "localhost",
            CA,
            "tls_certificate_expired",
        ),
        (CA.issue_cert("localhost"), "localhost", OTHER_CA, "tls_certificate_invalid"),
        (CA.issue_cert("other.example"), "localhost", CA, "tls_name_mismatch"),
        (CA.issue_cert("localhost"), "127.0.0.1", CA, "tls_name_mismatch"),
    ],
)
def test_a_bad_certificate_is_before_the_request(run, written, cert, host, ca, code):
    """C-05: expired, untrusted and wrong name are three codes, and no request is written."""
    seen = run(post_tls(server_context(cert), host=host, ca=ca))

    assert Observation(fault=fault_of(code)) == seen
    assert written == []


async def hello_then_reset(link: Link) -> None:
    await link.read()
    link.reset()


async def hello_then_close(link: Link) -> None:
    await link.read()


async def hello_then_plain_http(link: Link) -> None:
    await link.read()
    await link.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    await link.ended()


async def hello_then_alert(link: Link) -> None:
    await link.read()
    await link.send(b"\x15\x03\x03\x00\x02\x02\x28")  # handshake_failure
    await link.ended()


async def hello_then_silence(link: Link) -> None:
    await link.read()
    await link.ended()


@pytest.mark.parametrize(
    ("script", "code"),
    [
        (hello_then_reset, "tls_reset"),
        (hello_then_close, "tls_reset"),
        (hello_then_plain_http, "tls_failed"),
        (hello_then_alert, "tls_failed"),
        (hello_then_silence, "tls_timeout"),
    ],
)
def test_a_broken_handshake_is_before_the_request(run, written, script, code):
    """C-05: the request is written once the handshake is done, not earlier."""

    async def scenario() -> Observation:
        async with Peer(script) as peer:
            url = peer.url.replace("http:", "https:")
            timeout_ms = SHORT_MS if code == "tls_timeout" else 5_000
            transport = transport_of()
            seen = await transport.post(call_to(url, timeout_ms=timeout_ms))
            assert transport._pool.open_connections == 0
            await transport.close()
            return replace(seen, duration_ms=0)

    assert Observation(fault=fault_of(code)) == run(scenario())
    assert written == []


def test_a_loss_of_the_connection_under_tls_is_after_the_request(run, written):
    """C-05: as without TLS."""
    seen = run(post_tls(server_context(CA.issue_cert("localhost")), end=b""))

    assert seen.fault is not None
    assert seen.fault.stage is Stage.READ
    assert len(written) == 1


def test_a_refused_client_certificate_is_after_the_request(run, written):
    """
    C-05: in TLS 1.3 the client is done before the server has judged its certificate; the request is
    out by then.
    """
    context = server_context(CA.issue_cert("localhost"))
    context.verify_mode = ssl.CERT_REQUIRED
    CA.configure_trust(context)

    seen = run(post_tls(context))

    assert seen.fault is not None
    assert not seen.fault.is_before
    assert len(written) == 1
