"""Fetches are paced per broker, and none is lost or late for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from streams.engine.fetching import paced
from tests.sim.loop import run_virtual


class Fetcher:
    """Notes when each fetch is sent, and to whom."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, float]] = []
        self._paced = paced(self._send, apart_s=0.01)

    async def _send(self, assignment: object, node_id: int, request: object) -> bool:
        self.sent.append((node_id, now()))
        return True

    async def fetch(self, node_id: int = 1) -> bool:
        return await self._paced(None, node_id, None)


def now() -> float:
    return round(asyncio.get_running_loop().time(), 3)


def play(scenario: Callable[[Fetcher], Coroutine[Any, Any, None]]) -> None:
    run_virtual(scenario(Fetcher()))


def test_fetches_to_a_broker_are_sent_apart() -> None:
    """Measured: asked without a pause, a worker of 128 partitions does little else."""

    async def scenario(fetcher: Fetcher) -> None:
        begin = now()
        for _ in range(3):
            assert await fetcher.fetch()
        assert [begin, begin + 0.01, begin + 0.02] == [round(at, 3) for _, at in fetcher.sent]

    play(scenario)


def test_the_first_after_a_rest_is_sent_at_once() -> None:
    """A lone activity waits for nothing."""

    async def scenario(fetcher: Fetcher) -> None:
        await fetcher.fetch()
        await asyncio.sleep(5)
        rested = now()
        await fetcher.fetch()
        assert (1, rested) == fetcher.sent[-1]

    play(scenario)


def test_brokers_do_not_wait_for_each_other() -> None:
    async def scenario(fetcher: Fetcher) -> None:
        await asyncio.gather(fetcher.fetch(1), fetcher.fetch(2))
        assert 1 == len({at for _, at in fetcher.sent})

    play(scenario)


def test_a_fetch_that_is_cancelled_while_it_waits_brings_no_data() -> None:
    """As aiokafka's own does: its routine waits for it after a rebalance, and takes no exception."""

    async def scenario(fetcher: Fetcher) -> None:
        await fetcher.fetch()
        waiting = asyncio.ensure_future(fetcher.fetch())
        await asyncio.sleep(0)
        waiting.cancel()
        assert not await waiting
        assert 1 == len(fetcher.sent)

    play(scenario)
