"""What a failed call leaves behind holds nothing of its destination (F08)."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trustme

from streams.model.activity import Recipient
from streams.model.observation import Observation
from streams.model.values import replace
from streams.wire.codec import encode_dead_letter
from tests.field.answers import status, tell
from tests.field.desk import Scripted, activity_for, desk_of, target_of
from tests.unit.edge.http_peer import (
    Peer,
    answering,
    serving,
)

FAKE = "api_key=FAKEEX0001"


@asynccontextmanager
async def untrusted() -> AsyncIterator[str]:
    """A TLS server whose certificate nobody signed that we trust; its URL."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    server = await asyncio.start_server(lambda _r, w: w.close(), "127.0.0.1", 0, ssl=context)
    yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/h"
    server.close()


@asynccontextmanager
async def gone() -> AsyncIterator[str]:
    """A port at which nobody listens any more."""
    async with Peer(serving()) as peer:
        url = peer.url
    yield url


@asynccontextmanager
async def closing() -> AsyncIterator[str]:
    """A peer that closes before a reply."""
    async with Peer(answering(b"")) as peer:
        yield peer.url


@asynccontextmanager
async def refusing() -> AsyncIterator[str]:
    """A peer that answers 401."""
    async with Peer(serving(status(401))) as peer:
        yield peer.url


@pytest.mark.parametrize(
    ("place", "code"),
    [
        (closing, "read_closed"),
        (gone, "connect_refused"),
        (untrusted, "tls_certificate_invalid"),
        (refusing, "http_401"),
    ],
)
async def test_f08_no_failure_repeats_the_url(monkeypatch, place, code):
    """
    F08, D-043: neither row nor dead letter, log line or metric knows more than the code.
    """
    async with place() as url:
        once = replace(target_of().policy, max_attempts=1)
        told = await tell(monkeypatch, serving(), url=f"{url}?{FAKE}", policy=once)

    assert code == told.row.cause
    assert "FAKEEX0001" not in told.shown + repr(told.row) + told.summary
    assert b"FAKEEX0001" not in told.letter


async def test_f08_an_inbox_that_is_the_credential_is_shown_by_its_host(monkeypatch):
    """
    F08, F07: an inbox URL is its delivery's identity; dead letter and lines show a template of it.
    """
    inbox = f"https://b.example/hooks/FAKEEX0001?{FAKE}"
    target = target_of(inbox, key=inbox)
    caller = Scripted(anyone=[Observation(status=401)])
    async with desk_of(monkeypatch, caller, anyone=target) as desk:
        activity = activity_for(Recipient(inbox=inbox))
        await desk.deliver(activity)
        letter = desk.letter(activity)
        assert letter is not None
        desk.teller.exhausted(letter)
        shown = desk.shown()

    assert "https://b.example/hooks/" in shown
    assert "FAKEEX0001" not in shown
    assert b"FAKEEX0001" not in encode_dead_letter(letter)
