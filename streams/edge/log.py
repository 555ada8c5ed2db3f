"""How we write to Kafka and read our own writes back: batched appends, a tail, end offsets.

One idempotent producer per worker. `aiokafka.send()` costs 9-13 µs of CPU and a future per record;
gathering records into one batch and one future costs 3-4 µs (timeit, 550 B records): so appends of
one turn of the event loop, and all that arrive while a batch is on its way, share the next batch.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import structlog
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from streams.edge.failpoint import failpoint
from streams.errors import FatalError

log = structlog.get_logger(__name__)

MAX_BATCH_BYTES: Final = 512 * 1024
"""A batch closes here. aiokafka takes an oversize batch, fails it at the broker, and from then on
every send to that partition fails with OutOfOrderSequenceNumber (measured)."""

MAX_RECORD_BYTES: Final = 2 * 1024 * 1024 - 64 * 1024
"""The topics' `max.message.bytes`, less room for the batch's own head."""

Headers = Sequence[tuple[str, bytes]]
Fatal = Callable[[BaseException], None]


class _Lane:
    """Appends to one topic partition, in order: one batch on its way at a time.

    A lane is with one leader from the moment it is queued until its batch is delivered. Leaders change,
    and two that sent from one lane would race for its batches and their order.
    """

    __slots__ = ("batches", "is_queued", "tp")

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.is_queued = False
        self.batches: deque[tuple[Any, asyncio.Future[int]]] = deque()


class _Leader:
    """The lanes whose partitions one broker leads: their batches travel in one request.

    A request costs 200 µs of CPU and more, whatever it carries, and partitions are many: sent lane by
    lane, 1,300 deliveries/s over 8 partitions made 1,200 requests/s. A broker that is slow or gone
    holds up no other.
    """

    __slots__ = ("is_sending", "waiting")

    def __init__(self) -> None:
        self.waiting: list[_Lane] = []
        self.is_sending = False


class Appender:
    """Appends records durably (`acks=all`) and in order per partition.

    A failed append means that nothing more can be promised: it goes to `fatal`, which ends the
    process, and redelivery does the rest (ledger.md, rule 12).
    """

    def __init__(self, options: Mapping[str, Any], fatal: Fatal, *, client_id: str) -> None:
        self._producer = AIOKafkaProducer(
            **options,
            client_id=client_id,
            enable_idempotence=True,
            acks="all",
            max_batch_size=MAX_BATCH_BYTES,
            max_request_size=2 * 1024 * 1024,
            request_timeout_ms=10_000,
            linger_ms=0,
        )
        self._fatal = fatal
        self._failed = False
        self._lanes: dict[tuple[str, int], _Lane] = {}
        self._leaders: dict[int, _Leader] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()

    async def start(self) -> None:
        """Connect.

        Raises:
            FatalError: when no broker answers.
        """
        try:
            await self._producer.start()
        except KafkaError as error:
            raise FatalError(f"no broker answers: {error!r}; check OUTBOX_BROKERS") from error

    async def stop(self) -> None:
        """Send what waits, then disconnect."""
        await self.flush()
        await self._producer.stop()

    async def flush(self) -> None:
        """Wait until nothing waits and nothing is on its way; no longer once an append has failed."""
        while not self._failed and (
            self._tasks or any(lane.batches for lane in self._lanes.values())
        ):
            if self._tasks:
                await asyncio.wait(self._tasks)
            else:
                await asyncio.sleep(0)

    def append(
        self,
        topic: str,
        partition: int,
        *,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> asyncio.Future[int]:
        """Append one record.

        Returns:
            A future, shared with the records of one batch: done when the batch is on all in-sync
            replicas; its result is the batch's first offset.

        Raises:
            FatalError: the record is larger than a topic takes.
        """
        size = len(value or b"") + len(key or b"")
        if size > MAX_RECORD_BYTES:
            raise FatalError(
                f"a record of {size} bytes for {topic} exceeds {MAX_RECORD_BYTES} bytes"
            )
        lane = self._lanes.get((topic, partition))
        if lane is None:
            lane = self._lanes[topic, partition] = _Lane(TopicPartition(topic, partition))
        if lane.batches:
            builder, future = lane.batches[-1]
            if self._add(builder, key, value, headers, timestamp_ms):
                return future
        elif not lane.is_queued:
            self._queue(lane)
        builder = self._producer.create_batch()
        future = self._loop.create_future()
        self._add(builder, key, value, headers, timestamp_ms)
        lane.batches.append((builder, future))
        return future

    @staticmethod
    def _add(
        builder: Any, key: bytes | None, value: bytes | None, headers: Headers, at: int | None
    ) -> bool:
        added = builder.append(timestamp=at, key=key, value=value, headers=list(headers))
        return added is not None

    def _queue(self, lane: _Lane) -> None:
        """Let the lane's batches go with the next request to the broker that leads it."""
        node = self._producer.client.cluster.leader_for_partition(lane.tp)
        leader = self._leaders.setdefault(-1 if node is None else node, _Leader())
        lane.is_queued = True
        leader.waiting.append(lane)
        if not leader.is_sending:
            leader.is_sending = True
            # After this turn of the loop: what it appends further goes along.
            self._loop.call_soon(self._start, leader)

    def _start(self, leader: _Leader) -> None:
        task = self._loop.create_task(self._send(leader))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # Whatever it was, what waits here would wait for ever.
            self._failed = True
            self._fatal(FatalError(f"an append failed: {error!r}"))

    async def _send(self, leader: _Leader) -> None:
        try:
            while leader.waiting:
                lanes, leader.waiting = leader.waiting, []
                sent = [await self._hand_over(lane) for lane in lanes]
                for future, delivered in sent:
                    offset = (await delivered).offset
                    if not future.done():  # one waiter's cancellation must not end the others
                        future.set_result(offset)
                for lane in lanes:
                    lane.is_queued = False
                    if lane.batches:
                        self._queue(lane)
        finally:
            leader.is_sending = False

    async def _hand_over(self, lane: _Lane) -> tuple[asyncio.Future[int], Awaitable[Any]]:
        builder, future = lane.batches.popleft()
        failpoint("append")
        builder.close()
        delivered = await self._producer.send_batch(
            builder, lane.tp.topic, partition=lane.tp.partition
        )
        return future, delivered


@dataclass(slots=True)
class _Followed:
    position: int
    sink: Callable[[Sequence[ConsumerRecord[bytes, bytes]]], None]


class Tail:
    """Follows topic partitions outside any group: our own writes read back, the registry, letters."""

    def __init__(self, options: Mapping[str, Any], *, client_id: str) -> None:
        self._consumer: AIOKafkaConsumer[bytes, bytes] = AIOKafkaConsumer(
            **options,
            client_id=client_id,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            fetch_max_wait_ms=500,
            max_partition_fetch_bytes=2 * 1024 * 1024,
            max_poll_records=5_000,
        )
        # A broker answers the requests of one connection in order: asked over the tail's own, a
        # question would wait behind a fetch that waits for records (measured: 500 ms each).
        self._asking: AIOKafkaConsumer[bytes, bytes] = AIOKafkaConsumer(
            **options, client_id=f"{client_id}-ask", enable_auto_commit=False
        )
        self._followed: dict[TopicPartition, _Followed] = {}
        self._changed = asyncio.Event()

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
        self._changed.set()

    def leave(self, topic: str, partition: int) -> None:
        """Stop following; no record of it reaches its sink after this returns."""
        if self._followed.pop(TopicPartition(topic, partition), None) is not None:
            self._changed.set()

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
                fresh = [r for r in records if r.offset >= followed.position]
                if fresh:
                    followed.position = fresh[-1].offset + 1
                    followed.sink(fresh)

    async def _fetch(self) -> Mapping[TopicPartition, Sequence[ConsumerRecord[bytes, bytes]]]:
        """The next records; nothing when what is followed changed meanwhile."""
        fetching = asyncio.ensure_future(self._consumer.getmany(timeout_ms=1_000))
        changing = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait({fetching, changing}, return_when=asyncio.FIRST_COMPLETED)
            return fetching.result() if fetching.done() else {}
        finally:
            for task in (fetching, changing):
                if not task.done():
                    task.cancel()

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
        for tp, records in fetched.items():
            sink(tp.partition, records)
            seen += len(records)
        for tp in unread:
            # The position also passes what compaction took away, where there is no record to see.
            at[tp] = int(await consumer.position(tp))
        if progress is not None:
            await progress(seen, total)
