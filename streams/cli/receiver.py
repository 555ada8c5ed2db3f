"""`outbox receiver`: a place to deliver to, on this machine, that behaves as the path says."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Annotated

import typer
import uvloop

from streams.cli.common import AsJson, Exit, complain, show
from streams.edge.receiver import Receiver

_EXAMPLE = """Example: outbox receiver --port 9000 --log calls.jsonl

Then deliver to http://127.0.0.1:9000/ok, /status/503, /flaky/2 (fails twice), /slow/1500 (ms),
/hang, /reset, /close, /retry-after/20 (429 once), /redirect, /drip/100, /big/100000, /garbage.
Anything may follow: /ok/users/al/inbox."""


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("receiver", epilog=_EXAMPLE)(receiver)


def receiver(
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 picks a free one.")] = 0,
    log: Annotated[
        Path | None,
        typer.Option(
            help="Add one JSON line a call to this file; - prints it.",
            dir_okay=False,
            allow_dash=True,
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    as_json: AsJson = False,
) -> None:
    """Receive calls and answer each as its path says, until SIGTERM or SIGINT."""
    place = Receiver(host=host, port=port, log=log, keeps_calls=False)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(place, as_json=as_json))
    except OSError as error:
        complain(f"cannot listen on {host}:{port}, or write the log: {error.strerror}")
        raise SystemExit(Exit.FAILED) from error


async def _serve(place: Receiver, *, as_json: bool) -> None:
    asked_to_end = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked_to_end.set)
    async with place:
        address = f"{place.host}:{place.port}"
        show({"listening": address}, [f"listening={address}"], as_json=as_json)
        await asked_to_end.wait()
