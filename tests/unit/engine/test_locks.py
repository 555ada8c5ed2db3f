"""A lock for each key: first come, first served, and nothing left behind."""

from __future__ import annotations

import asyncio

import pytest

from streams.engine.locks import KeyedLocks


async def turns() -> None:
    """Let everybody who can go on do so."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_free_lock_is_had_at_once_and_gone_when_free():
    """An uncontended lock costs no future, and a million keys leave no locks."""
    locks = KeyedLocks()

    async with locks.hold(b"k"):
        assert (True, 1) == (locks.is_held(b"k"), len(locks))

    assert (False, 0) == (locks.is_held(b"k"), len(locks))


async def test_keys_do_not_wait_for_each_other():
    """C-08: one delivery never waits for another."""
    locks = KeyedLocks()

    async with locks.hold(b"a"), locks.hold(b"b"):
        assert 2 == len(locks)


async def test_those_who_wait_are_served_in_the_order_of_their_coming():
    """A repair behind a claim, a retry behind a redrive: no one is overtaken."""
    locks, order = KeyedLocks(), []

    async def work(number: int) -> None:
        async with locks.hold(b"k"):
            order.append(number)
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        for number in range(10):
            group.create_task(work(number))

    assert list(range(10)) == order
    assert 0 == len(locks)


async def test_one_who_gives_up_waiting_is_passed_over():
    """Cancelled in line: the next one gets the turn."""
    locks, order = KeyedLocks(), []

    async def work(number: int) -> None:
        async with locks.hold(b"k"):
            order.append(number)

    async with locks.hold(b"k"):
        tasks = [asyncio.create_task(work(number)) for number in range(3)]
        await turns()
        tasks[0].cancel()
        await turns()

    await asyncio.wait(tasks)

    assert [1, 2] == order
    assert 0 == len(locks)


async def test_a_turn_that_comes_together_with_the_cancellation_is_passed_on():
    """Or the key would be locked for ever, by nobody."""
    locks, order = KeyedLocks(), []

    async def work(number: int) -> None:
        async with locks.hold(b"k"):
            order.append(number)

    await locks.acquire(b"k")
    first, second = (asyncio.create_task(work(number)) for number in (1, 2))
    await turns()
    locks.release(b"k")
    first.cancel()
    await asyncio.wait({first, second})

    assert [2] == order
    assert 0 == len(locks)


async def test_a_failure_under_the_lock_lets_it_go():
    """Whatever happens in the block."""
    locks = KeyedLocks()

    with pytest.raises(ZeroDivisionError):
        async with locks.hold(b"k"):
            raise ZeroDivisionError

    assert 0 == len(locks)
