"""One append, many who wait for it."""

from __future__ import annotations

import asyncio

import pytest

from streams.engine.durable import durable
from streams.errors import FatalError


def appending() -> asyncio.Future[int]:
    return asyncio.get_running_loop().create_future()


async def test_who_is_cancelled_cancels_nobody_else():
    """A worker that stops lets go of deliveries one by one; the request of all of them goes on."""
    appended = appending()
    first, second = (asyncio.ensure_future(_wait(appended)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    appended.set_result(7)

    assert 7 == await second
    assert first.cancelled()


async def test_who_is_cancelled_as_it_ends_is_cancelled():
    """The append's callback is on its way already, and finds nobody."""
    appended = appending()
    waiting = asyncio.ensure_future(_wait(appended))
    await asyncio.sleep(0)
    appended.set_result(7)
    waiting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await waiting


@pytest.mark.parametrize("is_early", [False, True])
async def test_it_fails_as_the_append_does(is_early):
    """Rule 12: a failed append ends the process, by this exception."""
    appended = appending()
    if is_early:
        appended.set_exception(FatalError("no"))
    else:
        asyncio.get_running_loop().call_soon(appended.set_exception, FatalError("no"))

    with pytest.raises(FatalError, match="no"):
        await durable(appended)


async def test_a_failure_that_nobody_waits_for_any_more_is_not_told_as_lost(caplog):
    """The one who would have heard of it was cancelled; the appender ends the process itself."""
    appended = appending()
    durable(appended).cancel()
    appended.set_exception(FatalError("no"))
    await asyncio.sleep(0)
    del appended

    assert "" == caplog.text


async def test_a_cancelled_append_is_cancelled_for_all():
    appended = appending()
    own = durable(appended)
    appended.cancel()

    with pytest.raises(asyncio.CancelledError):
        await own


async def _wait(appended: asyncio.Future[int]) -> int:
    return await durable(appended)
