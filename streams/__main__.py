"""The `outbox` command."""

from __future__ import annotations

from typing import Final

import typer

from streams.cli import (
    api,
    common,
    dead_letters,
    demo,
    kafka,
    produce,
    receiver,
    redrive,
    settings,
    show,
    targets,
    topics,
    worker,
)

MODULES: Final = (
    kafka,
    topics,
    worker,
    api,
    produce,
    targets,
    show,
    dead_letters,
    redrive,
    demo,
    settings,
    receiver,
)
"""Each adds its commands with `register(app)`, in the order that `outbox --help` shows."""


def build() -> typer.Typer:
    """The application with all its commands."""
    app = typer.Typer(
        name="outbox",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        callback=common.root,
    )
    for module in MODULES:
        module.register(app)
    return app


def main() -> None:
    """Run one command and exit: 0 done, 1 failed, 2 wrong usage or settings."""
    with common.clear_errors():
        build()()


if __name__ == "__main__":
    main()
