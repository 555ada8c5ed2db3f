"""Lets the engine run in a simulated world: its reading, its day, its logs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import structlog

LOOK_AGAIN_MS = 20_000
"""In place of a day: worlds are short."""


@contextmanager
def quiet() -> Iterator[None]:
    """Let the engine read the ledger through the simulation's tail, and log nothing."""
    config = structlog.get_config()

    async def read_all(options, topic, starts, sink, progress=None):
        return await options["tail"].read_all(topic, starts, sink)

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        with (
            mock.patch("streams.engine.restoring.read_all", read_all),
            mock.patch("streams.rules.end_of_life.LOOK_AGAIN_MS", LOOK_AGAIN_MS),
        ):
            yield
    finally:
        structlog.configure(**config)
