"""What every command shares: settings, JSON, exit codes, and errors in one line."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from streams.errors import SettingsError, StreamsError
from streams.settings import Settings, load


class Exit(IntEnum):
    """Exit codes of every command."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    """Wrong usage or settings; click uses it for wrong options too."""


EnvFile = Annotated[
    Path | None,
    typer.Option("--env-file", help="Settings as NAME=value lines; the environment wins."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


_given_to_outbox: ContextVar[Path | None] = ContextVar("env_file", default=None)


def root(env_file: EnvFile = None) -> None:
    """Deliver activities from Kafka over HTTP. Every command tells more: outbox COMMAND --help."""
    _given_to_outbox.set(env_file)


def read_settings(env_file: Path | None) -> Settings:
    """Load the settings of a command; its own `--env-file` wins over one given to `outbox`.

    A misspelt variable in the environment is told on stderr and stops nothing: other programs may
    use the same prefix.

    Raises:
        SettingsError: see `streams.settings.load`.
    """
    settings = load(env_file or _given_to_outbox.get())
    for line in settings.unknown:
        complain(line)
    return settings


def say(line: str) -> None:
    """Tell how something that takes long goes on; stderr, so that stdout stays for facts."""
    typer.echo(line, err=True)


def complain(text: str) -> None:
    """One line a fact on stderr, each under our name."""
    for line in text.splitlines():
        typer.echo(f"outbox: {line}", err=True)


def show(facts: Any, lines: Sequence[str], *, as_json: bool) -> None:
    """Print facts as one line of JSON or as lines for people."""
    if as_json:
        typer.echo(json.dumps(facts, ensure_ascii=False))
        return
    for line in lines:
        typer.echo(line)


@contextmanager
def clear_errors() -> Iterator[None]:
    """Turn the errors that we raise on purpose into a line and an exit code, not a traceback."""
    try:
        yield
    except SettingsError as error:
        complain(str(error))
        raise SystemExit(Exit.USAGE) from error
    except StreamsError as error:
        complain(str(error))
        raise SystemExit(Exit.FAILED) from error


def hush_clients() -> None:
    """Keep Kafka's client from logging what the commands that ask it say themselves."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
