"""faust's consumer, corrected: batches handed over as one piece, our own offsets, read_committed.

What is corrected, and why (faust.md):
- one hand-over per partition and poll instead of four tasks per record: 3.4 µs against 150 µs of CPU;
- only the contiguous prefix of what is settled is committed (upstream #606 commits past work in flight);
- `read_committed`: faust reads uncommitted outside its own transactional mode, so an aborted redrive
  would be applied;
- a static member leaves the group on a clean stop, which aiokafka leaves out on purpose: without it
  the others wait for the session time-out (with it they had all partitions after 1.0 s).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, Protocol, cast

import aiokafka
import faust.transport.drivers.aiokafka as driver
import structlog
from aiokafka import ConsumerRecord
from aiokafka.errors import KafkaError
from aiokafka.protocol.group import LeaveGroupRequest
from faust.types import TP

from streams.edge.failpoint import failpoint

log = structlog.get_logger(__name__)

Records = Sequence[ConsumerRecord[bytes, bytes]]

POLL_S: Final = 1.0
"""How long one poll waits for records. A lane that has room again wakes it (`BatchConsumer.wake`)."""


class Wanted(set[TP]):
    """The partitions that have a lane with room; shared with a poll under way, changed in place.

    Never false: aiokafka's fetcher takes an empty set for "all partitions", and would hand over records
    that nobody has room for.
    """

    def __bool__(self) -> bool:
        return True


class Feeding(Protocol):
    """What the consumer needs of the app that it feeds."""

    wanted: Wanted
    """What to ask for."""

    async def feed(self, tp: TP, records: Records) -> None:
        """Take a batch of one partition."""

    def committable(self) -> dict[TP, int]:
        """What may be committed now."""

    def committed(self, offsets: Mapping[TP, int]) -> None:
        """Note what was committed."""


class ConsumerThread(driver.AIOKafkaConsumerThread):
    """The thread in which aiokafka's group consumer lives."""

    def _create_worker_consumer(self, transport: driver.Transport) -> aiokafka.AIOKafkaConsumer:
        consumer = super()._create_worker_consumer(transport)
        # Read by AIOKafkaConsumer.start(), which builds the fetcher.
        consumer._isolation_level = "read_committed"
        consumer._fetch_max_wait_ms = 500
        return consumer

    def wake(self) -> None:
        """End the wait of a poll that is under way, from another thread."""
        self.thread_loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        if self._consumer is None:
            return
        for waiter in list(self._consumer._fetcher._fetch_waiters):
            if not waiter.done():
                waiter.set_result(None)

    async def leave_group(self) -> None:
        """Tell the coordinator that this static member is gone for good; best effort."""
        await self.call_thread(self._leave_group)

    async def _leave_group(self) -> None:
        coordinator = self._ensure_consumer()._coordinator
        if coordinator.generation <= 0:
            return
        request = LeaveGroupRequest(coordinator.group_id, coordinator.member_id)
        try:
            await asyncio.wait_for(coordinator._send_req(request), timeout=2.0)
        except (KafkaError, TimeoutError) as error:
            log.warning("group.leave_failed", error=type(error).__name__)
        else:
            log.info("group.left")


class BatchConsumer(driver.Consumer):
    """A faust consumer that feeds its app in batches."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.room = asyncio.Event()
        """Set when a lane has room again."""
        self.parked = asyncio.Event()
        """Set while no poll is under way that a stopped flow would leave behind: it is safe to seek."""
        self.parked.set()
        self._committing = asyncio.Lock()

    def _new_consumer_thread(self) -> ConsumerThread:
        return ConsumerThread(self, loop=self.loop, beacon=self.beacon)

    @property
    def _feeding(self) -> Feeding:
        return cast("Feeding", self.app)

    async def _drain_messages(self, fetcher: Any) -> None:
        """The whole of faust's path from fetch to agent, replaced by one hand-over per partition."""
        while not (self._stopped.is_set() or fetcher._stopped.is_set()):
            records = await self._poll()
            if not self.flow_active:
                continue  # fetched before the flow stopped; perform_seek reads it again
            for tp, batch in records.items():
                await self._feeding.feed(tp, batch)
            await asyncio.sleep(0)

    async def _poll(self) -> Mapping[TP, Records]:
        if not self.flow_active:
            self.parked.set()
            await self.can_resume_flow.wait()
        self.parked.clear()
        wanted = self._feeding.wanted
        if not len(wanted):
            self.room.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.room.wait(), timeout=POLL_S)
            return {}
        return cast(
            "Mapping[TP, Records]", await self._getmany(active_partitions=wanted, timeout=POLL_S)
        )

    async def commit(self, topics: Any = None, start_new_transaction: bool = True) -> bool:
        """Commit what the lanes say is settled, with the group's generation (rule 9)."""
        async with self._committing:
            offsets = self._feeding.committable()
            if not offsets:
                return False
            failpoint("before_commit")
            done = bool(await self._commit(offsets))
            if done:
                self._feeding.committed(offsets)
            return done

    def wake(self) -> None:
        """Ask anew, for a lane has room again."""
        self.room.set()
        cast("ConsumerThread", self._thread).wake()

    async def verify_all_partitions_active(self) -> None:
        """faust's livelock detector watches a path that no record takes here.

        It would cost 1 % of a core while nothing happens: a timer for each of 136 partitions.
        """

    async def leave_group(self) -> None:
        """See `ConsumerThread.leave_group`."""
        await cast("ConsumerThread", self._thread).leave_group()


class Transport(driver.Transport):
    """faust's Kafka transport with our consumer."""

    Consumer: ClassVar[type[driver.Consumer]] = BatchConsumer
