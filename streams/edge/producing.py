"""How a command appends records: durable, in order, a bounded amount on its way."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from streams.edge.appender import MAX_BATCH_BYTES
from streams.edge.cluster import explained
from streams.errors import TopicsError

UNACKNOWLEDGED_MAX: Final = 1_000
"""Records that may be on their way; more wait in whatever they are read from."""

UNACKNOWLEDGED_BYTES_MAX: Final = 16 * 1024**2
"""Bytes that may be on their way: a thousand of the largest records would be 256 MiB."""

REQUEST_TIMEOUT_MS: Final = 30_000
"""How long the brokers may take to accept a batch, a change of leader included."""

_CLOSE_S: Final = 2.0
"""How long a producer that failed may take to close: what it still holds cannot be sent."""


class Sender:
    """An idempotent producer (`acks=all`) that sends no further than it is acknowledged.

    `async with Sender(options) as sender`, which connects and disconnects.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options
        self._room = asyncio.Event()
        self._sent = 0
        self._bytes = 0
        self._failure: TopicsError | None = None
        self.acknowledged = 0
        """Records that are on all in-sync replicas."""

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            TopicsError: no Kafka answers.
        """
        self._producer = AIOKafkaProducer(
            **self._options,
            enable_idempotence=True,
            acks="all",
            max_batch_size=MAX_BATCH_BYTES,
            max_request_size=2 * 1024 * 1024,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
        )
        with explained(self._options):
            try:
                await self._producer.start()
            except BaseException:
                await self._producer.stop()
                raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Disconnect; what is on its way is waited for unless it cannot arrive."""
        closing = asyncio.ensure_future(self._producer.stop())
        await asyncio.wait({closing}, timeout=_CLOSE_S if self._failure else None)
        closing.cancel()

    async def send(
        self, topic: str, partition: int, *, key: bytes | None, value: bytes | None
    ) -> None:
        """Send one record; waits only while too much is on its way.

        Raises:
            TopicsError: this record, or one before it, was not taken.
        """
        size = len(key or b"") + len(value or b"")
        while self._is_full(size):
            self._room.clear()
            await self._room.wait()
        self._check()
        try:
            sent = await self._producer.send(topic, value, key=key, partition=partition)
        except KafkaError as error:
            self._fail(topic, error)
            self._check()
            return
        self._sent += 1
        self._bytes += size
        sent.add_done_callback(lambda done: self._came_back(topic, size, done))

    async def flush(self) -> None:
        """Wait until every record is acknowledged.

        Raises:
            TopicsError: one was not taken.
        """
        while self._failure is None and self.unacknowledged:
            self._room.clear()
            await self._room.wait()
        self._check()

    @property
    def unacknowledged(self) -> int:
        """Records on their way."""
        return self._sent - self.acknowledged

    def _is_full(self, size: int) -> bool:
        if self._failure is not None or not self.unacknowledged:
            return False
        if self.unacknowledged >= UNACKNOWLEDGED_MAX:
            return True
        return self._bytes + size > UNACKNOWLEDGED_BYTES_MAX

    def _came_back(self, topic: str, size: int, done: asyncio.Future[Any]) -> None:
        error = asyncio.CancelledError() if done.cancelled() else done.exception()
        if error is None:
            self.acknowledged += 1
            self._bytes -= size
        else:
            self._fail(topic, error)
        self._room.set()

    def _fail(self, topic: str, error: BaseException) -> None:
        if self._failure is None:
            self._failure = TopicsError(
                f"{topic} does not take the records: {type(error).__name__}; look at the brokers"
            )

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
