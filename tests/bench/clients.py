"""The floor under every call: a bare client loop in a process of its own, no Kafka, no ledger.

    .venv/bin/python -m tests.bench.clients ours|aiohttp URL [--requests 20000] [--in-flight 64]

`ours` is the product's transport, `aiohttp` what most people use. Prints one line of JSON: the
process's CPU per call after a warm-up of a tenth, and the calls per second. The loop is uvloop.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Final

import aiohttp
import uvloop

from streams.edge.addresses import Resolver
from streams.edge.http.call import Call, Limits
from streams.edge.http.transport import Transport
from streams.rules.addresses import parse_url
from tests.bench.children import START_S, clean_environment
from tests.bench.proc import BenchError

BODY: Final = b"x" * 550
HEADERS: Final = {
    "content-type": "application/activity+json",
    "webhook-id": "dlv_0123456789abcdef0123456789abcdef-1",
    "idempotency-key": "dlv_0123456789abcdef0123456789abcdef-1",
    "webhook-timestamp": "1796000000",
    "webhook-signature": "v1,0123456789abcdefABCDEF0123456789abcdefABCDE=",
    "outbox-attempt": "1",
    "user-agent": "outbox/1",
}
"""As many and as long as the product's own (interface.md §4)."""

Calls = Callable[[str, int, int], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """What a bare loop cost.

    Attributes:
        cpu_us: CPU of the client's process per call.
        per_s: Calls per second.
    """

    cpu_us: float
    per_s: float


async def bare_loop(client: str, url: str, *, requests: int, in_flight: int = 64) -> Loop:
    """Run one of the loops in a process of its own.

    Raises:
        BenchError: it failed or hangs.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.bench.clients", client, url),
        *("--requests", str(requests), "--in-flight", str(in_flight)),
        env=clean_environment(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), START_S + requests / 200)
    except (TimeoutError, asyncio.CancelledError) as error:
        process.kill()
        await process.wait()
        if isinstance(error, asyncio.CancelledError):
            raise
        raise BenchError(f"the bare {client} loop hangs") from error
    if process.returncode != 0:
        raise BenchError(f"the bare {client} loop failed:\n{err.decode(errors='replace')[-1_000:]}")
    return Loop(**json.loads(out))


async def ours(url: str, requests: int, in_flight: int) -> None:
    """The product's transport, and nothing around it."""
    transport = Transport(resolver=Resolver(allowed_networks=(ip_network("127.0.0.0/8"),)))
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
            assert seen.status == 200, seen

    await asyncio.gather(*(caller() for _ in range(in_flight)))
    await transport.close()


async def aiohttps(url: str, requests: int, in_flight: int) -> None:
    """aiohttp's client, and nothing around it."""
    connector = aiohttp.TCPConnector(limit=in_flight)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def caller() -> None:
            for _ in range(requests // in_flight):
                async with session.post(url, data=BODY, headers=HEADERS) as answer:
                    await answer.read()
                    assert answer.status == 200, answer.status

        await asyncio.gather(*(caller() for _ in range(in_flight)))


async def measured(calls: Calls, url: str, requests: int, in_flight: int) -> Loop:
    """CPU and rate of a loop in this process."""
    await calls(url, max(in_flight, requests // 10), in_flight)
    made = requests // in_flight * in_flight
    cpu, began = time.process_time(), time.perf_counter()
    await calls(url, made, in_flight)
    wall = time.perf_counter() - began
    return Loop(cpu_us=(time.process_time() - cpu) / made * 1e6, per_s=made / wall)


def main() -> None:
    """Read the command line, run the loop, print what it cost."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("client", choices=("ours", "aiohttp"))
    arguments.add_argument("url")
    arguments.add_argument("--requests", type=int, default=20_000)
    arguments.add_argument("--in-flight", type=int, default=64)
    chosen = arguments.parse_args()
    calls = ours if chosen.client == "ours" else aiohttps
    requests = max(chosen.requests, chosen.in_flight)
    cost = uvloop.run(measured(calls, chosen.url, requests, chosen.in_flight))
    print(json.dumps({"cpu_us": cost.cpu_us, "per_s": cost.per_s}))


if __name__ == "__main__":
    main()
