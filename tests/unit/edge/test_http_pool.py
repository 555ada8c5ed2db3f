"""Who may use or open a connection, who waits, and that nothing of a call stays behind."""

from __future__ import annotations

import asyncio
import random

import pytest

from streams.edge.http import pool as pool_module
from streams.edge.http.call import Limits
from streams.model.faults import fault_of
from streams.model.observation import Observation
from streams.model.values import replace
from tests.unit.edge.http_peer import (
    OK,
    Link,
    Peer,
    answering,
    call_to,
    ending,
    serving,
    silent,
    transport_of,
    until,
)

SHORT_MS = 150


def test_calls_over_the_cap_of_a_target_wait_for_its_connections(run):
    """O-041: never more than `max_connections` to one target, and every call is made."""

    async def scenario() -> tuple[int, int]:
        async with Peer(serving()) as peer:
            transport = transport_of()
            call = call_to(peer.url, limits=Limits(max_connections=3, max_idle=3))
            seen = await asyncio.gather(*(transport.post(call) for _ in range(20)))
            await transport.close()
            return peer.connections, sum(each.status == 200 for each in seen)

    assert (3, 20) == run(scenario())


def test_a_call_that_finds_no_connection_in_time_is_before_the_request(run):
    """C-05: it waited and wrote nothing; its code says that the target was full."""

    async def scenario() -> tuple[Observation, int]:
        async with Peer(silent) as peer:
            transport = transport_of()
            limits = Limits(max_connections=1, max_idle=1)
            first = asyncio.create_task(transport.post(call_to(peer.url, limits=limits)))
            await until(lambda: len(peer.requests) == 1)
            second = await transport.post(call_to(peer.url, limits=limits, timeout_ms=SHORT_MS))
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            await transport.close()
            return replace(second, duration_ms=0), len(peer.requests)

    assert (Observation(fault=fault_of("pool_timeout")), 1) == run(scenario())


def test_a_full_target_does_not_hold_up_another(run):
    """C-08: one target hangs on all its connections; the other is served."""

    async def scenario() -> int | None:
        async with Peer(silent) as hanging, Peer(serving()) as quick:
            transport = transport_of()
            limits = Limits(max_connections=1, max_idle=1)
            hung = [
                asyncio.create_task(transport.post(call_to(hanging.url, target="h", limits=limits)))
                for _ in range(3)
            ]
            await until(lambda: len(hanging.requests) == 1)
            seen = await transport.post(call_to(quick.url, target="q", limits=limits))
            for each in hung:
                each.cancel()
            await asyncio.gather(*hung, return_exceptions=True)
            await transport.close()
            return seen.status

    assert run(scenario()) == 200


def test_no_more_connections_than_the_cap_are_kept_idle(run, monkeypatch):
    """O-042: at most `max_idle` idle connections to one target, once it is quiet."""
    monkeypatch.setattr("streams.edge.http.pool.SWEEP_S", 0.02)

    async def scenario() -> tuple[int, int]:
        async with Peer(serving()) as peer:
            transport = transport_of()
            call = call_to(peer.url, limits=Limits(max_connections=6, max_idle=2))
            await asyncio.gather(*(transport.post(call) for _ in range(6)))
            busy = transport._pool.open_connections
            while transport._pool.open_connections > 2:  # noqa: ASYNC110 - the pool tells nobody
                await asyncio.sleep(0.005)
            await asyncio.sleep(0.1)
            kept = transport._pool.open_connections
            await transport.close()
            return busy, kept

    assert run(scenario()) == (6, 2)


def test_an_idle_connection_is_closed_before_the_peer_would_close_it(run, monkeypatch):
    """A request that meets the peer's close is ambiguous; an idle connection is not worth that."""

    async def scenario() -> int:
        monkeypatch.setattr(pool_module, "IDLE_S", 0.02)
        monkeypatch.setattr(pool_module, "SWEEP_S", 0.01)
        async with Peer(ending(OK)) as peer:
            transport = transport_of()
            await transport.post(call_to(peer.url))
            await until(lambda: peer.seen_ended == 1)
            kept = transport._pool.open_connections
            await transport.close()
            return kept

    assert run(scenario()) == 0


def test_a_connection_idle_too_long_is_not_used_even_if_nobody_swept_it(run):
    """The age is asked at the moment of use; a loop that was held up sweeps late."""

    async def scenario() -> int:
        async with Peer(serving()) as peer:
            transport = transport_of()
            await transport.post(call_to(peer.url))
            lane = transport._pool._lanes["default/crm"]
            lane.idle[0].idle_since -= pool_module.IDLE_S
            await transport.post(call_to(peer.url))
            await transport.close()
            return peer.connections

    assert run(scenario()) == 2


def test_an_edited_target_gets_a_new_connection(run):
    """Hot reload: a connection to the old place must carry nothing that is meant for the new."""

    async def scenario() -> tuple[int, int]:
        async with Peer(serving()) as old, Peer(serving()) as new:
            transport = transport_of()
            await transport.post(call_to(old.url))
            await transport.post(call_to(new.url))
            assert transport._pool.open_connections == 1
            await transport.close()
            return len(old.requests), len(new.requests)

    assert (1, 1) == run(scenario())


def test_a_waiting_call_of_an_edited_target_is_not_handed_the_old_connection(run):
    """As above, where the connection is passed from call to call and never idle."""

    async def scenario() -> tuple[int, int]:
        async with Peer(serving()) as old, Peer(serving()) as new:
            transport = transport_of()
            limits = Limits(max_connections=1, max_idle=1)
            await asyncio.gather(
                transport.post(call_to(old.url, limits=limits)),
                transport.post(call_to(new.url, limits=limits)),
            )
            await transport.close()
            return len(old.requests), len(new.requests)

    assert (1, 1) == run(scenario())


def test_the_bound_of_the_process_closes_idle_connections_of_others(run):
    """Issue 5, "Isolation": a bound on all connections; idle ones give way to work."""

    async def scenario() -> tuple[int, int]:
        async with Peer(serving()) as peer:
            transport = transport_of(max_connections_total=2)
            for target in ("a", "b", "c"):
                await transport.post(call_to(peer.url, target=target))
            opened = transport._pool.open_connections, transport._pool.open_to("a")
            await transport.close()
            return opened

    assert (2, 0) == run(scenario())


@pytest.mark.parametrize(
    ("asked", "made"), [("aaabc", ["a", "a", "b", "c", "a"]), ("aabbc", ["a", "a", "b", "c", "b"])]
)
def test_the_places_of_a_full_process_go_round(run, asked, made):
    """C-08: under the process's bound a busy target must not keep every place to itself."""

    async def scenario() -> tuple[list[str], int]:
        async with Peer(serving()) as peer:
            transport = transport_of(max_connections_total=1)
            order: list[str] = []

            async def caller(target: str) -> None:
                seen = await transport.post(call_to(peer.url, target=target))
                assert seen.status == 200
                order.append(target)

            await asyncio.gather(*map(caller, asked))
            left = transport._pool.open_connections
            await transport.close()
            return order, left

    assert (made, 1) == run(scenario())


def test_an_evicted_lane_of_the_same_target_keeps_its_count(run):
    """The only idle connection of a full process may be the caller's own, to its old place."""

    async def scenario() -> tuple[int, int]:
        async with Peer(serving()) as old, Peer(serving()) as new:
            transport = transport_of(max_connections_total=1)
            await transport.post(call_to(old.url))
            await transport.post(call_to(new.url))
            counts = transport._pool.open_connections, transport._pool.open_to("default/crm")
            await transport.close()
            return counts

    assert (1, 1) == run(scenario())


@pytest.mark.parametrize("stage", ["reading", "waiting", "connecting"])
def test_a_cancelled_call_frees_its_place(run, monkeypatch, stage):
    """A worker that loses a partition cancels its calls; nothing of them may stay behind."""

    async def scenario() -> tuple[int, int]:
        let_in = Peer(silent)
        async with let_in as peer:
            transport = transport_of()
            if stage == "connecting":

                async def never(*_):
                    await asyncio.Event().wait()

                monkeypatch.setattr(transport._resolver, "resolve", never)
            limits = Limits(max_connections=1, max_idle=1)
            calls = [
                asyncio.create_task(transport.post(call_to(peer.url, limits=limits)))
                for _ in range(2)
            ]
            if stage == "connecting":
                await until(lambda: transport._pool.open_connections == 1)
            else:
                await until(lambda: len(peer.requests) == 1)
            for call in reversed(calls) if stage == "waiting" else calls:
                call.cancel()
            ended = await asyncio.gather(*calls, return_exceptions=True)
            assert all(isinstance(each, asyncio.CancelledError) for each in ended)
            if stage != "connecting":
                await until(lambda: peer.seen_ended == 1)
            left = transport._pool.open_connections, len(transport._pool._lanes)
            await transport.close()
            return left

    assert (0, 0) == run(scenario())


def test_a_waiter_cancelled_as_its_turn_came_passes_it_on(run, monkeypatch):
    """The turn was granted and the cancel came in the same step: the next in line gets it."""

    async def scenario() -> tuple[int | None, int]:
        async with Peer(serving()) as peer:
            transport = transport_of()
            limits = Limits(max_connections=1, max_idle=1)
            call = call_to(peer.url, limits=limits)
            first, second, third = (asyncio.create_task(transport.post(call)) for _ in range(3))
            give_back = transport._pool.give_back

            def give_back_and_cancel(connection):
                give_back(connection)
                monkeypatch.undo()
                second.cancel()

            monkeypatch.setattr(transport._pool, "give_back", give_back_and_cancel)
            await first
            seen = await third
            await asyncio.gather(second, return_exceptions=True)
            assert second.cancelled()
            await transport.close()
            return seen.status, peer.connections

    assert (200, 1) == run(scenario())


def test_a_connection_without_takers_does_not_idle_in_a_full_process(run, monkeypatch):
    """C-08: the next of its target gave up in the same step; the place goes to who still waits."""

    async def scenario() -> int | None:
        async with Peer(serving()) as peer:
            transport = transport_of(max_connections_total=1)
            first, second, other = (
                asyncio.create_task(transport.post(call_to(peer.url, target=target)))
                for target in "aab"
            )
            give_back = transport._pool.give_back

            def cancel_and_give_back(connection):
                monkeypatch.undo()
                second.cancel()
                give_back(connection)

            monkeypatch.setattr(transport._pool, "give_back", cancel_and_give_back)
            await first
            assert transport._pool.open_to("a") == 0
            seen = await other
            await asyncio.gather(second, return_exceptions=True)
            await transport.close()
            return seen.status if second.cancelled() and not transport._pool._starved else None

    assert run(scenario()) == 200


def test_closing_ends_calls_and_lets_waiters_go(run):
    """A worker that stops: calls in flight are after the request, those that waited are before."""

    async def scenario() -> list[str]:
        async with Peer(silent) as peer:
            transport = transport_of()
            call = call_to(peer.url, limits=Limits(max_connections=1, max_idle=1))
            calls = [asyncio.create_task(transport.post(call)) for _ in range(2)]
            await until(lambda: len(peer.requests) == 1)
            await transport.close()
            calls.append(asyncio.create_task(transport.post(call)))
            seen = await asyncio.gather(*calls)
            assert transport._pool.open_connections == 0
            assert peer.connections == 1
            return [each.fault.code for each in seen if each.fault]

    assert ["read_closed", "pool_closed", "pool_closed"] == run(scenario())


def test_targets_called_once_leave_nothing_behind(run):
    """A million inbox URLs seen once each must not stay in memory for ever."""

    async def scenario() -> int:
        async with Peer(answering(OK)) as peer:
            transport = transport_of()
            for each in range(5):
                await transport.post(call_to(peer.url, target=f"inbox-{each}"))
            await until(lambda: transport._pool.open_connections == 0)
            left = len(transport._pool._lanes)
            await transport.close()
            return left

    assert run(scenario()) == 0


@pytest.mark.parametrize("seed", range(3))
def test_no_place_is_lost_whatever_happens_to_calls(run, seed):
    """
    C-08: answers, closes, resets, edits and cancels in a seeded disorder under tight bounds. Every
    call ends, the bounds hold throughout, and every place comes back.
    """
    chance = random.Random(seed)

    async def moody(link: Link) -> None:
        while True:
            await link.request()
            await asyncio.sleep(chance.random() / 500)
            mood = chance.random()
            if mood < 0.1:
                link.reset()
                return
            await link.send(OK)
            if mood < 0.2:
                return

    async def scenario() -> tuple[int, int, int]:
        async with Peer(moody) as here, Peer(moody) as there:
            transport = transport_of(max_connections_total=4)
            limits = Limits(max_connections=2, max_idle=1)
            most = 0

            async def one() -> None:
                nonlocal most
                await asyncio.sleep(chance.random() / 10)
                url = chance.choice([here, there]).url
                target = chance.choice("abcde")
                call = asyncio.create_task(
                    transport.post(call_to(url, target=target, limits=limits, timeout_ms=60_000))
                )
                if chance.random() < 0.2:
                    await asyncio.sleep(chance.random() / 200)
                    call.cancel()
                await asyncio.wait([call])
                most = max(most, transport._pool.open_connections)

            await asyncio.gather(*(one() for _ in range(200)))
            await transport.close()
            return most, transport._pool.open_connections, len(transport._pool._lanes)

    most, left, lanes = run(scenario())

    assert most <= 4
    assert (0, 0) == (left, lanes)
