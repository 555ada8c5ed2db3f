from __future__ import annotations

import asyncio
import socket
import threading
from ipaddress import ip_address, ip_network

import pytest

from streams.edge.addresses import LOOKUPS_MAX, Address, Resolver, look_up
from streams.model.faults import fault_of

PUBLIC = "93.184.216.34"


class Names:
    """A name service that answers from a list, then repeats its last answer."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = 0

    def __call__(self, host):
        answer = self.answers[min(self.asked, len(self.answers) - 1)]
        self.asked += 1
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_what_was_checked_is_what_is_dialled():
    """
    C-10, field case C04: a name that answers differently a moment later is not asked again.
    """
    names = Names([PUBLIC], ["169.254.169.254"])
    resolver = Resolver(allowed_networks=(), lookup=names)

    first = await resolver.resolve("rebind.example", 443)
    second = await resolver.resolve("rebind.example", 443)

    assert (Address(socket.AF_INET, (PUBLIC, 443)),) == first == second
    assert names.asked == 1


async def test_an_answer_is_judged_anew_once_it_is_old():
    """C-10, field case C04: a retry hours later is not let through by an old judgement."""
    resolver = Resolver(allowed_networks=(), lookup=Names([PUBLIC], ["169.254.169.254"]), ttl_s=0.0)

    await resolver.resolve("rebind.example", 443)

    assert fault_of("address_forbidden") == await resolver.resolve("rebind.example", 443)


async def test_a_name_is_looked_up_anew_after_its_addresses_failed():
    """A fail-over is followed at the next attempt, not half a minute later."""
    names = Names([PUBLIC], ["93.184.216.35"])
    resolver = Resolver(allowed_networks=(), lookup=names)
    await resolver.resolve("moved.example", 80)

    resolver.forget("moved.example")

    found = await resolver.resolve("moved.example", 80)
    assert (Address(socket.AF_INET, ("93.184.216.35", 80)),) == found


@pytest.mark.parametrize(
    "answers", [[PUBLIC, "10.0.0.5"], ["2606:4700::1111", "::1"], ["fe80::1%lo"]]
)
async def test_a_name_with_a_forbidden_address_is_refused(answers):
    """C-10, field case C05: A and AAAA are both judged, and one spoils the set."""
    resolver = Resolver(allowed_networks=(), lookup=Names(answers))

    assert fault_of("address_forbidden") == await resolver.resolve("multi.example", 443)


async def test_a_refusal_is_not_remembered():
    """A name that is corrected works at once."""
    resolver = Resolver(allowed_networks=(), lookup=Names(["10.0.0.5"], [PUBLIC]))

    await resolver.resolve("fixed.example", 443)

    assert isinstance(await resolver.resolve("fixed.example", 443), tuple)


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (socket.gaierror(socket.EAI_NONAME, ""), "name_not_found"),
        (socket.gaierror(socket.EAI_NODATA, ""), "name_not_found"),
        (socket.gaierror(socket.EAI_AGAIN, ""), "name_temporary"),
        (socket.gaierror(socket.EAI_FAIL, ""), "name_temporary"),
        (OSError("too many open files"), "name_temporary"),
        (UnicodeError("label too long"), "name_not_found"),
        ([], "name_not_found"),
    ],
)
async def test_each_way_a_look_up_fails_has_its_code(failure, code):
    """Field case B19: "no such name" and "ask again later" are different news."""
    resolver = Resolver(allowed_networks=(), lookup=Names(failure))

    assert fault_of(code) == await resolver.resolve("gone.example", 443)


async def test_an_address_is_judged_and_never_looked_up():
    """C-10: a literal needs no name service, and gets no less a judgement."""
    names = Names([PUBLIC])
    resolver = Resolver(allowed_networks=(ip_network("10.0.0.0/8"),), lookup=names)

    allowed = await resolver.resolve("10.0.0.5", 80, ip_address("10.0.0.5"))
    refused = await resolver.resolve("127.0.0.1", 80, ip_address("127.0.0.1"))

    assert (Address(socket.AF_INET, ("10.0.0.5", 80)),) == allowed
    assert fault_of("address_forbidden") == refused
    assert names.asked == 0


async def test_repeated_answers_are_dialled_once_in_the_resolvers_order():
    """getaddrinfo repeats an address per protocol; its order is RFC 6724's and is kept."""
    answers = ["2606:4700::1111", PUBLIC, "2606:4700::1111"]
    resolver = Resolver(allowed_networks=(), lookup=Names(answers))

    expected = (
        Address(socket.AF_INET6, ("2606:4700::1111", 443)),
        Address(socket.AF_INET, (PUBLIC, 443)),
    )
    assert expected == await resolver.resolve("two.example", 443)


async def test_calls_for_one_name_share_one_look_up_and_survive_each_other():
    """C-08: a dead name costs one thread, however many deliveries wait for it."""
    let_go = threading.Event()
    names = Names([PUBLIC])

    def slow(host):
        let_go.wait()
        return names(host)

    resolver = Resolver(allowed_networks=(), lookup=slow)
    impatient, patient = (
        asyncio.create_task(resolver.resolve("slow.example", 443)) for _ in range(2)
    )
    await asyncio.sleep(0)
    impatient.cancel()
    let_go.set()

    assert (Address(socket.AF_INET, (PUBLIC, 443)),) == await patient
    assert names.asked == 1


async def test_look_ups_at_one_time_are_bounded():
    """C-08: a resolver that is down does not fill the worker with threads."""
    let_go = threading.Event()
    running: list[str] = []

    def slow(host):
        running.append(host)
        let_go.wait()
        return [PUBLIC]

    resolver = Resolver(allowed_networks=(), lookup=slow)
    calls = [
        asyncio.create_task(resolver.resolve(f"n{each}.example", 443))
        for each in range(LOOKUPS_MAX + 1)
    ]
    while len(running) < LOOKUPS_MAX:  # noqa: ASYNC110  # threads set no event of the loop
        await asyncio.sleep(0.001)
    threads = [each for each in threading.enumerate() if each.name == "name-lookup"]
    let_go.set()
    await asyncio.gather(*calls)

    assert LOOKUPS_MAX == len(threads)
    assert LOOKUPS_MAX + 1 == len(running)


async def test_the_memory_of_names_is_bounded(monkeypatch):
    """A million inbox hosts seen once each must not stay for ever."""
    monkeypatch.setattr("streams.edge.addresses.CACHED_MAX", 2)
    names = Names([PUBLIC])
    resolver = Resolver(allowed_networks=(), lookup=names)
    for host in ("a.example", "b.example", "c.example"):
        await resolver.resolve(host, 443)

    await resolver.resolve("c.example", 443)
    await resolver.resolve("a.example", 443)

    assert names.asked == 4


async def test_closing_ends_the_waiting_for_look_ups():
    """A worker that stops does not wait for a resolver that does not answer."""
    let_go = threading.Event()

    def slow(host):
        let_go.wait()
        return []

    resolver = Resolver(allowed_networks=(), lookup=slow)
    call = asyncio.create_task(resolver.resolve("slow.example", 443))
    await asyncio.sleep(0)

    await resolver.close()

    with pytest.raises(asyncio.CancelledError):
        await call
    let_go.set()


async def test_a_bug_in_a_look_up_is_raised_and_not_waited_for():
    """Only the world's failures are values; a fault of ours must be seen."""
    resolver = Resolver(allowed_networks=(), lookup=Names(KeyError("bug")))

    with pytest.raises(KeyError):
        await resolver.resolve("any.example", 443)


def test_the_system_finds_localhost():
    """The look-up that is used when none is given; /etc/hosts is enough for it."""
    assert {"127.0.0.1", "::1"} & set(look_up("localhost"))
