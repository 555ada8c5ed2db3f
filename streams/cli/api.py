"""`outbox api`: the operator API."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any, Final

import httpx
import typer
import uvloop
from aiokafka.errors import KafkaError

from streams.api.app import Parts, build
from streams.api.asking import Desk
from streams.api.auth import Authenticator, StaticTokens, Verifier
from streams.api.database import Database
from streams.api.feed import Feed, Sources, cluster_id
from streams.api.jwks import IssuedTokens
from streams.api.redriving import Redriver
from streams.api.server import Listen, serve
from streams.api.view import View
from streams.api.writer import AuditedWriter
from streams.cli.common import EnvFile, hush_clients, read_settings
from streams.edge.clock import Clock
from streams.edge.cluster import partitions_of
from streams.edge.telemetry import configure_logging
from streams.errors import FatalError, SettingsError
from streams.settings import Settings
from streams.settings.kinds import split_address
from streams.topics import names

TOMBSTONES_KEPT_MS: Final = 7 * 24 * 60 * 60 * 1_000
"""`delete.retention.ms` of the ledger: what was away for longer has missed some, and reads anew."""

_JWKS_S: Final = 5.0


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("api", epilog="Example: outbox api --env-file production.env")(api)


def api(env_file: EnvFile = None) -> None:
    """Serve the operator API: what was delivered, what was given up, redrive, targets.

    Who may ask stands in OUTBOX_API_TOKENS or OUTBOX_API_JWKS_URL; with neither, nobody may, and it
    listens on loopback only. Several may run side by side, each with an OUTBOX_WORKER_ID and an
    OUTBOX_DATA_DIR of its own. SIGTERM ends it; exit 0.
    """
    hush_clients()
    settings = read_settings(env_file)
    configure_logging(level=settings.log_level, as_json=settings.log_format == "json")
    listen = listening(settings)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(settings, listen))


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


async def _run(settings: Settings, listen: Listen) -> None:
    options, t, clock = settings.kafka_options(), names(settings.prefix), Clock()
    partitions = await partitions_of(options, t.ledger)
    client_id = f"outbox-api-{settings.worker_id}"
    database = Database(
        settings.data_dir / "api",
        f"{await cluster_id(options)}/{settings.prefix}/{partitions}",
        stale_before_ms=clock.now_ms() - TOMBSTONES_KEPT_MS,
    )
    try:
        view = View(database, partitions)
        sources = Sources(
            ledger=t.ledger, letters=t.outbox_dead_letters, audit=t.audit, targets=t.targets
        )
        feed = Feed(view, sources, options, client_id=client_id, clock=clock)
        writer = AuditedWriter(options, t.audit, t.transactional_id(f"api-{settings.worker_id}"))
        redriver = Redriver(view, writer, t.commands, new_id=new_id, now_ms=clock.now_ms)
        async with httpx.AsyncClient(timeout=_JWKS_S) as client:
            parts = Parts(
                desk=Desk(view=view, freshness=feed),
                redriver=redriver,
                writer=writer,
                targets_topic=t.targets,
                authenticator=Authenticator(_verifiers(settings, client)),
                new_id=new_id,
                now_ms=clock.now_ms,
            )
            try:
                await serve(build(parts), listen, feed.run)
            finally:
                await redriver.finish()
                await writer.stop()
    except KafkaError as error:
        raise FatalError(f"Kafka cannot be read: {type(error).__name__}") from error
    finally:
        database.close()


def new_id() -> str:
    """32 hex digits that nobody chose before; sorts by time."""
    return f"{time.time_ns() // 1_000_000:012x}{uuid.uuid4().hex[:20]}"


def _verifiers(settings: Settings, client: httpx.AsyncClient) -> tuple[Verifier, ...]:
    known = [
        (each.token.get_secret_value(), each.subject, each.tenants, each.scopes)
        for each in settings.tokens
    ]
    verifiers: list[Verifier] = [StaticTokens(known)] if known else []
    url = settings.api_jwks_url
    if url:

        async def fetch() -> dict[str, Any]:
            try:
                answer = await client.get(url)
                answer.raise_for_status()
                document: dict[str, Any] = answer.json()
            except httpx.HTTPError as error:
                raise OSError(type(error).__name__) from error
            return document

        verifiers.append(
            IssuedTokens(
                fetch, issuer=settings.api_jwks_issuer, audience=settings.api_jwks_audience
            )
        )
    return tuple(verifiers)
