"""What the tests of the transport share: both event loops, and what was handed to a socket."""

from __future__ import annotations

import asyncio

import pytest
import uvloop

from streams.edge.http.connection import Connection


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request):
    """Runs a scenario on each of the two loops that the worker may be started with."""
    factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        yield runner.run


@pytest.fixture
def written(monkeypatch):
    """The requests that were handed to a socket."""
    requests: list[bytes] = []
    send = Connection.send

    def spy(self, request, deadline, wanted):
        exchange = send(self, request, deadline, wanted)
        if exchange is not None:
            requests.append(request)
        return exchange

    monkeypatch.setattr(Connection, "send", spy)
    return requests
