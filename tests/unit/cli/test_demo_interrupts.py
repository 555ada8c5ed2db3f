"""An interrupt ends what a loop runs between two of its steps, and is never lost."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from unittest.mock import patch

import pytest

from streams.cli.demo.interrupts import interruptible, run

ENDING = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.mark.parametrize("number", ENDING)
def test_what_runs_is_cancelled_and_ends_in_order(number: signal.Signals) -> None:
    seen: list[str] = []

    async def work() -> None:
        os.kill(os.getpid(), number)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            seen.append("tidied up")
            raise

    with interruptible(), pytest.raises(KeyboardInterrupt):
        run(work)

    assert ["tidied up"] == seen


def test_an_interrupt_while_the_loop_is_made_waits_until_it_is() -> None:
    """Raised there, Python tells of a half-made loop, and of a coroutine that was never awaited."""
    made = asyncio.new_event_loop

    def interrupted() -> asyncio.AbstractEventLoop:
        os.kill(os.getpid(), signal.SIGINT)
        return made()

    async def work() -> None:
        await asyncio.sleep(60)

    with (
        patch("asyncio.events.new_event_loop", interrupted),
        interruptible(),
        pytest.raises(KeyboardInterrupt),
    ):
        run(work)


def test_an_interrupt_that_the_work_outlives_is_told_after_it() -> None:
    seen: list[str] = []

    async def work() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        seen.append("done")

    with interruptible(), pytest.raises(KeyboardInterrupt):
        run(work)

    assert ["done"] == seen


def test_without_an_interrupt_the_result_is_given_and_the_handlers_are_as_before() -> None:
    before = [signal.getsignal(number) for number in ENDING]

    async def work() -> int:
        return 7

    assert 7 == run(work)
    assert before == [signal.getsignal(number) for number in ENDING]


def test_a_cancellation_of_the_works_own_is_no_interrupt() -> None:
    async def work() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        run(work)


def test_an_interrupted_process_says_nothing_else() -> None:
    """Wherever it is struck: at 300 moments of a process that makes one loop after the other."""
    script = """
import asyncio, os, random, signal, threading, time
from streams.cli.demo.interrupts import interruptible, run

may_strike = threading.Semaphore(0)

def strike():
    chance = random.Random(1)
    for _ in range(300):
        may_strike.acquire()
        time.sleep(chance.uniform(0, 0.002))
        os.kill(os.getpid(), signal.SIGINT)

async def work():
    await asyncio.sleep(0)

with interruptible():
    threading.Thread(target=strike, daemon=True).start()
    for _ in range(300):
        try:
            may_strike.release()
            while True:
                run(work)
        except KeyboardInterrupt:
            pass
"""
    process = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert (0, "", "") == (process.returncode, process.stdout, process.stderr)
