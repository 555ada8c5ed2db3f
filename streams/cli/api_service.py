"""Which parts make the operator API, built from settings and run to its end."""

from __future__ import annotations

import asyncio
import gc
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final

from aiokafka.errors import KafkaError
from prometheus_client import CollectorRegistry
from starlette.routing import Route

from streams.api import observation_schemas, observations, provider_events
from streams.api.app import Parts, build, pages
from streams.api.asking import Desk
from streams.api.auth import Authenticator, StaticTokens, Verifier
from streams.api.cancelling import Canceller
from streams.api.content import ContentRoute, KafkaContents
from streams.api.database import Database
from streams.api.event_log import KafkaEventLog
from streams.api.feed import Feed, Sources, cluster_id
from streams.api.histories import Histories, HistoryFeed
from streams.api.job_routes import JobRoutes
from streams.api.jobs import RedriveJobs
from streams.api.owners import Owners
from streams.api.provider_events import EventCounts, Intake
from streams.api.providers import Provider, read_providers
from streams.api.redriving import Redriver
from streams.api.server import Listen, serve, serve_pages
from streams.api.view import View
from streams.api.writer import AuditedWriter
from streams.edge.clients import tune_clients
from streams.edge.clock import Clock
from streams.edge.cluster import partitions_of
from streams.edge.secrets import read_secret
from streams.errors import FatalError, SettingsError
from streams.settings import Settings
from streams.settings.kinds import split_address
from streams.topics import Topics, names

TOMBSTONES_KEPT_MS: Final = 7 * 24 * 60 * 60 * 1_000
"""`delete.retention.ms` of the ledger: what was away for longer has missed some, and reads anew."""

_JWKS_S: Final = 5.0


def listening(settings: Settings) -> Listen:
    """Where to listen.

    Raises:
        SettingsError: beyond this machine, with nothing that says who may ask.
    """
    host, port = split_address(settings.api_address)
    listen = Listen(
        host=host,
        port=port,
        cert_file=settings.api_tls_cert_file,
        key_file=settings.api_tls_key_file,
    )
    if not listen.is_loopback and not settings.tokens and not settings.api_jwks_url:
        raise SettingsError(
            f"OUTBOX_API_ADDRESS: {settings.api_address} is reached from other machines; set "
            "OUTBOX_API_TOKENS or OUTBOX_API_JWKS_URL, or listen on 127.0.0.1"
        )
    return listen


async def run(settings: Settings, listen: Listen) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        StreamsError: Kafka, the files or the address are not to be had, or a setting is wrong.
    """
    tune_clients()
    providers = read_providers(settings.api_providers, read_secret)
    options, t = settings.kafka_options(), names(settings.prefix)
    partitions = await partitions_of(options, t.ledger)
    identity = f"{await cluster_id(options)}/{settings.prefix}/{partitions}"
    try:
        async with AsyncExitStack() as stack:
            service = _Service(settings, options, t, partitions, identity=identity)
            # What was imported lives as long as we do: to look through it again and again for cycles holds
            # up whoever asks meanwhile (tens of milliseconds each time).
            gc.collect()
            gc.freeze()
            stack.callback(service.database.close)
            await service.serve(stack, listen, providers)
    except KafkaError as error:
        raise FatalError(f"Kafka fails us: {type(error).__name__}") from error


class _Service:
    """Everything that one API process consists of."""

    def __init__(
        self,
        settings: Settings,
        options: Mapping[str, Any],
        topics: Topics,
        partitions: int,
        *,
        identity: str,
    ) -> None:
        self._settings, self._topics, self._options = settings, topics, options
        self._clock = clock = Clock()
        client_id = f"outbox-api-{settings.worker_id}"
        self.database = Database(
            settings.data_dir / "api",
            identity,
            stale_before_ms=clock.now_ms() - TOMBSTONES_KEPT_MS,
        )
        self._view = View(self.database, partitions)
        sources = Sources(
            ledger=topics.ledger,
            letters=topics.outbox_dead_letters,
            audit=topics.audit,
            targets=topics.targets,
        )
        self._feed = Feed(self._view, sources, options, client_id=client_id, clock=clock)
        transactional_id = topics.transactional_id(f"api-{settings.worker_id}")
        self._writer = AuditedWriter(options, topics.audit, transactional_id)
        self._owners = Owners(
            view=self._view,
            writer=self._writer,
            topic=topics.commands,
            new_id=new_id,
            now_ms=clock.now_ms,
        )
        self._redriver = Redriver(self._owners)
        self._jobs = RedriveJobs(
            self._view,
            self._writer,
            self._redriver,
            replica=settings.worker_id,
            new_id=new_id,
            now_ms=clock.now_ms,
        )
        self._contents = KafkaContents(options, topics.outbox, client_id=f"{client_id}-content")
        self._desk = Desk(view=self._view, freshness=self._feed)
        self._histories = Histories(settings.data_dir / "api-histories", identity)
        self._history_feed = HistoryFeed(
            self._histories,
            topics.observations,
            partitions,
            options,
            client_id=f"{client_id}-histories",
            clock=clock,
        )
        self._events = KafkaEventLog(options, topics.observations, client_id=f"{client_id}-events")
        self._registry = CollectorRegistry()

    async def serve(
        self, stack: AsyncExitStack, listen: Listen, providers: Mapping[str, Provider]
    ) -> None:
        """Serve; what was started is stopped by `stack`, requests in flight first."""
        stack.callback(self._histories.close)
        await self._events.start()
        stack.push_async_callback(self._events.stop)
        stack.push_async_callback(self._writer.stop)
        stack.push_async_callback(self._owners.finish)
        parts = Parts(
            desk=self._desk,
            redriver=self._redriver,
            canceller=Canceller(self._owners),
            writer=self._writer,
            targets_topic=self._topics.targets,
            authenticator=Authenticator(await verifiers(self._settings, stack)),
            new_id=new_id,
            now_ms=self._clock.now_ms,
            more_routes=self._more_routes(providers),
            more_paths=observation_schemas.paths(),
            registry=self._registry,
        )
        works: list[Callable[[], Coroutine[Any, Any, None]]] = [
            self._feed.run,
            self._history_feed.run,
            self._work_jobs,
        ]
        address = self._settings.api_metrics_address
        if address is not None:
            host, port = split_address(address)
            beside = Listen(host=host, port=port, setting="OUTBOX_API_METRICS_ADDRESS")
            works.append(partial(serve_pages, pages(parts), beside))
        await serve(build(parts), listen, *works)

    async def _work_jobs(self) -> None:
        """Go on with bulk redrives; only a view that has read all knows which letters are open."""
        await self._writer.open()
        await self._view.until_always(lambda: self._feed.looks() > 0)
        await self._jobs.run()

    def _more_routes(self, providers: Mapping[str, Provider]) -> list[Route]:
        intake = Intake(
            providers=providers,
            deliveries=self.database,
            histories=self._histories,
            events=self._events,
            counts=EventCounts(self._registry),
            now_ms=self._clock.now_ms,
            pause=asyncio.sleep,
            replica=self._settings.worker_id,
        )
        content = ContentRoute(
            desk=self._desk,
            contents=self._contents,
            writer=self._writer,
            new_id=new_id,
            now_ms=self._clock.now_ms,
        )
        return [
            *content.routes(),
            *JobRoutes(desk=self._desk, jobs=self._jobs).routes(),
            *observations.routes(self._desk, self._histories),
            *provider_events.routes(intake),
        ]


def new_id() -> str:
    """32 hex digits that nobody chose before; sorts by time."""
    return f"{time.time_ns() // 1_000_000:012x}{uuid.uuid4().hex[:20]}"


async def verifiers(settings: Settings, stack: AsyncExitStack) -> tuple[Verifier, ...]:
    """What knows callers by their tokens; none where nothing is set. `stack` closes what it opens."""
    known = [
        (each.token.get_secret_value(), each.subject, each.tenants, each.scopes)
        for each in settings.tokens
    ]
    found: list[Verifier] = [StaticTokens(known)] if known else []
    if settings.api_jwks_url:
        # What reads JWTs and asks for their keys takes 0.4 s to import: only where there are any.
        from streams.api.jwks import IssuedTokens  # noqa: PLC0415

        fetch = await _fetcher(settings.api_jwks_url, stack)
        found.append(
            IssuedTokens(
                fetch, issuer=settings.api_jwks_issuer, audience=settings.api_jwks_audience
            )
        )
    return tuple(found)


async def _fetcher(url: str, stack: AsyncExitStack) -> Callable[[], Awaitable[dict[str, Any]]]:
    import httpx  # noqa: PLC0415 - as above

    client = await stack.enter_async_context(httpx.AsyncClient(timeout=_JWKS_S))

    async def fetch() -> dict[str, Any]:
        try:
            answer = await client.get(url)
            answer.raise_for_status()
            document: dict[str, Any] = answer.json()
        except httpx.HTTPError as error:
            raise OSError(type(error).__name__) from error
        return document

    return fetch
