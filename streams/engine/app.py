"""The faust app: assignment, fetching, agents; everything that matters is handed to the worker."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import faust
from aiokafka.errors import IllegalStateError
from faust.app.base import BootStrategy
from faust.channels import Channel
from faust.types import TP
from mode.utils.queues import FlowControlEvent, ThrowableQueue

from streams.engine.consumer import BatchConsumer, Records, Transport, Wanted
from streams.engine.tables import LedgerTable
from streams.engine.worker import Worker


@dataclass(frozen=True, slots=True)
class Batch:
    """Consecutive records of one partition, as fetched in one assignment."""

    tp: TP
    records: Records
    assignment: int


class BatchChannel(Channel[Batch]):
    """A channel in memory whose queue is never cleared.

    faust clears its own at every rebalance and loses what was fetched meanwhile (upstream #596).
    """

    @property
    def queue(self) -> ThrowableQueue[Any]:
        """The queue, under a flow control of its own that nobody suspends."""
        if self._queue is None:
            self._queue = ThrowableQueue(flow_control=FlowControlEvent(initially_suspended=False))
        return self._queue


class _Boot(BootStrategy):
    """No web server (it listens on 0.0.0.0 and shows tables without auth) and no producer of faust's."""

    enable_web = False
    enable_kafka_producer = False


class App(faust.App):
    """Implements `consumer.Feeding`, `tables.Owning`, `feeding.Flow` and `watch.Consuming`."""

    BootStrategy = _Boot
    worker: Worker

    def serve(self, worker: Worker, *, ledger: str, topics: Sequence[str]) -> None:
        """Join a worker to this app before it starts.

        Args:
            ledger: Name of the ledger topic, faust's changelog.
            topics: Every topic to subscribe to, in the first release already: a group of mixed
                subscriptions splits the ownership of partitions (measured).
        """
        self.worker = worker
        table = LedgerTable(
            self,
            name="ledger",
            changelog_topic=self.topic(ledger, key_type=bytes, value_type=bytes),
        )
        self.tables.add(table)
        for name in topics:
            self.topics.add(self.topic(name, key_type=bytes, value_type=bytes))
        self._batches = BatchChannel(self)
        self.agent(self._batches, name="records")(self._take_batches)

    async def _take_batches(self, batches: Any) -> None:
        async for batch in batches:
            await self.worker.feed(batch.tp, batch.records, batch.assignment)

    @property
    def crashed_event(self) -> asyncio.Event:
        """Set when faust gave up; `crash_reason` says why."""
        return cast("asyncio.Event", self._crashed)

    # -- faust's seams --------------------------------------------------------------------------

    def _new_transport(self) -> Transport:
        return Transport(self.conf.broker_consumer, self)

    async def _producer_flush(self, logger: Any) -> None:
        """faust's producer is not used."""

    async def _consumer_wait_empty(self, consumer: Any, logger: Any) -> None:
        """On revocation: commit what is settled while the generation still stands, wait for nothing."""
        await self._batch_consumer.commit()
        self.worker.let_go()

    # -- consumer.Feeding -----------------------------------------------------------------------

    @property
    def wanted(self) -> Wanted:
        """See `Feeding`."""
        return self.worker.feeder.wanted

    def reads(self, topic: str) -> bool:
        """See `Feeding`."""
        return self.worker.feeder.reads(topic)

    async def feed(self, tp: TP, records: Records) -> None:
        """See `Feeding`."""
        batch = Batch(tp, records, self.worker.assignment)
        await self._batches.put(cast("Any", batch))

    def committable(self) -> dict[TP, int]:
        """See `Feeding`."""
        return self.worker.feeder.committable()

    def committed(self, offsets: Mapping[TP, int]) -> None:
        """See `Feeding`."""
        self.worker.feeder.committed(offsets)

    # -- tables.Owning --------------------------------------------------------------------------

    def lost(self, revoked: set[TP]) -> None:
        """See `Owning`."""
        self.worker.lost(revoked)

    async def gained(self, assigned: set[TP], generation: int) -> None:
        """See `Owning`."""
        if generation == self.consumer_generation_id:
            await self.worker.gained(assigned)

    # -- feeding.Flow ---------------------------------------------------------------------------

    @property
    def _batch_consumer(self) -> BatchConsumer:
        return cast("BatchConsumer", self.consumer)

    async def seek_to_committed(self) -> Mapping[TP, int | None] | None:
        """See `Flow`."""
        await self._batch_consumer.parked.wait()
        if not self._batch_consumer.assignment():
            return {}  # aiokafka asserts that there is something to seek
        try:
            found = await self._batch_consumer.seek_to_committed()
        except IllegalStateError:
            return None
        return {TP(tp.topic, tp.partition): offset for tp, offset in found.items()}

    async def resume(self) -> None:
        """See `Flow`."""
        await self.on_rebalance_complete.send()
        self.flow_control.resume()
        self.consumer.resume_flow()
        await cast("Any", self)._fetcher.maybe_start()
        self.on_rebalance_end()

    async def seek(self, tp: TP, offset: int) -> None:
        """See `Flow`."""
        with contextlib.suppress(IllegalStateError):
            await self._batch_consumer.seek(tp, offset)

    def room(self) -> None:
        """See `Flow`."""
        self._batch_consumer.wake()

    # -- watch.Consuming -------------------------------------------------------------------------

    def ailment(self) -> str | None:
        """See `Consuming`."""
        return self._batch_consumer.ailment()

    def doubts(self) -> list[str]:
        """See `Consuming`."""
        return self._batch_consumer.doubts()

    def fetched_to(self, tp: TP) -> int | None:
        """See `Consuming`."""
        return self._batch_consumer.fetched_to(tp)

    # -- the end ---------------------------------------------------------------------------------

    async def leave(self) -> None:
        """Leave the group, so that others take over at once."""
        await asyncio.shield(self._batch_consumer.leave_group())
