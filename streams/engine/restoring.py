"""Bringing the stores of partitions up to their log, before they are owned.

What stands in a store is the fold of a prefix of one log. One that is behind reads on from its own
offset; one that was folded from another log, or is ahead of this one, is dropped and folded anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import structlog
from aiokafka import ConsumerRecord

from streams.edge.log import Tail, read_all
from streams.edge.telemetry import Metrics
from streams.engine.partition import Partition
from streams.engine.ports import Time

log = structlog.get_logger(__name__)

SAY_EVERY_S: Final = 2.0
"""How often a long restore says how far it is."""


class Restorer:
    """Restores the ledger partitions of one worker in bulk.

    Args:
        topic: The ledger's full name.
        options: Client options.
    """

    def __init__(
        self,
        *,
        topic: str,
        options: Mapping[str, Any],
        tail: Tail,
        time: Time,
        metrics: Metrics,
    ) -> None:
        self.incarnation = b""
        """Of the topic, as it was found by the last restore."""
        self.rows = 0
        """Rows folded by all restores so far: a worker that leads nothing yet is at work while it grows."""
        self._topic = topic
        self._options = options
        self._tail = tail
        self._time = time
        self._metrics = metrics

    async def restore(self, partitions: Sequence[Partition], stands: Callable[[], bool]) -> None:
        """Fold what the log has and the stores have not, while the assignment `stands`.

        Raises:
            KafkaError: no broker answers, or the topic is not there.
            TopicsError: see `incarnation_of`.
        """
        by_index = {partition.index: partition for partition in partitions}
        await self._drop_foreign(by_index, stands)
        if not stands():
            return
        reading = _Progress(self._time, self._metrics)

        def sink(index: int, records: Sequence[ConsumerRecord[bytes, bytes]]) -> None:
            if stands():  # the next assignment reads for itself: two readers would turn rows back
                by_index[index].restore(records)
                self.rows += len(records)
                reading.folded(len(records))

        starts = {index: partition.store.next for index, partition in by_index.items()}
        ends = await read_all(self._options, self._topic, starts, sink, reading.say)
        if not stands():
            return
        for index, end in ends.items():
            # Compaction may have taken the last records: there is nothing to fold, and it was read.
            store = by_index[index].store
            if store.next < end:
                store.next = end
                store.commit()
        reading.end(len(partitions))

    async def _drop_foreign(
        self, partitions: Mapping[int, Partition], stands: Callable[[], bool]
    ) -> None:
        """Drop what was folded from another log than the one that is there (design §3)."""
        incarnation = await self._tail.incarnation(self._topic)
        ends = await self._tail.end_offsets(self._topic, partitions)
        if not stands():
            return
        self.incarnation = incarnation
        filled = {index: p.store for index, p in partitions.items() if p.store.next}
        foreign = [i for i, store in filled.items() if store.incarnation != incarnation]
        ahead = [i for i, store in filled.items() if store.next > ends[i] and i not in foreign]
        for index in (*foreign, *ahead):
            partitions[index].forget()
        for partition in partitions.values():
            partition.store.incarnation = incarnation
        if foreign or ahead:
            log.error(
                "store.foreign",
                of_another_topic=foreign,
                ahead_of_the_log=ahead,
                action="rebuilt from the ledger topic",
            )


class _Progress:
    """How far a restore is, for the log and the metrics."""

    def __init__(self, time: Time, metrics: Metrics) -> None:
        self._time = time
        self._metrics = metrics
        self._began = self._said = time.monotonic()
        self._rows = 0

    def folded(self, rows: int) -> None:
        self._rows += rows
        self._metrics.restored.inc(rows)

    async def say(self, seen: int, total: int) -> None:
        """See `read_all`'s progress."""
        self._metrics.restore_left.set(max(0, total - seen))
        if self._time.monotonic() - self._said >= SAY_EVERY_S:
            self._said = self._time.monotonic()
            log.info("ledger.restoring", records=seen, of=total, per_s=self._per_s())

    def end(self, partitions: int) -> None:
        """It is done."""
        self._metrics.restore_left.set(0)
        self._metrics.restore_rate.set(self._per_s())
        log.info("ledger.restored", partitions=partitions, records=self._rows, per_s=self._per_s())

    def _per_s(self) -> int:
        return round(self._rows / max(0.001, self._time.monotonic() - self._began))
