"""How a host becomes the addresses that are dialled: looked up once, judged, remembered briefly.

What comes back from here is all that the transport ever connects to; it looks nothing up itself, so
what was checked is what is dialled (C-10, field case C04).
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Sequence
from ipaddress import IPv4Address, ip_address
from typing import TYPE_CHECKING, Final, NamedTuple

from streams.model.faults import fault_of
from streams.model.observation import Fault
from streams.rules.addresses import judge_all

if TYPE_CHECKING:
    from streams.rules.addresses import IpAddress, IpNetwork

Lookup = Callable[[str], Sequence[str]]
"""Gives the IP addresses of a name, as text. May block; raises `socket.gaierror`."""

TTL_S: Final = 30.0
"""How long a vetted answer is dialled again without a new look-up.

getaddrinfo does not tell a record's own TTL. Load balancers publish 60 s, so 30 s follows a
fail-over no later than their own clients do, and spares a busy target's every new connection a
look-up. A retry minutes later always looks up, and is judged, afresh.
"""

LOOKUPS_MAX: Final = 32
"""Look-ups at one time. A resolver that is down holds a thread for each name, 10 to 30 s long."""

CACHED_MAX: Final = 10_000
"""Names remembered at one time; the oldest goes first."""

_NOT_FOUND: Final = frozenset(
    {socket.EAI_NONAME, socket.EAI_NODATA, getattr(socket, "EAI_ADDRFAMILY", socket.EAI_NONAME)}
)


class Address(NamedTuple):
    """One place to dial, already judged: what `socket.socket` and `sock_connect` take."""

    family: int
    sockaddr: tuple[str, int]


class Resolver:
    """Resolves and vets hosts. One for each event loop."""

    def __init__(
        self,
        *,
        allowed_networks: Sequence[IpNetwork],
        lookup: Lookup | None = None,
        ttl_s: float = TTL_S,
    ) -> None:
        self._allowed_networks = tuple(allowed_networks)
        self._lookup = lookup or look_up
        self._ttl_s = ttl_s
        self._vetted: dict[str, tuple[float, tuple[IpAddress, ...]]] = {}
        self._running: dict[str, asyncio.Task[tuple[IpAddress, ...] | Fault]] = {}
        self._threads = asyncio.Semaphore(LOOKUPS_MAX)

    async def resolve(
        self, host: str, port: int, address: IpAddress | None = None
    ) -> tuple[Address, ...] | Fault:
        """Give the addresses of `host` to dial, or the fault that stands in the way.

        Calls for one name share one look-up; a caller that gives up leaves it running for the
        others. Sets no time limit: the caller's deadline does.

        Args:
            host: A name; ignored when `address` is given.
            port: Copied into each address.
            address: The host itself, when it is an IP address: judged, never looked up.
        """
        if address is not None:
            found = self._vet((address,))
        else:
            found = self._remembered(host) or await self._shared(host)
        if isinstance(found, Fault):
            return found
        return tuple(_dialled(ip, port) for ip in found)

    def forget(self, host: str) -> None:
        """Look `host` up anew next time: none of its addresses could be connected to."""
        self._vetted.pop(host, None)

    async def close(self) -> None:
        """Stop waiting for look-ups that still run."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _remembered(self, host: str) -> tuple[IpAddress, ...] | None:
        entry = self._vetted.get(host)
        if entry is None or entry[0] <= asyncio.get_running_loop().time():
            return None
        return entry[1]

    async def _shared(self, host: str) -> tuple[IpAddress, ...] | Fault:
        task = self._running.get(host)
        if task is None:
            task = self._running[host] = asyncio.create_task(self._look_up(host))
            task.add_done_callback(lambda _: self._running.pop(host, None))
        return await asyncio.shield(task)

    async def _look_up(self, host: str) -> tuple[IpAddress, ...] | Fault:
        try:
            async with self._threads:
                texts = await _in_thread(self._lookup, host)
        except socket.gaierror as error:
            return fault_of("name_not_found" if error.errno in _NOT_FOUND else "name_temporary")
        except UnicodeError:  # the codec that getaddrinfo puts a name through; see parse_url
            return fault_of("name_not_found")
        except OSError:
            return fault_of("name_temporary")
        # Dict keys keep the resolver's order (RFC 6724) and drop its repeats.
        found = self._vet(tuple(dict.fromkeys(ip_address(text) for text in texts)))
        if not isinstance(found, Fault):
            self._remember(host, found)
        return found

    def _vet(self, addresses: tuple[IpAddress, ...]) -> tuple[IpAddress, ...] | Fault:
        if not addresses:
            return fault_of("name_not_found")
        if judge_all(addresses, self._allowed_networks) is not None:
            return fault_of("address_forbidden")
        return addresses

    def _remember(self, host: str, addresses: tuple[IpAddress, ...]) -> None:
        if len(self._vetted) >= CACHED_MAX:
            del self._vetted[next(iter(self._vetted))]
        self._vetted.pop(host, None)  # the newest stands last
        self._vetted[host] = (asyncio.get_running_loop().time() + self._ttl_s, addresses)


def look_up(host: str) -> list[str]:
    """Ask the system for the IPv4 and IPv6 addresses of `host`, best first. Blocks.

    Raises:
        socket.gaierror: when there is none, or the resolver fails.
    """
    answers = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return [str(sockaddr[0]) for *_, sockaddr in answers]


def _dialled(ip: IpAddress, port: int) -> Address:
    family = socket.AF_INET if isinstance(ip, IPv4Address) else socket.AF_INET6
    return Address(family, (str(ip), port))


async def _in_thread(lookup: Lookup, host: str) -> Sequence[str]:
    """Run one blocking look-up on a thread of its own.

    A thread and not an executor: an executor's threads are joined at exit, and a resolver that does
    not answer would hold a stopping worker for half a minute. Look-ups are rare enough (one per
    name and 30 s) for the 60 µs of a new thread not to matter.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Sequence[str]] = loop.create_future()

    def deliver(addresses: Sequence[str] | None, error: BaseException | None) -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(addresses or ())

    def run() -> None:
        addresses: Sequence[str] | None = None
        failure: BaseException | None = None
        try:
            addresses = lookup(host)
        except Exception as error:  # noqa: BLE001  # carried to, and raised at, the await below
            failure = error
        try:
            loop.call_soon_threadsafe(deliver, addresses, failure)
        except RuntimeError:
            return  # the loop has ended, and with it whoever asked

    threading.Thread(target=run, name="name-lookup", daemon=True).start()
    return await answer
