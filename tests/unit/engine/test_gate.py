"""A target's rate at its door."""

from __future__ import annotations

import asyncio

import pytest

from streams.engine.gate import Gate, Slot, StepAside
from tests.unit.engine.fakes import Time


@pytest.fixture
def slept(monkeypatch):
    """How long was slept; no time passes."""
    waits = []

    async def sleep(wait_s):
        waits.append(wait_s)

    monkeypatch.setattr("streams.engine.gate.asyncio.sleep", sleep)
    return waits


async def test_calls_within_the_rate_wait_in_memory_and_the_rest_step_aside(slept):
    """
    Issue 5: `rate_per_s`; C-08: nothing that waits longer than half a second is held.
    """
    gate = Gate(Time())

    came = [await gate.enter("t", 20, 4.0) for _ in range(5)]

    assert [Slot, Slot, Slot, StepAside, StepAside] == [type(each) for each in came]
    assert [0.25, 0.5] == slept
    assert [(1_000, "rate_limited"), (1_250, "rate_limited")] == [
        (each.wait_ms, each.reason) for each in came if isinstance(each, StepAside)
    ]


async def test_a_target_without_a_rate_is_not_held_up(slept):
    gate = Gate(Time())

    came = [await gate.enter("t", 20) for _ in range(5)]

    assert [Slot] * 5 == [type(each) for each in came]
    assert [] == slept


async def test_one_targets_rate_is_no_other_ones(slept):
    """
    C-08: one delivery never waits for another target.
    """
    gate = Gate(Time())

    came = await asyncio.gather(*(gate.enter(f"t{n}", 20, 0.1) for n in range(5)))

    assert [Slot] * 5 == [type(each) for each in came]


async def test_what_cannot_be_signed_is_looked_at_a_bounded_number_of_times():
    """
    C-08: 50 a second, the first after five seconds.
    """
    gate = Gate(Time())

    waits = [gate.keep_away("t", 20, "secret_unavailable").wait_ms for _ in range(3)]

    assert [5_000, 5_020, 5_040] == waits
