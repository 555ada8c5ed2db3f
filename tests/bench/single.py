"""A tool beside the suite: one busy world, one thing measured and printed, or one line why it was not."""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple

import uvloop

from tests.bench.preload import activities
from tests.bench.proc import BenchError
from tests.bench.receivers import Place
from tests.bench.stage import TARGET, World, in_flight, stage
from tests.bench.suite import Suite


class Busy(NamedTuple):
    """A world with a backlog, on which nothing runs yet."""

    suite: Suite
    place: Place
    world: World


@asynccontextmanager
async def backlog(count: int) -> AsyncIterator[Busy]:
    """So many activities to one target, for a worker that has 64 in flight."""
    async with stage() as there, AsyncExitStack() as closing:
        suite = Suite(stage=there, scale=1.0, closing=closing)
        place = await closing.enter_async_context(suite.receiver())
        world = await closing.enter_async_context(there.world(**in_flight(64)))
        await world.register(place.url("/ok"))
        suite.say(f"preloading {count:,} activities")
        await world.preload(world.topics.outbox, activities("p", count, [TARGET]))
        yield Busy(suite, place, world)


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
