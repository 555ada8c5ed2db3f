"""`outbox topics`: what the cluster must have before a worker can run."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Annotated

import typer

from streams import topics
from streams.cli.common import AsJson, EnvFile, Exit, hush_clients, read_settings, show


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    group = typer.Typer(no_args_is_help=True, help="The topics that the product needs.")
    group.command("apply", epilog="Example: outbox topics apply --dry-run")(apply)
    group.command("check", epilog="Example: outbox topics check --json")(check)
    app.add_typer(group, name="topics")


def apply(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be done.")
    ] = False,
    env_file: EnvFile = None,
    as_json: AsJson = False,
) -> None:
    """Create the topics that are missing and report what differs. Never deletes, never alters."""
    hush_clients()
    changes = asyncio.run(topics.apply(read_settings(env_file), dry_run=dry_run))
    lines = [f"{change.action} {change.topic}: {change.detail}" for change in changes]
    show([asdict(c) for c in changes], lines or ["nothing to do"], as_json=as_json)


def check(env_file: EnvFile = None, as_json: AsJson = False) -> None:
    """Say what keeps a worker from running on these topics and what to do; exit 1 if anything."""
    hush_clients()
    problems = asyncio.run(topics.check(read_settings(env_file)))
    lines = [f"{problem.topic} {problem.what}: {problem.remedy}" for problem in problems]
    show([asdict(p) for p in problems], lines or ["all topics are as needed"], as_json=as_json)
    if problems:
        raise typer.Exit(Exit.FAILED)
