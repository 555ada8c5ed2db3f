"""`outbox api`: the operator API."""

from __future__ import annotations

import asyncio

import typer
import uvloop

from streams.cli.common import EnvFile, hush_clients, read_settings
from streams.edge.telemetry import configure_logging


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("api", epilog="Example: outbox api --env-file production.env")(api)


def api(env_file: EnvFile = None) -> None:
    """Serve the operator API: what was delivered, what was given up, redrive, targets.

    Who may ask stands in OUTBOX_API_TOKENS or OUTBOX_API_JWKS_URL; with neither, nobody may, and it
    listens on loopback only. Several may run side by side, each with an OUTBOX_WORKER_ID and an
    OUTBOX_DATA_DIR of its own. SIGTERM ends it; exit 0.
    """
    hush_clients()
    settings = read_settings(env_file)
    # Half a second to import, which no other command should pay for.
    from streams.cli.api_service import listening, run  # noqa: PLC0415

    configure_logging(level=settings.log_level, as_json=settings.log_format == "json")
    listen = listening(settings)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(settings, listen))
