"""What a target is called with: its keys, its TLS, its transport. Made once, off the hot path."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field, fields
from typing import Any, Final, TypeVar

import httpx
import structlog

from streams.edge.addresses import Resolver
from streams.edge.client_tls import client_context
from streams.edge.http.call import Limits, Poster
from streams.edge.http.face import Through
from streams.edge.http.pool import IDLE_S
from streams.edge.secrets import read_secret
from streams.engine.ports import Time
from streams.errors import TargetError
from streams.model.target import Signing, Target, Tls
from streams.rules.addresses import ParsedUrl, parse_url
from streams.rules.pacing import Aside
from streams.wire.signatures.schemes import signer_of
from streams.wire.signatures.signing import Header, Signer

log = structlog.get_logger(__name__)

T = TypeVar("T")

USER_AGENT: Final = (b"user-agent", b"outbox/1")

POOL_CONNECTIONS: Final = 1_000
"""Bound of one origin's pool: the gate bounds each target, the transport the process."""

LOOK_AGAIN_S: Final = 5.0
"""How often a secret that was not there is looked for again, per target."""

SAY_AGAIN_S: Final = 60.0
"""How often an ERROR line says that it is not there, per target (O-005)."""

RETIRE_MARGIN_S: Final = 5.0
"""How long after its longest call a replaced transport is closed: none is cut off in its middle."""

INBOXES: Final = "inboxes"
"""Stands for all inbox URLs, whose key is one; a registered target's key has a slash."""

UNAVAILABLE: Final = Aside("secret_unavailable")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outfit:
    """What calls to one target are made with.

    Attributes:
        pool_key: Its share of the transport's connections.
        headers: Those that are the same in every request.
        signer: None where requests are not signed.
        ssl_context: Its own, or None for the transport's.
        poster: The shared transport, or its own one for HTTP/2.
    """

    url: ParsedUrl
    pool_key: str
    limits: Limits
    headers: tuple[Header, ...]
    signer: Signer | None
    ssl_context: Any
    poster: Poster


@dataclass(frozen=True, slots=True, kw_only=True)
class Equipped(Target):
    """A target that can be called."""

    outfit: Outfit = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxSigning:
    """How requests to inbox URLs are signed: as this server's actor, by ActivityPub's custom.

    Attributes:
        key_id: Where receivers find the public key.
        reference: Where the private key is found.
        signing: By which scheme.
    """

    key_id: str
    reference: str
    signing: Signing


@dataclass(slots=True)
class _Absence:
    """A secret that could not be read."""

    look_at: float
    say_at: float = 0.0


class Outfitter:
    """Equips targets."""

    def __init__(
        self,
        poster: Poster,
        resolver: Resolver,
        time: Time,
        *,
        inbox_signing: InboxSigning | None = None,
    ) -> None:
        self._poster = poster
        self._resolver = resolver
        self._time = time
        self._inbox_signing = inbox_signing
        self._inbox_signer: Signer | None = None
        self._absent: dict[str, _Absence] = {}
        self._making: dict[str, asyncio.Future[Any]] = {}
        self._retiring: set[asyncio.Task[None]] = set()

    async def equip(self, key: str, target: Target) -> Equipped | Aside:
        """Give a registered target what it is called with.

        What is to be read is read on a thread; who comes meanwhile waits for the same.

        Returns:
            The target; or that its secrets are not to be had: it is not called without them, and
            they are looked for again (`LOOK_AGAIN_S`).
        """
        if not target.secret_refs and target.tls == Tls() and not target.http2:
            return _equipped(target, self._outfit(target, None, None))
        made = await self._shared(key, self._try(key, target))
        return UNAVAILABLE if made is None else made

    @property
    def can_sign(self) -> bool:
        """Whether inbox URLs can be called: their key was read, or there is none to sign with."""
        return self._inbox_signing is None or self._inbox_signer is not None

    async def find_key(self) -> bool:
        """Look for the key of inbox URLs; say whether it is there."""
        if self._inbox_signing is not None:
            await self._shared(INBOXES, self._try_inbox(self._inbox_signing))
        return self.can_sign

    def inbox(self, target: Target) -> Equipped:
        """Give an inbox URL what it is called with: all of them sign by the one key of the settings."""
        assert self.can_sign, "an inbox URL is not called unsigned where a key is set"
        return _equipped(target, self._outfit(target, self._inbox_signer, None))

    def forget(self, key: str, target: object) -> None:
        """Its record changed: look for its secrets anew, and let go of a transport of its own."""
        self._absent.pop(key, None)
        if isinstance(target, Equipped) and target.outfit.poster is not self._poster:
            loop = asyncio.get_running_loop()
            after_s = target.policy.timeout_ms / 1000 + RETIRE_MARGIN_S
            loop.call_later(after_s, self._retire, target.outfit.poster)

    async def _shared(self, key: str, making: Coroutine[Any, Any, T]) -> T:
        """Do it once for all who ask at the same time."""
        running = self._making.get(key)
        if running is None:
            running = self._making[key] = asyncio.ensure_future(making)
            running.add_done_callback(lambda _: self._making.pop(key, None))
        else:
            making.close()
        result: T = await asyncio.shield(running)
        return result

    async def _try(self, key: str, target: Target) -> Equipped | None:
        if self._is_early(key):
            return None
        try:
            signer, context = await asyncio.to_thread(_read, target)
        except TargetError as error:
            self._miss(key, error)
            return None
        self._absent.pop(key, None)
        return _equipped(target, self._outfit(target, signer, context))

    async def _try_inbox(self, signing: InboxSigning) -> None:
        if self._is_early(INBOXES):
            return
        try:
            secret = await asyncio.to_thread(read_secret, signing.reference)
            self._inbox_signer = signer_of(signing.signing, [secret], signing.key_id)
        except TargetError as error:
            self._miss(INBOXES, error)

    def _is_early(self, key: str) -> bool:
        absence = self._absent.get(key)
        return absence is not None and self._time.monotonic() < absence.look_at

    def _miss(self, key: str, error: TargetError) -> None:
        now = self._time.monotonic()
        absence = self._absent.setdefault(key, _Absence(now))
        absence.look_at = now + LOOK_AGAIN_S
        if now >= absence.say_at:
            absence.say_at = now + SAY_AGAIN_S
            log.error(
                "target.secret_unavailable",
                target=key,
                code=UNAVAILABLE.reason,
                reason=str(error),
            )

    def _outfit(self, target: Target, signer: Signer | None, context: Any) -> Outfit:
        url = parse_url(target.url)
        return Outfit(
            url=url,
            pool_key=_pool_key(target, url),
            limits=Limits(max_connections=POOL_CONNECTIONS, max_idle=target.policy.max_idle),
            headers=(USER_AGENT, *target.headers),
            signer=signer,
            ssl_context=context,
            poster=self._http2(target, context) if target.http2 else self._poster,
        )

    def _http2(self, target: Target, context: Any) -> Poster:
        """httpx's transport: HTTP/2 where TLS agrees on it, HTTP/1.1 where not."""
        limits = httpx.Limits(
            max_connections=target.policy.max_connections,
            max_keepalive_connections=target.policy.max_idle,
            keepalive_expiry=IDLE_S,
        )
        transport = httpx.AsyncHTTPTransport(
            verify=True if context is None else context,
            http2=True,
            limits=limits,
            trust_env=False,
        )
        return Through(transport, resolver=self._resolver)

    def _retire(self, poster: Poster) -> None:
        task = asyncio.ensure_future(poster.close())
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)


def _read(target: Target) -> tuple[Signer | None, Any]:
    """Read what a target needs from environment and files; on a thread."""
    secrets = [read_secret(reference) for reference in target.secret_refs]
    signer = signer_of(target.signing, secrets, target.key_id)
    return signer, None if target.tls == Tls() else client_context(target.tls)


def _equipped(target: Target, outfit: Outfit) -> Equipped:
    own = {each.name: getattr(target, each.name) for each in fields(target)}
    return Equipped(**own, outfit=outfit)


def _pool_key(target: Target, url: ParsedUrl) -> str:
    """One pool for all of a tenant's inboxes of an origin; one for each registered target.

    1,000 inboxes of one server need no 1,000 connections. The gate bounds each target.
    """
    if target.key != target.url:
        return f"{target.tenant}\x00{target.key}"
    return f"{target.tenant}\x00{url.origin.scheme}://{url.origin.host}:{url.origin.port}"
