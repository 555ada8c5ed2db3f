"""The group consumer's fetches, paced.

aiokafka asks for every partition anew in each fetch, knowing no fetch sessions, and asks again as soon as
one was answered. A worker of 8 partitions reads 128 of them: a fetch costs 1 ms of the GIL, and at 700
activities a second, produced one by one, asking took a seventh of a worker (py-spy). Paced, the median from
produce to call was 82 and 138 ms, not 155 and 172 (bench `latency` at 900/s, busy machine, in turn).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any, Final

FETCH_APART_S: Final = 0.01
"""Between two fetches from one broker, at least. The first after a rest is sent at once."""

Send = Callable[[Any, int, Any], Awaitable[bool]]


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
