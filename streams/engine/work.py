"""Work in flight: a bound on it, the deliveries of one record, tasks whose failure ends the process."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final

from streams.engine.delivery import Deliverer
from streams.engine.lanes import Lane, Record
from streams.engine.trigger import Trigger

FOLLOW_UPS: Final = 3
"""Deliveries whose follow-up is being written, for each that may be under way; beyond it they keep their
places until that is done."""

TURN: Final = 32
"""Places that a lane takes one after the other while others wait. Deliveries of few partitions then go
through the worker together, and share the batches of few: 330 µs of a worker's CPU a delivery where 375
were, 2,590 a second where 1,930 were (64 in flight, 8 partitions, median of four in turn, busy machine)."""


class Tasks:
    """Tasks of which none may fail unseen: an unexpected exception ends the process, unacknowledged."""

    def __init__(self, fatal: Callable[[BaseException], None]) -> None:
        self._fatal = fatal
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task and keep it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fatal(error)

    async def drain(self, timeout_s: float) -> int:
        """Wait until all are done, at most so long; say how many are not."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=timeout_s)
        return len(self._tasks)

    def cancel(self) -> None:
        """Cancel what is left."""
        for task in list(self._tasks):
            task.cancel()


class Runner:
    """Runs the deliveries of records, within a bound over the whole worker.

    A delivery is under way, and has a place, until the ledger says what became of it. That its receipt is
    written, too, holds up no other: with 64 places a delivery held its own for 36 ms, 8 of them for that
    (medians at 1,384 deliveries/s), and others waited for it.
    """

    def __init__(self, deliverer: Deliverer, tasks: Tasks, max_in_flight: int) -> None:
        self._deliverer = deliverer
        self._tasks = tasks
        self._room = _Room(max_in_flight)
        self._follow_ups = _Room(FOLLOW_UPS * max_in_flight)
        self._hands: list[asyncio.Future[_Job]] = []
        """Tasks that wait for a delivery to make."""
        self._in_hand = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self.closed = False
        """Set when the worker stops: nothing new is started, what runs goes on to its end."""

    @property
    def in_flight(self) -> int:
        """Deliveries under way."""
        return self._room.taken

    async def run(self, lane: Lane, record: Record, triggers: list[Trigger]) -> None:
        """Start every delivery of a record, each as room allows; returns when all are started.

        The record is settled when all of them say that they need nothing more.
        """
        work = _RecordWork(lane, record, len(triggers))
        for trigger in triggers:
            if not self._room.take():
                await self._room.acquire()
            if self.closed:
                self._room.release()
                return
            self._in_hand += 1
            self._idle.clear()
            self._hand_out(_Job(work, trigger, self._room, self._follow_ups))

    def run_later(self, lane: Lane, record: Record, triggers: list[Trigger]) -> None:
        """As `run`, for a caller that cannot wait."""
        self._tasks.spawn(self.run(lane, record, triggers))

    async def drain(self, timeout_s: float) -> int:
        """Start nothing new, wait for what runs; say how many deliveries were left."""
        self.closed = True
        for hand in self._hands:
            hand.cancel()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), timeout=timeout_s)
        return self._in_hand

    def _hand_out(self, job: _Job) -> None:
        while self._hands:
            hand = self._hands.pop()
            if not hand.done():  # else it was cancelled
                hand.set_result(job)
                return
        self._tasks.spawn(self._deliver(job))

    async def _deliver(self, job: _Job) -> None:
        """Make one delivery after the other: a task for each costs 1.5 µs more (process time, in turn)."""
        while True:
            try:
                job.work.done(await self._deliverer.on_trigger(job.trigger, job.move_on))
            finally:
                self._in_hand -= 1
                if not self._in_hand:
                    self._idle.set()
                job.room.release()
            if self.closed:
                return
            hand: asyncio.Future[_Job] = asyncio.get_running_loop().create_future()
            self._hands.append(hand)
            job = await hand


class _Room:
    """Places for deliveries. Who waits longest has its turn first, and takes up to `TURN` in it.

    In place of asyncio.Semaphore, which in Python 3.11 looks at every waiter on each acquire (3 % of a
    delivery, py-spy).
    """

    def __init__(self, places: int) -> None:
        self._places = places
        self._free = places
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._has_turn = False
        """Somebody that waited was woken, and takes what it needs before others are."""
        self._left = 0
        """Places that it may still take."""

    @property
    def taken(self) -> int:
        """Places that somebody has."""
        return self._places - self._free

    def take(self) -> bool:
        """Take a place, if one is free and whoever waits for it had its turn; says whether."""
        if not self._free:
            return False
        if self._waiting:
            if not self._left:
                return False
            self._left -= 1
        self._free -= 1
        return True

    async def acquire(self) -> None:
        """Wait for a place."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release()  # the place came together with the cancellation: pass it on
            raise

    def release(self) -> None:
        """Give a place back."""
        self._free += 1
        if self._waiting and not self._has_turn:
            self._wake_next()

    def _wake_next(self) -> None:
        """Give whoever waits longest a place, and its turn."""
        self._has_turn = False
        self._left = 0
        while self._waiting and self._free:
            turn = self._waiting.popleft()
            if not turn.done():
                self._free -= 1
                self._has_turn = True
                self._left = TURN - 1
                turn.set_result(None)
                # Behind the one that was woken: what it leaves is the next one's.
                turn.get_loop().call_soon(self._wake_next)
                return


class _RecordWork:
    """Counts a record's deliveries down."""

    __slots__ = ("_lane", "_left", "_record")

    def __init__(self, lane: Lane, record: Record, deliveries: int) -> None:
        self._lane = lane
        self._record = record
        self._left = deliveries

    def done(self, settled: bool) -> None:
        """One delivery came back; a record with one that may not be acknowledged is never settled."""
        if settled:
            self._left -= 1
            if self._left == 0:
                self._lane.settle(self._record)


class _Job:
    """A delivery to make.

    Attributes:
        room: Where it has a place.
    """

    __slots__ = ("_follow_ups", "room", "trigger", "work")

    def __init__(self, work: _RecordWork, trigger: Trigger, room: _Room, follow_ups: _Room) -> None:
        self.work = work
        self.trigger = trigger
        self.room = room
        self._follow_ups = follow_ups

    def move_on(self) -> None:
        """Give the place to the next delivery, if there is one among the follow-ups."""
        if self._follow_ups.take():
            self.room.release()
            self.room = self._follow_ups
