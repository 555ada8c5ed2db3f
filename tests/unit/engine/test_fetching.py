"""Fetches are paced per broker, and none is lost or late for it."""

from __future__ import annotations

import asyncio

from streams.engine.fetching import paced
from tests.sim.loop import run_virtual


class Fetcher:
    """Notes when each fetch is sent, and to whom."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, float]] = []

    async def send(self, assignment: object, node_id: int, request: object) -> bool:
        self.sent.append((node_id, round(asyncio.get_running_loop().time(), 3)))
        return True


def test_fetches_to_a_broker_are_sent_apart() -> None:
    """Measured: asked without a pause, a worker of 128 partitions does little else."""
    fetcher = Fetcher()

    async def play() -> None:
        send = paced(fetcher.send, apart_s=0.01)
        begin = round(asyncio.get_running_loop().time(), 3)
        for _ in range(3):
            assert await send(None, 1, None)
        assert [begin, begin + 0.01, begin + 0.02] == [round(at, 3) for _, at in fetcher.sent]

    run_virtual(play())


def test_the_first_after_a_rest_is_sent_at_once() -> None:
    """A lone activity waits for nothing."""
    fetcher = Fetcher()

    async def play() -> None:
        send = paced(fetcher.send, apart_s=0.01)
        await send(None, 1, None)
        await asyncio.sleep(5)
        rested = round(asyncio.get_running_loop().time(), 3)
        await send(None, 1, None)
        assert (1, rested) == fetcher.sent[-1]

    run_virtual(play())


def test_brokers_do_not_wait_for_each_other() -> None:
    fetcher = Fetcher()

    async def play() -> None:
        send = paced(fetcher.send, apart_s=0.01)
        await asyncio.gather(send(None, 1, None), send(None, 2, None))
        assert 1 == len({at for _, at in fetcher.sent})

    run_virtual(play())


def test_a_fetch_that_is_cancelled_while_it_waits_brings_no_data() -> None:
    """As aiokafka's own does: its routine waits for it after a rebalance, and takes no exception."""
    fetcher = Fetcher()

    async def play() -> None:
        send = paced(fetcher.send, apart_s=0.01)
        await send(None, 1, None)
        waiting = asyncio.ensure_future(send(None, 1, None))
        await asyncio.sleep(0)
        waiting.cancel()
        assert not await waiting
        assert 1 == len(fetcher.sent)

    run_virtual(play())
