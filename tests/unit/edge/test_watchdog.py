"""A process whose event loop stands is ended from outside of it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

from streams.edge.watchdog import Watchdog

TICK_S = 0.01


def test_a_loop_that_does_not_turn_is_told_of() -> None:
    """No probe of /healthz could be answered, and no task could say so."""
    told: list[str] = []
    ended = threading.Event()

    def end(reason: str) -> None:
        told.append(reason)
        ended.set()

    loop = asyncio.new_event_loop()  # it never runs
    Watchdog(5, end, tick_s=TICK_S).start(loop)

    assert ended.wait(timeout=30)
    assert ["the event loop did not turn for 0 s"] == told
    loop.close()


def test_a_loop_that_turns_is_left_alone() -> None:
    """However many ticks pass: here more than the bound, counted and not timed."""
    told: list[str] = []

    async def turn_often() -> None:
        dog = Watchdog(100, told.append, tick_s=TICK_S)
        dog.start(asyncio.get_running_loop())
        for _ in range(200):
            await asyncio.sleep(TICK_S)
        dog.stop()

    asyncio.run(turn_often())

    assert [] == told


def test_the_process_ends_with_the_reason_and_where_it_stood() -> None:
    """interface.md §1: exit 1 and one clear line; then the stacks, which hold names only."""
    code = (
        "import asyncio, time\n"
        "from streams.edge.watchdog import Watchdog, end_process\n"
        "async def stand():\n"
        "    Watchdog(3, end_process, tick_s=0.01).start(asyncio.get_running_loop())\n"
        "    time.sleep(60)\n"
        "asyncio.run(stand())\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=False
    )

    assert 1 == done.returncode
    assert done.stderr.startswith("outbox: the event loop did not turn")
    assert "in stand" in done.stderr
