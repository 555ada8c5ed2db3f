"""Appends provider events: durable on all in-sync replicas before the provider is told so."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from streams.api.problems import Problem

log = structlog.get_logger(__name__)

APPEND_S: Final = 8.0

UNAVAILABLE: Final = Problem(
    503,
    "log_unavailable",
    "The events could not be written. Send them again: what was written already changes nothing.",
    {"retry-after": "5"},
)


class KafkaEventLog:
    """Implements `provider_events.EventLog`.

    Not idempotent on purpose: an event written twice is one event, and an idempotent producer that
    failed once would be of no use until it is made anew.
    """

    def __init__(self, options: Mapping[str, Any], topic: str, *, client_id: str) -> None:
        self._topic = topic
        self._producer = AIOKafkaProducer(
            **options, client_id=client_id, acks="all", request_timeout_ms=4_000
        )

    async def start(self) -> None:
        """Connect."""
        await self._producer.start()

    async def stop(self) -> None:
        """Send what waits, then disconnect."""
        await self._producer.stop()

    async def append(self, records: Sequence[tuple[int, bytes, bytes]]) -> None:
        """See `provider_events.EventLog`."""
        try:
            async with asyncio.timeout(APPEND_S):
                sent = [
                    await self._producer.send(self._topic, value, key=key, partition=partition)
                    for partition, key, value in records
                ]
                await asyncio.gather(*sent)
        except (KafkaError, TimeoutError) as error:
            log.error("provider_event.not_written", error=type(error).__name__)
            raise UNAVAILABLE from None
