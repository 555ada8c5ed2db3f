"""How we read Kafka outside any group: a tail of what is written, bulk reads, end offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from streams.edge.incarnation import incarnation_of

TURNS: Final = 5
"""Of the event loop, until the fetch that what was taken made room for is on its way: brokers work while
we do."""

LOOK_AROUND_MS: Final = 1_000
"""How often aiokafka's fetch routine goes through its partitions though nothing happened; whatever does
happen wakes it, but for a rare race at a new assignment. By its own 200 ms an idle worker of 8 partitions
used 1.16 % of a core, by this 0.96 % (workers side by side on one broker, 25 s)."""

LONG_POLL_MS: Final = 500
"""How long a tail's fetch waits for records; any ends it. A broker answers the requests of one connection in
order, so what is followed from now on waits as long at most."""

_ByPartition = Mapping[TopicPartition, Sequence[ConsumerRecord[bytes, bytes]]]


@dataclass(slots=True)
class _Followed:
    position: int
    sink: Callable[[Sequence[ConsumerRecord[bytes, bytes]]], None]


class Tail:
    """Follows topic partitions outside any group: our own writes read back, the registry, letters."""

    def __init__(
        self, options: Mapping[str, Any], *, client_id: str, long_poll_ms: int = LONG_POLL_MS
    ) -> None:
        self._consumer: AIOKafkaConsumer[bytes, bytes] = AIOKafkaConsumer(
            **options,
            client_id=client_id,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            fetch_max_wait_ms=long_poll_ms,
            consumer_timeout_ms=LOOK_AROUND_MS,
            max_partition_fetch_bytes=2 * 1024 * 1024,
            max_poll_records=5_000,
        )
        # A broker answers the requests of one connection in order: asked over the tail's own, a
        # question would wait behind a fetch that waits for records (measured: 500 ms each).
        self._asking: AIOKafkaConsumer[bytes, bytes] = AIOKafkaConsumer(
            **options,
            client_id=f"{client_id}-ask",
            enable_auto_commit=False,
            # An open transaction ends what can be read; what lies behind it is nobody's lag.
            isolation_level="read_committed",
        )
        self._followed: dict[TopicPartition, _Followed] = {}
        self._changed = asyncio.Event()
        self._fetching: asyncio.Timeout | None = None
        """Of a fetch that waits for records; nobody has told it yet that what is followed changed."""

    async def start(self) -> None:
        """Connect."""
        await self._consumer.start()
        await self._asking.start()

    async def stop(self) -> None:
        """Disconnect."""
        await self._consumer.stop()
        await self._asking.stop()

    def follow(
        self,
        topic: str,
        partition: int,
        position: int,
        sink: Callable[[Sequence[ConsumerRecord[bytes, bytes]]], None],
    ) -> None:
        """From the next turn on, hand every record from `position` on to `sink`, in order."""
        self._followed[TopicPartition(topic, partition)] = _Followed(position, sink)
        self._change()

    def leave(self, topic: str, partition: int) -> None:
        """Stop following; no record of it reaches its sink after this returns."""
        if self._followed.pop(TopicPartition(topic, partition), None) is not None:
            self._change()

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            if self._changed.is_set():
                self._changed.clear()
                self._reassign()
            if not self._followed:
                await self._changed.wait()
                continue
            fetched = await self._fetch()
            for tp, records in fetched.items():
                followed = self._followed.get(tp)
                if followed is None:
                    continue
                at = followed.position
                # Only after a change is there any that was handed on before.
                fresh = (
                    records if records[0].offset >= at else [r for r in records if r.offset >= at]
                )
                if fresh:
                    followed.position = fresh[-1].offset + 1
                    followed.sink(fresh)

    async def _fetch(self) -> _ByPartition:
        """The next records; nothing when what is followed changed meanwhile."""
        try:
            # Not a task for the fetch and one that waits for a change: 12 µs of CPU a fetch in place of 2.
            async with asyncio.timeout(None) as self._fetching:
                fetched: _ByPartition = await self._consumer.getmany(timeout_ms=1_000)
                return fetched
        except TimeoutError:
            return {}
        finally:
            self._fetching = None

    def _change(self) -> None:
        self._changed.set()
        if self._fetching is not None:
            self._fetching.reschedule(0.0)
            self._fetching = None

    def _reassign(self) -> None:
        self._consumer.assign(list(self._followed))
        for tp, followed in self._followed.items():
            self._consumer.seek(tp, followed.position)

    async def end_offset(self, topic: str, partition: int) -> int:
        """Where the next record of a partition would lie, asked of its leader now."""
        return (await self.end_offsets(topic, [partition]))[partition]

    async def end_offsets(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """Where the next record of each partition would lie, asked of their leaders now."""
        tps = [TopicPartition(topic, p) for p in partitions]
        return {tp.partition: int(end) for tp, end in (await self._asking.end_offsets(tps)).items()}

    async def ends(self, tps: Iterable[tuple[str, int]]) -> dict[Any, int]:
        """As `end_offsets`, of partitions of any topics, by what was asked for."""
        asked = {TopicPartition(topic, partition): tp for tp in tps for topic, partition in [tp]}
        ends = await self._asking.end_offsets(list(asked))
        return {asked[tp]: int(end) for tp, end in ends.items()}

    async def incarnation(self, topic: str) -> bytes:
        """Which life of a topic this is; see `incarnation_of`."""
        client = self._asking._client  # noqa: SLF001  # the consumer itself asks no such question
        return await incarnation_of(client, topic)

    async def read_position(self, topic: str, partition: int) -> int:
        """How far the partition was read, records that compaction took away included."""
        tp = TopicPartition(topic, partition)
        if tp not in self._consumer.assignment():
            return -1
        return int(await self._consumer.position(tp))


async def read_all(
    options: Mapping[str, Any],
    topic: str,
    partitions: Mapping[int, int],
    sink: Callable[[int, Sequence[ConsumerRecord[bytes, bytes]]], None],
    progress: Callable[[int, int], Awaitable[None]] | None = None,
) -> dict[int, int]:
    """Read partitions from given offsets to their present ends, in bulk.

    Args:
        options: Client options.
        topic: What to read.
        partitions: Partition to first offset wanted.
        sink: Gets each batch with its partition, in offset order.
        progress: Called with (records read, records to read at most) after each round.

    Returns:
        Partition to the end offset that was read to.
    """
    consumer: AIOKafkaConsumer[bytes, bytes] = AIOKafkaConsumer(
        **options,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        max_partition_fetch_bytes=4 * 1024 * 1024,
        fetch_max_bytes=32 * 1024 * 1024,
        max_poll_records=20_000,
    )
    await consumer.start()
    try:
        wanted = {TopicPartition(topic, p): start for p, start in partitions.items()}
        if not wanted:
            return {}
        consumer.assign(list(wanted))
        ends = await consumer.end_offsets(list(wanted))
        starts = await consumer.beginning_offsets(list(wanted))
        at = {tp: max(start, starts[tp]) for tp, start in wanted.items()}
        for tp, position in at.items():
            consumer.seek(tp, position)
        await _drain(consumer, at, ends, sink=sink, progress=progress)
        return {tp.partition: int(ends[tp]) for tp in wanted}
    finally:
        await consumer.stop()


async def _drain(
    consumer: AIOKafkaConsumer[bytes, bytes],
    at: dict[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    *,
    sink: Callable[[int, Sequence[ConsumerRecord[bytes, bytes]]], None],
    progress: Callable[[int, int], Awaitable[None]] | None,
) -> None:
    seen, total = 0, sum(max(0, ends[tp] - start) for tp, start in at.items())
    while unread := [tp for tp in at if at[tp] < ends[tp]]:
        for tp in set(consumer.assignment()) - set(unread) - consumer.paused():
            consumer.pause(tp)
        fetched = await consumer.getmany(*unread, timeout_ms=500)
        for _ in range(TURNS):
            await asyncio.sleep(0)
        for tp, records in fetched.items():
            sink(tp.partition, records)
            seen += len(records)
        for tp in unread:
            # The position also passes what compaction took away, where there is no record to see.
            at[tp] = int(await consumer.position(tp))
        if progress is not None:
            await progress(seen, total)
