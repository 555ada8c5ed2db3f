"""Prints the summary of the rounds after everything that pytest says."""

from __future__ import annotations

import pytest

from tests.chaos import summary


def pytest_unconfigure(config: pytest.Config) -> None:
    """The last lines of `make chaos`."""
    for line in summary.lines():
        print(line)
