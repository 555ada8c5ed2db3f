"""A target's door: how many calls it has under way, who waits, who steps aside (C-08)."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from dataclasses import dataclass, field

from streams.engine.ports import Time
from streams.rules.pacing import (
    FIRST_LOOK_MS,
    KEY_LOOK_MS,
    LOOKS_PER_S,
    Aside,
    Go,
    Pace,
    Wait,
    aside,
    enter,
    reserve,
    saw,
)


@dataclass(slots=True)
class _Door:
    pace: Pace = field(default_factory=Pace)
    cap: int = 1
    taken: int = 0
    # Not a dict: finding its first entry walks over those that were taken off its front (4 % of a
    # delivery, py-spy).
    calling: OrderedDict[int, float] = field(default_factory=OrderedDict)
    waiting: deque[asyncio.Future[Slot | None]] = field(default_factory=deque)
    last_used: float = 0.0
    rate_free_ms: float = 0.0

    def is_needed(self, now: float, since: float) -> bool:
        """Whether it must not be forgotten.

        It is in use; or it was since then, and knows its target as down, slow to take calls, or limited.
        """
        if self.taken or self.waiting:
            return True
        pace, now_ms = self.pace, now * 1000
        is_careful = pace.faults or pace.asks or pace.open_until_ms or pace.share < 1.0
        is_ahead = pace.next_look_ms > now_ms or self.rate_free_ms > now_ms
        return bool(is_careful or is_ahead) and self.last_used >= since

    def oldest_ms(self, now: float) -> int:
        """Age of the oldest call under way, 0 where there is none."""
        return int((now - next(iter(self.calling.values()), now)) * 1000)

    @property
    def allowed(self) -> int:
        """How many calls may be under way now."""
        return self.pace.allowed(self.cap)

    def is_open(self, now_ms: int) -> bool:
        """Whether one more call may be under way."""
        return self.pace.lets_in(self.cap, self.taken, now_ms)


@dataclass(frozen=True, slots=True)
class StepAside:
    """The delivery is to stay away from its target for `wait_ms`."""

    wait_ms: int
    reason: str


class Slot:
    """The right to have one call under way to a target; to be left exactly once."""

    __slots__ = ("_door", "_gate", "_number")

    def __init__(self, gate: Gate, door: _Door, number: int) -> None:
        self._gate = gate
        self._door = door
        self._number = number

    def call_starts(self) -> None:
        """The claim stands: from here on the time is the target's, not ours."""
        self._gate.started(self._door, self._number)

    def leave(self, *, answered: bool | None, asked_ms: int | None = None) -> None:
        """Give the slot to whoever waits.

        Args:
            answered: None when no call was made.
            asked_ms: How long the target asks not to be called; see `pacing.asks_to_wait`.
        """
        self._gate.left(self._door, self._number, answered, asked_ms)


class Gate:
    """The doors of all targets of this worker process."""

    IDLE_DOORS = 10_000
    """Doors kept; beyond it those that nobody uses, and that have learned nothing, are forgotten."""

    REMEMBERED_S = 600.0
    """How long one is kept at least that has learned to treat its target with care."""

    def __init__(self, time: Time) -> None:
        self._time = time
        # The one used longest ago first.
        self._doors: OrderedDict[str, _Door] = OrderedDict()
        self._numbers = 0

    async def enter(self, target: str, cap: int, rate_per_s: float = 0.0) -> Slot | StepAside:
        """Come to a target's door.

        Args:
            cap: Calls that it may have under way.
            rate_per_s: Calls per second that it takes; 0 is no limit.

        Returns:
            A slot, at once or after a wait while the target keeps its pace; or how long to stay away.
        """
        now = self._time.monotonic()
        door = self._door(target, cap, now)
        if rate_per_s:
            away = await self._keep_rate(door, rate_per_s, now * 1_000)
            if away is not None:
                return away
            now = self._time.monotonic()
        # What `pacing.enter` says of most, without what it takes to ask it: the age of the oldest call.
        if not door.waiting and door.is_open(int(now * 1000)):
            return self._take(door)
        step = self._judge(door, now)
        while isinstance(step, Wait):
            slot = await self._wait(door, step.at_most_ms)
            if slot is not None:
                return slot
            # Our own slowness is no reason to step aside; the target's is.
            step = self._judge(door, self._time.monotonic())
        return self._take(door) if isinstance(step, Go) else self._aside(door, step.reason)

    def keep_away(self, target: str, cap: int, reason: str) -> StepAside:
        """Say how long to stay away from a target that cannot be called for a reason of ours."""
        door = self._door(target, cap, self._time.monotonic())
        return self._aside(door, reason, first_ms=KEY_LOOK_MS, apart_ms=1_000 / LOOKS_PER_S)

    def _door(self, target: str, cap: int, now: float) -> _Door:
        door = self._doors.get(target)
        if door is None:
            self._forget_idle(now)
            door = self._doors[target] = _Door()
        else:
            self._doors.move_to_end(target)
        door.cap = cap
        door.last_used = now
        return door

    async def _keep_rate(self, door: _Door, rate_per_s: float, now_ms: float) -> StepAside | None:
        """Wait for a place within the target's rate, or step aside; a place not used is let pass."""
        place = reserve(door.rate_free_ms, rate_per_s=rate_per_s, now_ms=now_ms)
        if place is None:
            first_ms = int(door.rate_free_ms - now_ms)
            return self._aside(door, "rate_limited", first_ms=first_ms, apart_ms=1_000 / rate_per_s)
        door.rate_free_ms, wait_ms = place
        if wait_ms > 0:
            await asyncio.sleep(wait_ms / 1_000)
        return None

    def _judge(self, door: _Door, now: float) -> Go | Wait | Aside:
        return enter(
            door.pace,
            running=door.taken,
            waiting=len(door.waiting),
            cap=door.cap,
            oldest_ms=door.oldest_ms(now),
            now_ms=int(now * 1000),
        )

    async def _wait(self, door: _Door, at_most_ms: int) -> Slot | None:
        """Stand in line; a slot is taken for us when our turn comes, so that nobody slips in between."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[Slot | None] = loop.create_future()
        door.waiting.append(turn)
        timer = loop.call_later(at_most_ms / 1000, _give_up, door, turn)
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and (slot := turn.result()) is not None:
                slot.leave(answered=None)
            raise
        finally:
            timer.cancel()

    def _take(self, door: _Door) -> Slot:
        self._numbers += 1
        door.taken += 1
        return Slot(self, door, self._numbers)

    def _aside(
        self,
        door: _Door,
        reason: str,
        *,
        first_ms: int = FIRST_LOOK_MS,
        apart_ms: float | None = None,
    ) -> StepAside:
        now = self._time.monotonic()
        door.pace, wait_ms = aside(
            door.pace,
            cap=door.allowed,
            now_ms=int(now * 1000),
            oldest_ms=door.oldest_ms(now),
            first_ms=max(first_ms, FIRST_LOOK_MS),
            apart_ms=apart_ms,
        )
        return StepAside(wait_ms, reason)

    def started(self, door: _Door, number: int) -> None:
        """See `Slot.call_starts`."""
        door.calling[number] = self._time.monotonic()

    def left(self, door: _Door, number: int, answered: bool | None, asked_ms: int | None) -> None:
        """See `Slot.leave`."""
        now = self._time.monotonic()
        now_ms = int(now * 1000)
        door.taken -= 1
        started = door.calling.pop(number, None)
        if answered is not None and started is not None:
            door.pace = saw(
                door.pace,
                answered=answered,
                took_ms=(now - started) * 1000,
                now_ms=now_ms,
                asked_ms=asked_ms,
            )
        # Who stands in line before a target that is left alone is judged anew when its patience ends.
        while door.waiting and door.is_open(now_ms):
            turn = door.waiting.popleft()
            if not turn.done():
                turn.set_result(self._take(door))

    def _forget_idle(self, now: float) -> None:
        """Make room for one door more, looking at two.

        To walk over all of them for each new one stops the loop once there are many, as a soak found with
        16,000 inboxes within ten minutes.
        """
        for _ in range(2):
            if len(self._doors) < self.IDLE_DOORS:
                return
            target, door = next(iter(self._doors.items()))
            if door.is_needed(now, now - self.REMEMBERED_S):
                self._doors.move_to_end(target)
            else:
                del self._doors[target]


def _give_up(door: _Door, turn: asyncio.Future[Slot | None]) -> None:
    if not turn.done():
        door.waiting.remove(turn)
        turn.set_result(None)
