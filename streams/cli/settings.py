"""`outbox settings`: every setting, where it comes from and what it means."""

from __future__ import annotations

from dataclasses import asdict

import typer

from streams.cli.common import AsJson, EnvFile, read_settings, show
from streams.settings import Setting


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("settings", epilog="Example: outbox settings --env-file prod.env")(settings)


def settings(env_file: EnvFile = None, as_json: AsJson = False) -> None:
    """Print every setting with value, source and meaning; secrets are masked.

    Exit 2, with a line for each broken rule, where the settings are not valid together.
    """
    rows = read_settings(env_file).describe()
    show([asdict(row) for row in rows], _lines(rows), as_json=as_json)


def _lines(rows: list[Setting]) -> list[str]:
    """The rows as aligned text, `NAME=value` first, so that one can grep them."""
    shown = [f"{row.name}={row.value}" for row in rows]
    width = min(max(map(len, shown)), 56)
    return [
        f"{text:<{width}}  {row.source:<11}  {row.meaning}"
        for text, row in zip(shown, rows, strict=True)
    ]
