"""CPU of one call through our transport, beside aiohttp's bare loop, in ratios.

    .venv/bin/python tests/bench/transport.py [--requests 20000] [--in-flight 64]

A minimal server runs in a process of its own; what is printed is this process's CPU time per call
at 64 in flight and a body of 550 bytes, on uvloop and on asyncio's own loop (design.md §6).
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import time
from collections.abc import Awaitable, Callable
from ipaddress import ip_network
from multiprocessing.connection import Connection as Pipe
from typing import Final, cast

import aiohttp
import uvloop

from streams.edge.addresses import Resolver
from streams.edge.http.call import Call, Limits
from streams.edge.http.transport import Transport
from streams.rules.addresses import parse_url

BODY: Final = b"x" * 550
ANSWER: Final = (
    b"HTTP/1.1 202 Accepted\r\nDate: Mon, 30 Nov 2026 10:00:00 GMT\r\nServer: minimal\r\n"
    b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
)
HEADERS: Final = {
    "content-type": "application/activity+json",
    "webhook-id": "0123456789abcdef0123456789abcdef-1",
    "idempotency-key": "0123456789abcdef0123456789abcdef-1",
    "webhook-timestamp": "1796000000",
    "outbox-attempt": "1",
    "user-agent": "outbox/0.1",
}

Calls = Callable[[str, int, int], Awaitable[None]]


class MinimalServer(asyncio.Protocol):
    """Answers every request that arrives in one or more segments; parses nothing but its end."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.tail = b""

    def data_received(self, data: bytes) -> None:
        self.tail += data
        if self.tail.endswith(BODY):
            self.tail = b""
            self.transport.write(ANSWER)


async def serve(ready: Pipe) -> None:
    server = await asyncio.get_running_loop().create_server(MinimalServer, "127.0.0.1", 0)
    ready.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def run_server(ready: Pipe) -> None:
    uvloop.run(serve(ready))


async def ours(url: str, requests: int, in_flight: int) -> None:
    allowed = (ip_network("127.0.0.0/8"),)
    transport = Transport(resolver=Resolver(allowed_networks=allowed))
    call = Call(
        target="bench",
        url=parse_url(url),
        headers=[(name.encode(), value.encode()) for name, value in HEADERS.items()],
        body=BODY,
        timeout_ms=30_000,
        limits=Limits(max_connections=in_flight, max_idle=in_flight),
    )

    async def caller() -> None:
        for _ in range(requests // in_flight):
            seen = await transport.post(call)
            assert seen.status == 202

    await asyncio.gather(*(caller() for _ in range(in_flight)))
    await transport.close()


async def aiohttps(url: str, requests: int, in_flight: int) -> None:
    connector = aiohttp.TCPConnector(limit=in_flight)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def caller() -> None:
            for _ in range(requests // in_flight):
                async with session.post(url, data=BODY, headers=HEADERS) as answer:
                    await answer.read()
                    assert answer.status == 202

        await asyncio.gather(*(caller() for _ in range(in_flight)))


def cpu_us(calls: Calls, url: str, requests: int, in_flight: int, *, loop: str) -> float:
    """Microseconds of this process's CPU per request, after a warm-up of a tenth."""
    factory = uvloop.new_event_loop if loop == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:

        async def measured() -> float:
            await calls(url, requests // 10, in_flight)
            started = time.process_time()
            await calls(url, requests, in_flight)
            return (time.process_time() - started) / requests * 1e6

        return runner.run(measured())


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--requests", type=int, default=20_000)
    arguments.add_argument("--in-flight", type=int, default=64)
    chosen = arguments.parse_args()
    ready, far = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=run_server, args=(far,))
    server.start()
    try:
        url = f"http://127.0.0.1:{ready.recv()}/hook"
        for loop in ("uvloop", "asyncio"):
            rounds = [
                (
                    cpu_us(ours, url, chosen.requests, chosen.in_flight, loop=loop),
                    cpu_us(aiohttps, url, chosen.requests, chosen.in_flight, loop=loop),
                )
                for _ in range(3)
            ]
            own, other = (min(column) for column in zip(*rounds, strict=True))
            print(f"transport_{loop}_cpu_us={own:.1f}")
            print(f"aiohttp_{loop}_cpu_us={other:.1f}")
            print(f"transport_{loop}_to_aiohttp={own / other:.3f}")
    finally:
        server.terminate()
        server.join()


if __name__ == "__main__":
    main()
