"""The group consumer's fetches: what each names, and how close one follows the other.

aiokafka names every partition anew in each fetch, knowing no fetch sessions, and asks again as soon as
one was answered. A worker of 8 partitions reads 128 of them: a fetch costs 1 ms of the GIL, though records
come from 8. So partitions that had records of late are *warm* and asked for by themselves, and all together
once in `ALL_APART_S`; with none warm, every fetch names all and waits long. At 700 activities a second,
produced one by one, the consumer's thread used 149 µs of CPU an activity, not 237, and the median from
produce to call was 25 ms, not 39 (schedstat, one window of 4 s each, busy machine).

Topics that nobody reads, as faust's changelog and those without an agent, are assigned and never asked for.

Two fetches from one broker are sent no closer than `FETCH_APART_S`: paced, the median from produce to call
was 82 and 138 ms, not 155 and 172 (bench `latency` at 900/s, busy machine, in turn).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final

FETCH_APART_S: Final = 0.01
"""Between two fetches from one broker, at least. The first after a rest is sent at once."""

ALL_APART_S: Final = 0.1
"""While some partitions are warm, all are asked for this often: what the first record of another waits."""

LONG_POLL_MS: Final = 1_000
"""How long a fetch waits for records where no partition is warm; any record ends it. Half of it, and
fetches that name what nobody reads, let an idle worker of 8 partitions use 1.3 % of a core, not 1.0 (20 s
each, in turn). A takeover waits as long at most, behind a fetch of the assignment that is over."""

WARM_S: Final = 1.0
"""How long a partition stays warm after its last record."""

Send = Callable[[Any, int, Any], Awaitable[bool]]
Actions = tuple[list[tuple[int, Any]], Any, float, bool, Any]
"""Fetches by broker, resets by broker, seconds until the next look, whether a leader is unknown, and
futures of paused partitions: what aiokafka's `Fetcher._get_actions_per_node` says is to be done."""


def tuned(fetcher: Any, reads: Callable[[str], bool]) -> None:
    """Have an aiokafka `Fetcher` ask as this module says.

    Args:
        reads: Whether anybody reads a topic.
    """
    fetcher._proc_fetch_request = paced(fetcher._proc_fetch_request)
    fetcher._get_actions_per_node = WarmFirst(fetcher, reads).actions


class WarmFirst:
    """Says which partitions the next fetch names.

    A look at the warm ones goes through aiokafka's own code, with an assignment that holds no others, so
    that positions, pauses, resets, leaders and unread records mean what they mean to it.

    Args:
        fetcher: aiokafka's; its `_get_actions_per_node` is asked, and what it holds unread is looked at.
        reads: Whether anybody reads a topic: what is fetched in vain would stay in memory as well.
    """

    def __init__(self, fetcher: Any, reads: Callable[[str], bool]) -> None:
        self._fetcher = fetcher
        self._reads = reads
        self._look: Callable[[Any], Actions] = fetcher._get_actions_per_node
        self._wait_ms: int = fetcher._fetch_max_wait_ms
        self._assignment: Any = None
        self._read: tuple[Any, ...] = ()
        """The partitions of the assignment that anybody reads."""
        self._warm: dict[Any, float] = {}
        """Topic partition to when records of it last came or were read."""
        self._unread: dict[Any, tuple[Any, int | None]] = {}
        """Topic partition to what of it lay unread at the last look, and from which offset on."""
        self._all_due: dict[int, float] = {}
        """Broker to when it is next to be asked for all; one that could not be asked is not in it."""

    def actions(self, assignment: Any) -> Actions:
        """As `Fetcher._get_actions_per_node`, of the partitions whose turn it is."""
        now = asyncio.get_running_loop().time()
        self._note(assignment, now)
        if not self._warm:
            return self._ask_all(assignment, self._wait_ms, now)
        free = [at for node, at in self._all_due.items() if node not in self._fetcher._in_flight]
        due = min(free, default=now + ALL_APART_S if self._all_due else now)
        actions = self._ask(_Part(assignment, tuple(self._warm)), _ms(due - now))
        # A broker that leads a partition since the last look at all is due, too.
        if due <= now or any(node not in self._all_due for node, _ in actions[0]):
            # What lies unread is not named, and must not wait for others' records once it was read.
            is_unread = not self._warm.keys().isdisjoint(self._unread)
            wait_ms = _ms(ALL_APART_S) if is_unread else self._wait_ms
            actions = self._ask_all(assignment, wait_ms, now)
        requests, resets, timeout, is_unknown, resumed = actions
        return requests, resets, min(timeout, ALL_APART_S), is_unknown, resumed

    def _note(self, assignment: Any, now: float) -> None:
        if assignment is not self._assignment:
            self._assignment = assignment
            self._read = tuple(tp for tp in assignment.tps if self._reads(tp.topic))
            self._warm = {}
            self._all_due = {}
            self._unread = {}
        self._warm = {tp: at for tp, at in self._warm.items() if now - at < WARM_S}
        # aiokafka looks after each fetch, before anybody was handed what it brought. Some of it nobody
        # reads for long, where a lane is full: only what moves is warm.
        unread = {
            tp: (result, assignment.state_value(tp)._position)
            for tp, result in self._fetcher._records.items()
            if tp in assignment.tps
        }
        self._warm |= {tp: now for tp, seen in unread.items() if self._unread.get(tp) != seen}
        self._unread = unread

    def _ask_all(self, assignment: Any, wait_ms: int, now: float) -> Actions:
        actions = self._ask(_Part(assignment, self._read), wait_ms)
        busy = self._fetcher._in_flight
        self._all_due = {node: at for node, at in self._all_due.items() if node in busy}
        self._all_due |= {node: now + ALL_APART_S for node, _ in actions[0]}
        return actions

    def _ask(self, assignment: Any, wait_ms: int) -> Actions:
        self._fetcher._fetch_max_wait_ms = wait_ms
        return self._look(assignment)


class _Part:
    """Some partitions of an assignment."""

    __slots__ = ("state_value", "tps")

    def __init__(self, assignment: Any, tps: Collection[Any]) -> None:
        self.tps = tps
        self.state_value = assignment.state_value


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1e3))


def paced(send: Send, *, apart_s: float = FETCH_APART_S) -> Send:
    """Send fetches to each broker no closer than `apart_s`.

    Args:
        send: aiokafka's `Fetcher._proc_fetch_request`: assignment, broker and request to whether there
            is new data. It tells a cancelled fetch, of an assignment that is over, as no new data.
    """
    next_at: defaultdict[int, float] = defaultdict(float)

    async def send_in_time(assignment: Any, node_id: int, request: Any) -> bool:
        loop = asyncio.get_running_loop()
        wait_s = next_at[node_id] - loop.time()
        if wait_s > 0:
            try:
                await asyncio.sleep(wait_s)
            except asyncio.CancelledError:
                return False
        next_at[node_id] = loop.time() + apart_s
        return await send(assignment, node_id, request)

    return send_in_time
