"""`outbox worker` as the chaos rounds start it: the product, in two respects set otherwise.

- Its wall clock is wrong by CHAOS_SKEW_MS.
- It starts although topics keep less than they ought to, so that a round meets compaction and
  retention (CHAOS_COMPACTS).
"""

from __future__ import annotations

import os
import sys

from streams import app
from streams.__main__ import main
from streams.edge.clock import Clock
from streams.settings import Settings
from streams.topics import Problem, check


async def _check_all_but_times(settings: Settings) -> list[Problem]:
    times = ("min.compaction.lag.ms=", "retention.ms=")
    return [p for p in await check(settings) if not any(name in p.what for name in times)]


def _run() -> None:
    skew_ms = int(os.environ.get("CHAOS_SKEW_MS", "0"))
    if skew_ms:
        right = Clock.now_ms
        setattr(Clock, "now_ms", lambda clock: right(clock) + skew_ms)  # noqa: B010 - mypy has no say
    if os.environ.get("CHAOS_COMPACTS"):
        setattr(app, "check", _check_all_but_times)  # noqa: B010 - as above
    sys.argv[1:] = ["worker"]
    main()


if __name__ == "__main__":
    _run()
