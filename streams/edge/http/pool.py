"""Who may use or open a connection: bounds for each target, and one for the process.

Every open connection, and every one that is being opened, holds one place in its target's lane and
one in the process. A place is freed when the connection is closed, by whichever side.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import ssl

    from streams.edge.http.call import Limits
    from streams.edge.http.connection import Connection
    from streams.rules.addresses import Origin

IDLE_S: Final = 4.0
"""How long an idle connection is kept.

Shorter than what servers keep theirs for (Node, Apache httpd and uvicorn 5 s, load balancers 60 s,
nginx 75 s): a request that meets the server's close is ambiguous and cannot be repeated safely,
whereas a new connection costs a round trip or two.
"""

SWEEP_S: Final = 1.0
"""How often idle connections are looked through. Until then a target may have more than `max_idle`:
between two calls of a busy target lies its next claim, and closing what is needed again in 10 ms cost
10 % of a delivery (py-spy: connecting)."""


class Lane:
    """One target's share of the pool."""

    __slots__ = ("idle", "key", "limits", "open", "waiters")

    def __init__(self, key: str, limits: Limits) -> None:
        self.key = key
        self.limits = limits
        self.open = 0
        self.idle: list[Connection] = []
        self.waiters: deque[asyncio.Future[Connection | None]] = deque()


class Pool:
    """Hands connections out, last used first. Belongs to one event loop."""

    def __init__(self, *, max_connections_total: int) -> None:
        self._total_max = max_connections_total
        self._open = 0
        self._lanes: dict[str, Lane] = {}
        self._starved: dict[Lane, None] = {}
        """Lanes that wait for the process's bound, not for their own; in the order of waiting."""
        self._connections: set[Connection] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    @property
    def open_connections(self) -> int:
        """How many places are taken in the process."""
        return self._open

    def open_to(self, target: str) -> int:
        """How many places `target` takes."""
        lane = self._lanes.get(target)
        return 0 if lane is None else lane.open

    def take(
        self, target: str, origin: Origin, context: ssl.SSLContext | None, *, now: float
    ) -> Connection | None:
        """Give an idle connection that is fit for a request, or None. Closes the unfit it meets."""
        lane = self._lanes.get(target)
        if lane is None:
            return None
        while lane.idle:
            connection = lane.idle.pop()
            if (
                now - connection.idle_since < IDLE_S
                and connection.leads_to(origin, context)
                and connection.is_quiet(now=now)
            ):
                return connection
            connection.close()
        return None

    async def admit(self, target: str, limits: Limits) -> Connection | None:
        """Wait, first come first served, for a connection or for the place to open one (None)."""
        lane = self._lanes.get(target)
        if lane is None:
            lane = self._lanes[target] = Lane(target, limits)
        lane.limits = limits
        if not lane.waiters and self._has_room(lane):
            self._occupy(lane)
            return None
        waiter: asyncio.Future[Connection | None] = asyncio.get_running_loop().create_future()
        lane.waiters.append(waiter)
        if lane.open < limits.max_connections:
            self._starved[lane] = None
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._return(lane, waiter.result())
            elif waiter in lane.waiters:  # not so if its turn was passed over meanwhile
                lane.waiters.remove(waiter)
                self._discard(lane)
            raise

    def adopt(self, connection: Connection) -> None:
        """Let a new connection keep the place that was taken for it."""
        self._connections.add(connection)

    def give_back(self, connection: Connection) -> None:
        """Take a connection after its call: to a waiter, among the idle, or closed."""
        if not connection.is_reusable or self._closed:
            connection.close()
            return
        lane = self._lanes[connection.lane]
        if self._starved and not self._is_next(lane):
            connection.close()
            return
        while lane.waiters:
            waiter = lane.waiters.popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return
        if self._starved or lane.limits.max_idle == 0:
            connection.close()
            return
        lane.idle.append(connection)
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(SWEEP_S, self._drop_idle)

    def forget(self, connection: Connection) -> None:
        """Free the place of a connection that was closed."""
        if connection not in self._connections:
            return  # never adopted: its place is still with whoever opens it
        self._connections.discard(connection)
        idle = self._lanes[connection.lane].idle
        if connection in idle:
            idle.remove(connection)
        self.vacate(connection.lane)

    def vacate(self, target: str) -> None:
        """Free a place, and give it to whoever waits longest for one."""
        lane = self._lanes[target]
        lane.open -= 1
        self._open -= 1
        for starved in list(self._starved):
            if self._open < self._total_max:
                self._grant(starved)
        self._grant(lane)
        self._discard(lane)

    def close(self) -> None:
        """Close every connection; calls in flight see it closed, those that wait are let go."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for lane in list(self._lanes.values()):
            while lane.waiters:
                waiter = lane.waiters.popleft()
                if not waiter.done():
                    self._occupy(lane)
                    waiter.set_result(None)
        self._starved.clear()
        for connection in list(self._connections):
            connection.close()

    def _has_room(self, lane: Lane) -> bool:
        if lane.open >= lane.limits.max_connections:
            return False
        if self._open >= self._total_max:
            self._evict_idle()
        return self._open < self._total_max

    def _is_next(self, lane: Lane) -> bool:
        """Whether `lane` may keep its place in a full process, whose places go round."""
        first = next(iter(self._starved))
        if first is not lane:
            return False
        del self._starved[lane]
        if len(lane.waiters) > 1:
            self._starved[lane] = None
        return True

    def _occupy(self, lane: Lane) -> None:
        lane.open += 1
        self._open += 1

    def _grant(self, lane: Lane) -> None:
        """Give one waiter of `lane` a place, if there is room; keep its turn in mind if not."""
        self._starved.pop(lane, None)
        while lane.waiters and lane.open < lane.limits.max_connections:
            if self._open >= self._total_max:
                self._starved[lane] = None
                return
            waiter = lane.waiters.popleft()
            if not waiter.done():
                self._occupy(lane)
                waiter.set_result(None)

    def _return(self, lane: Lane, granted: Connection | None) -> None:
        """Pass on what a waiter was given and could not take."""
        if granted is None:
            self.vacate(lane.key)
        else:
            self.give_back(granted)

    def _evict_idle(self) -> None:
        """Close the connection that is idle longest, of whichever target."""
        idle = [lane.idle[0] for lane in self._lanes.values() if lane.idle]
        if idle:
            min(idle, key=lambda connection: connection.idle_since).close()

    def _drop_idle(self) -> None:
        loop = asyncio.get_running_loop()
        too_old = loop.time() - IDLE_S
        self._sweep = None
        unused = loop.time() - SWEEP_S
        for lane in list(self._lanes.values()):
            beyond = len(lane.idle) - lane.limits.max_idle
            for place, connection in enumerate(list(lane.idle)):  # longest idle first
                since = connection.idle_since
                if since <= too_old or (place < beyond and since <= unused):
                    connection.close()
        if any(lane.idle for lane in self._lanes.values()):
            self._sweep = loop.call_later(SWEEP_S, self._drop_idle)

    def _discard(self, lane: Lane) -> None:
        """Forget a lane that holds nothing, so that inbox URLs seen once do not pile up."""
        if not lane.open and not lane.waiters and self._lanes.get(lane.key) is lane:
            del self._lanes[lane.key]
            self._starved.pop(lane, None)
