"""A target's own TLS files, over real handshakes; and HTTP/2 with them."""

from __future__ import annotations

import asyncio
import ssl
from ipaddress import ip_network

import pytest
import trustme
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived, StreamEnded

from streams.edge.addresses import Resolver
from streams.edge.client_tls import client_context
from streams.edge.http.call import Call, Limits
from streams.engine.outfit import Outfitter
from streams.model.policy import NOTIFICATION
from streams.model.target import Target, Tls
from streams.model.values import replace
from tests.unit.edge.http_peer import OK, Peer, call_to, serving, transport_of
from tests.unit.engine.fakes import Time

CA = trustme.CA()
SERVER = CA.issue_cert("127.0.0.1")


@pytest.fixture
def files(tmp_path):
    """Paths of our certificate, its key and the authority, in PEM."""
    ours = CA.issue_cert("worker.example")
    CA.cert_pem.write_to_path(tmp_path / "ca.pem")
    ours.private_key_pem.write_to_path(tmp_path / "our.key")
    for blob in ours.cert_chain_pems:
        blob.write_to_path(tmp_path / "our.pem", append=True)
    return Tls(
        cert_file=f"{tmp_path}/our.pem",
        key_file=f"{tmp_path}/our.key",
        ca_file=f"{tmp_path}/ca.pem",
    )


def server_context(*alpn: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    SERVER.configure_cert(context)
    CA.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    if alpn:
        context.set_alpn_protocols(list(alpn))
    return context


async def answer_over_tls(reader, writer):
    """Read one small request, answer it."""
    await reader.readuntil(b"}")
    writer.write(OK)
    await writer.drain()
    writer.close()


async def test_our_certificate_is_shown_and_the_targets_is_checked_by_its_authority(files):
    """
    Issue 5: client certificate and CA of a target.
    """
    server = await asyncio.start_server(
        answer_over_tls, "127.0.0.1", 0, ssl=server_context("http/1.1")
    )
    port = server.sockets[0].getsockname()[1]
    transport = transport_of()
    async with server:
        call = call_to(f"https://127.0.0.1:{port}/", ssl_context=client_context(files))
        seen = await transport.post(call)
        await transport.close()

    assert 200 == seen.status


async def test_without_the_authority_the_target_is_not_trusted(files):
    server = await asyncio.start_server(answer_over_tls, "127.0.0.1", 0, ssl=server_context())
    port = server.sockets[0].getsockname()[1]
    transport = transport_of()
    async with server:
        context = client_context(replace(files, ca_file=""))
        seen = await transport.post(call_to(f"https://127.0.0.1:{port}/", ssl_context=context))
        await transport.close()

    assert "tls_certificate_invalid" == seen.fault.code


class H2Server(asyncio.Protocol):
    """Answers 202 to each request, and notes it."""

    def __init__(self, requests):
        self.requests = requests
        self.connection = H2Connection(H2Configuration(client_side=False, header_encoding=None))
        self.bodies = {}
        self.heads = {}

    def connection_made(self, transport):
        self.transport = transport
        self.connection.initiate_connection()
        transport.write(self.connection.data_to_send())

    def data_received(self, data):
        for event in self.connection.receive_data(data):
            match event:
                case RequestReceived():
                    self.heads[event.stream_id] = dict(event.headers)
                    self.bodies[event.stream_id] = b""
                case DataReceived():
                    self.bodies[event.stream_id] += event.data
                case StreamEnded():
                    stream = event.stream_id
                    self.requests.append((self.heads[stream], self.bodies[stream]))
                    self.connection.send_headers(stream, [(b":status", b"202")], end_stream=True)
        self.transport.write(self.connection.data_to_send())


@pytest.fixture
def outfitter():
    resolver = Resolver(allowed_networks=[ip_network("127.0.0.0/8")])
    return Outfitter(transport_of(), resolver, Time())


def target(url, **fields):
    return Target(
        key="crm", tenant="default", url=url, idempotent=True, policy=NOTIFICATION, **fields
    )


def call_with(outfit):
    return Call(
        target=outfit.pool_key,
        url=outfit.url,
        headers=((b"content-type", b"application/json"), *outfit.headers),
        body=b'{"id":1}',
        timeout_ms=5_000,
        limits=Limits(),
        ssl_context=outfit.ssl_context,
    )


async def test_a_target_that_speaks_http2_is_called_over_it(files, outfitter):
    """
    Issue 5: HTTP/2 as a per-target option, with its own TLS files.
    """
    requests: list[tuple[dict[bytes, bytes], bytes]] = []
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: H2Server(requests), "127.0.0.1", 0, ssl=server_context("h2")
    )
    port = server.sockets[0].getsockname()[1]
    async with server:
        found = await outfitter.equip(
            "default/crm", target(f"https://127.0.0.1:{port}/hook", tls=files, http2=True)
        )
        seen = await found.outfit.poster.post(call_with(found.outfit))
        await found.outfit.poster.close()

    assert 202 == seen.status
    [(head, body)] = requests
    assert (b"POST", b"/hook", b"application/json", b'{"id":1}') == (
        head[b":method"],
        head[b":path"],
        head[b"content-type"],
        body,
    )


async def test_a_target_without_tls_is_called_over_http1(outfitter):
    """
    HTTP/2 is agreed on within TLS; over plain TCP nothing says that the target speaks it.
    """
    async with Peer(serving(OK)) as peer:
        found = await outfitter.equip("default/crm", target(peer.url, http2=True))
        seen = await found.outfit.poster.post(call_with(found.outfit))
        await found.outfit.poster.close()

    assert 200 == seen.status
