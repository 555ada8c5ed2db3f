"""A tool beside the suite: it measures one thing, prints it, or says in one line why it could not."""

from __future__ import annotations

import logging
import sys
from collections.abc import Coroutine
from typing import Any

import uvloop

from tests.bench.proc import BenchError


def told(measuring: Coroutine[Any, Any, str], *, missing: str) -> int:
    """Run it and print what it says.

    Args:
        missing: What there is none of where it cannot be measured.

    Returns:
        The process's exit code.
    """
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    try:
        print(uvloop.run(measuring))
    except BenchError as error:
        print(f"no {missing}: {error}", file=sys.stderr)
        return 1
    return 0
