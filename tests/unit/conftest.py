"""What several rooms' tests ask for."""

from __future__ import annotations

import logging

import pytest
from aiokafka.consumer import fetcher

from streams.edge.fetches import LOGGERS, ask_cheaply


@pytest.fixture
def asking_cheaply(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fetchers that ask as those of a worker do; aiokafka's own way is put back."""
    for owner, name in (
        (fetcher.Fetcher, "_get_actions_per_node"),
        (fetcher.Fetcher, "_select_read_replica"),
        (fetcher, "random"),
        *((logging.getLogger(name), "debug") for name in LOGGERS),
    ):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    ask_cheaply()
