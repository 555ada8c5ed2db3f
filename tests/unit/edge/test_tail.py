"""What a tail hands on, and how soon it follows what is asked of it anew."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from aiokafka import TopicPartition

from streams.edge.log import Tail
from tests.sim.loop import run_virtual

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class Log:
    """Stands in for the tail's consumer: hands over what was written, from where it was sought."""

    def __init__(self) -> None:
        self.written = {A: 0, B: 0}
        self.positions: dict[TopicPartition, int] = {}
        self.asked = 0
        self._grown = asyncio.Event()

    def write(self, tp: TopicPartition) -> None:
        self.written[tp] += 1
        self._grown.set()

    def assign(self, tps: list[TopicPartition]) -> None:
        self.positions = dict.fromkeys(tps, 0)

    def seek(self, tp: TopicPartition, position: int) -> None:
        self.positions[tp] = position

    async def getmany(self, *, timeout_ms: int) -> Any:
        self.asked += 1
        try:
            async with asyncio.timeout(timeout_ms / 1e3):
                while not (fetched := self._take()):
                    self._grown.clear()
                    await self._grown.wait()
                return fetched
        except TimeoutError:
            return {}

    def _take(self) -> dict[TopicPartition, list[Any]]:
        fetched = {
            tp: [SimpleNamespace(offset=n) for n in range(at, self.written[tp])]
            for tp, at in self.positions.items()
            if at < self.written[tp]
        }
        self.positions |= {tp: self.written[tp] for tp in fetched}
        return fetched


class Scene:
    """A tail, its log, and the offsets that came, each with its partition and time."""

    def __init__(self) -> None:
        self.log = Log()
        with patch("streams.edge.log.AIOKafkaConsumer", lambda **_: self.log):
            self.tail = Tail({}, client_id="test")
        self.came: list[tuple[TopicPartition, int, float]] = []

    def follow(self, tp: TopicPartition, position: int = 0) -> None:
        loop = asyncio.get_running_loop()

        def sink(records: Any) -> None:
            self.came += [(tp, record.offset, loop.time()) for record in records]

        self.tail.follow(tp.topic, tp.partition, position, sink)


def play(scenario: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
    async def played() -> None:
        scene = Scene()
        running = asyncio.ensure_future(scene.tail.run())
        try:
            await scenario(scene)
            assert not running.done()
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    run_virtual(played())


def test_a_fetch_under_way_holds_up_no_partition_that_is_followed_meanwhile() -> None:
    """A takeover waits for its tail; the fetch of the others may wait for records a second long."""

    async def scenario(scene: Scene) -> None:
        scene.follow(A)
        await asyncio.sleep(0.3)
        scene.log.write(B)
        scene.follow(B)
        scene.follow(B)
        await asyncio.sleep(0.01)
        assert [(B, 0, 0.3)] == [(tp, at, round(t, 2)) for tp, at, t in scene.came]
        assert 3 == scene.log.asked

    play(scenario)


def test_what_is_left_is_heard_of_no_more() -> None:
    """Its store may be another worker's by then."""

    async def scenario(scene: Scene) -> None:
        scene.follow(A)
        scene.follow(B)
        await asyncio.sleep(0.3)
        scene.log.write(A)
        scene.tail.leave(*A)
        scene.log.write(B)
        await asyncio.sleep(0.01)
        assert [(B, 0)] == [(tp, at) for tp, at, _ in scene.came]

    play(scenario)


def test_what_was_handed_on_is_not_handed_on_again_after_a_change() -> None:
    """A partition is sought to where the tail was; what a broker sends from before that is left out."""

    async def scenario(scene: Scene) -> None:
        for _ in range(3):
            scene.log.write(A)
        scene.follow(A, 1)
        await asyncio.sleep(0.1)
        scene.log.positions[A] = 0
        scene.log.write(A)
        await asyncio.sleep(0.1)
        scene.follow(B)
        scene.log.write(A)
        await asyncio.sleep(0.1)
        assert [1, 2, 3, 4] == [at for _, at, _ in scene.came]

    play(scenario)


def test_a_tail_of_nothing_asks_for_nothing_until_something_is_followed() -> None:
    async def scenario(scene: Scene) -> None:
        await asyncio.sleep(5)
        assert 0 == scene.log.asked
        scene.follow(A)
        scene.log.write(A)
        await asyncio.sleep(0.01)
        assert [(A, 0)] == [(tp, at) for tp, at, _ in scene.came]
        scene.tail.leave(*A)
        await asyncio.sleep(5)
        asked = scene.log.asked
        await asyncio.sleep(5)
        assert asked == scene.log.asked

    play(scenario)
