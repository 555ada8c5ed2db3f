"""`outbox worker` as the chaos rounds start it: the product, in some respects set otherwise.

- Its wall clock is wrong by the milliseconds that the file CHAOS_CLOCK says at that moment.
- It starts although topics keep less than they ought to, so that a round meets compaction and
  retention (CHAOS_COMPACTS).
- Its stores flush their write buffers at CHAOS_WRITE_BUFFER_BYTES.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path

from streams import app
from streams.__main__ import main
from streams.edge import store
from streams.edge.clock import Clock
from streams.settings import Settings
from streams.topics import Problem, check


async def _check_all_but_times(settings: Settings) -> list[Problem]:
    times = ("min.compaction.lag.ms=", "retention.ms=")
    return [p for p in await check(settings) if not any(name in p.what for name in times)]


def _run() -> None:
    offset = os.environ.get("CHAOS_CLOCK")
    if offset:
        right, file = Clock.now_ms, Path(offset)
        set_wrong = lambda clock: right(clock) + int(file.read_text())  # noqa: E731
        setattr(Clock, "now_ms", set_wrong)  # noqa: B010 - mypy has no say
    if os.environ.get("CHAOS_COMPACTS"):
        setattr(app, "check", _check_all_but_times)  # noqa: B010 - as above
    buffer = os.environ.get("CHAOS_WRITE_BUFFER_BYTES")
    if buffer:
        small = partial(store.bounded_options, write_buffer_bytes=int(buffer), cache_bytes=32 << 20)
        setattr(store, "_ledger_options", small)  # noqa: B010 - as above
    sys.argv[1:] = ["worker"]
    main()


if __name__ == "__main__":
    _run()
