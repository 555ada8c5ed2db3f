"""`outbox worker`."""

from __future__ import annotations

import typer

from streams.cli import common


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("worker")(worker)


def worker(env_file: common.EnvFile = None) -> None:
    """Run the faust worker: deliver what is produced to the outbox topic.

    SIGTERM stops it cleanly: no new claims, calls in flight are waited for (OUTBOX_DRAIN_MS), then it
    leaves the group and exits 0. A second SIGTERM does not wait.

    Example: OUTBOX_BROKERS=127.0.0.1:9092 OUTBOX_WORKER_ID=worker-0 outbox worker
    """
    settings = common.read_settings(env_file)
    # faust takes 0.8 s to import, which no other command should pay for.
    from streams.app import run_worker  # noqa: PLC0415
    from streams.edge.telemetry import configure_logging  # noqa: PLC0415

    configure_logging(level=settings.log_level, as_json=settings.log_format == "json")
    raise SystemExit(run_worker(settings))
