"""Nothing forbidden is dialled: seen from the other side, by listeners on the forbidden addresses."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_network

import pytest

from streams.edge.addresses import Resolver
from streams.edge.http.call import Call, Limits
from streams.edge.http.transport import Transport
from streams.errors import TargetError
from streams.model.observation import Stage
from streams.rules.addresses import admit_url, parse_url
from tests.unit.rules.test_addresses import HOSTILE_URLS

NAMES = ["127.0.0.1", "::1", "0.0.0.0", "::ffff:127.0.0.1", "127.8.9.10"]  # noqa: S104  # refused
"""What a name of the attacker's own may be said to be."""


class Ears:
    """Listens on every address of this machine, and counts who comes."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.came = 0


@asynccontextmanager
async def ears() -> AsyncIterator[Ears]:
    """Both families on one free port."""
    six = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    six.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    six.bind(("::", 0))
    heard = Ears(six.getsockname()[1])

    def came(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.came += 1
        writer.close()

    async with await asyncio.start_server(came, sock=six):
        yield heard


def at_port(url: str, port: int) -> str:
    """The same URL at the port that is listened on, where it has an authority at all."""
    return re.sub(r"^(https?://[^/?#]*?)(:\d+)?(?=[/?#]|$)", rf"\g<1>:{port}", url, count=1)


async def dial(url: str, resolver: Resolver) -> Stage | None:
    """Call it as an engine would that forgot to admit it; the stage in which that ended."""
    transport = Transport(resolver=resolver)
    call = Call(
        target="t",
        url=parse_url(url),
        headers=(),
        body=b"{}",
        timeout_ms=2_000,
        limits=Limits(),
    )
    try:
        seen = await transport.post(call)
    finally:
        await transport.close()
    return None if seen.fault is None else seen.fault.stage


async def test_no_hostile_url_is_dialled():
    """
    C-10: each is refused when it is read, or when its addresses are judged; a listener hears nobody.
    """
    async with ears() as heard:
        resolver = Resolver(allowed_networks=())
        for url in HOSTILE_URLS:
            there = at_port(url, heard.port)
            with pytest.raises(TargetError):
                admit_url(url, ())
            try:
                parse_url(there)
            except TargetError:
                continue
            assert await dial(there, resolver) in (Stage.ADDRESS, Stage.NAME)

        assert 0 == heard.came


@pytest.mark.parametrize("address", NAMES)
async def test_no_name_leads_to_a_forbidden_address(address):
    """C-10, field case C04: a name is judged by what it resolves to, and only that is dialled."""
    async with ears() as heard:
        resolver = Resolver(allowed_networks=(), lookup=lambda _: [address])

        stage = await dial(f"http://inbox.example:{heard.port}/inbox", resolver)

        assert (Stage.ADDRESS, 0) == (stage, heard.came)


async def test_the_listener_would_have_heard():
    """Or the tests above could not fail."""
    async with ears() as heard:
        allowed = Resolver(allowed_networks=(ip_network("127.0.0.0/8"),))

        await dial(f"http://127.0.0.1:{heard.port}/inbox", allowed)

        assert 1 == heard.came
