"""`outbox targets`: the registry of targets, per tenant."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import msgspec
import typer
from aiokafka import ConsumerRecord

from streams.cli.common import AsJson, EnvFile, Exit, complain, hush_clients, read_settings, show
from streams.cli.target_fields import facts_of, line_of, lines_of, with_settings
from streams.edge.cluster import explained, partitions_of
from streams.edge.log import read_all
from streams.edge.producing import Sender
from streams.edge.telemetry import configure_logging
from streams.errors import RecordError, TargetError
from streams.rules.redaction import mask
from streams.rules.targets import registered_target
from streams.rules.verdict import judge
from streams.settings import Settings
from streams.topics import names
from streams.wire.targets import (
    TargetRecord,
    TargetState,
    decode_target,
    decode_target_state,
    encode_target,
)

Name = Annotated[str, typer.Argument(help="The name by which activities call it.")]
Tenant = Annotated[str, typer.Option(help="Whose it is.")]


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    group = typer.Typer(no_args_is_help=True, help="The registry of targets, per tenant.")
    group.command(
        "put",
        epilog="Example: outbox targets put crm --url https://crm.example/hook --idempotent"
        " --set max_attempts=3 --set verdict.409=sent",
    )(put)
    group.command("list", epilog="Example: outbox targets list --tenant acme --json")(list_)
    group.command("show", epilog="Example: outbox targets show crm --tenant acme")(show_)
    group.command("remove", epilog="Example: outbox targets remove crm")(remove)
    group.command("test", epilog="Example: outbox targets test crm --json")(call_once)
    app.add_typer(group, name="targets")


def put(
    name: Name,
    *,
    url: Annotated[str | None, typer.Option(help="http or https; required for a new one.")] = None,
    tenant: Tenant = "default",
    idempotent: Annotated[
        bool | None,
        typer.Option(
            "--idempotent/--not-idempotent",
            help="It recognises a repeated webhook-id. [default: not]",
        ),
    ] = None,
    policy: Annotated[
        str | None, typer.Option(help="activity or notification. [default: notification]")
    ] = None,
    pairs: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="A policy's field, verdict.STATUS, header.NAME, retryable, enabled, rate_per_s,"
            " message_id_from, signing, secret_refs, key_id, http2 or tls_..._file; may be given"
            " again; an empty value takes it back.",
        ),
    ] = None,
    update: Annotated[
        bool, typer.Option("--update", help="Keep what is not named here. Else all is replaced.")
    ] = False,
    env_file: EnvFile = None,
    as_json: AsJson = False,
) -> None:
    """Register a target, or replace it. Workers follow at once, without a restart.

    Replacing one also takes back that we left it alone for a 410.
    """
    hush_clients()
    settings = read_settings(env_file)
    known = asyncio.run(read_registry(settings))
    key = f"{tenant}/{name}"
    base = known.targets.get(key) if update else TargetRecord(name=name, tenant=tenant, url="")
    if base is None:
        raise TargetError(f"there is no target {name} of tenant {tenant} to update")
    if url is None and not base.url:
        raise typer.BadParameter("a new target needs its --url", param_hint="--url")
    record = replace(
        with_settings(base, pairs or ()),
        url=base.url if url is None else url,
        idempotent=base.idempotent if idempotent is None else idempotent,
        policy=base.policy if policy is None else policy,
        updated_ms=time.time_ns() // 1_000_000,
    )
    registered_target(record, settings.policies, settings.allow_networks)
    forget = [f"{key}/state"] if key in known.states else []
    asyncio.run(write_registry(settings, {key: encode_target(record), **dict.fromkeys(forget)}))
    facts = facts_of(record)
    show(facts, [line_of(facts)], as_json=as_json)


def list_(
    tenant: Annotated[str | None, typer.Option(help="Of this tenant only.")] = None,
    env_file: EnvFile = None,
    as_json: AsJson = False,
) -> None:
    """Print a line for each target."""
    hush_clients()
    registry = asyncio.run(read_registry(read_settings(env_file)))
    rows = [
        facts_of(record, registry.states.get(key))
        for key, record in sorted(registry.targets.items())
        if tenant in (None, record.tenant)
    ]
    show(rows, [line_of(facts) for facts in rows], as_json=as_json)


def show_(
    name: Name, tenant: Tenant = "default", env_file: EnvFile = None, as_json: AsJson = False
) -> None:
    """Print every field of one target; exit 1 where there is none."""
    hush_clients()
    registry = asyncio.run(read_registry(read_settings(env_file)))
    record = registry.find(tenant, name)
    facts = facts_of(record, registry.states.get(f"{tenant}/{name}"))
    show(facts, lines_of(facts), as_json=as_json)


def remove(
    name: Name, tenant: Tenant = "default", env_file: EnvFile = None, as_json: AsJson = False
) -> None:
    """Remove a target. What is still owed to it is dead-lettered as `unknown_target`."""
    hush_clients()
    settings = read_settings(env_file)
    asyncio.run(read_registry(settings)).find(tenant, name)
    key = f"{tenant}/{name}"
    asyncio.run(write_registry(settings, {key: None, f"{key}/state": None}))
    show({"removed": key}, [f"removed {key}"], as_json=as_json)


def call_once(
    name: Name, tenant: Tenant = "default", env_file: EnvFile = None, as_json: AsJson = False
) -> None:
    """Call a target once, marked with the header `outbox-test: 1`, and show what came back.

    Nothing is recorded. Exit 1 unless the answer was a 2xx.
    """
    hush_clients()
    settings = read_settings(env_file)
    record = asyncio.run(read_registry(settings)).find(tenant, name)
    target = registered_target(record, settings.policies, settings.allow_networks)
    configure_logging(level="ERROR", as_json=False)  # why a secret cannot be read, to stderr
    # The transport, and httpx with it, which no other command should pay for.
    from streams.cli import target_call  # noqa: PLC0415

    seen = asyncio.run(target_call.call_once(target, settings.allow_networks))
    facts = {
        "target": f"{tenant}/{name}",
        "url": mask(record.url),
        "status": seen.status,
        "fault": None if seen.fault is None else msgspec.structs.asdict(seen.fault),
        "verdict": judge(seen, target).verdict.value,
        "duration_ms": seen.duration_ms,
        "provider_message_id": seen.provider_message_id,
    }
    show(facts, [_told(facts)], as_json=as_json)
    if seen.status is None or not 200 <= seen.status <= 299:
        raise typer.Exit(Exit.FAILED)


def _told(facts: Mapping[str, Any]) -> str:
    fault = facts["fault"]
    seen = (
        f"status={facts['status']}" if fault is None else f"fault={fault['stage']}/{fault['code']}"
    )
    kept = facts["provider_message_id"]
    more = f" provider_message_id={kept}" if kept else ""
    return (
        f"{facts['target']} {seen} verdict={facts['verdict']} duration_ms={facts['duration_ms']}"
        f"{more} url={facts['url']}"
    )


@dataclass(slots=True)
class RegistryView:
    """The registry as its topic leaves it, by `tenant/name`."""

    targets: dict[str, TargetRecord] = field(default_factory=dict)
    states: dict[str, TargetState] = field(default_factory=dict)

    def take(self, records: Sequence[ConsumerRecord[bytes, bytes]]) -> None:
        """Apply records; one that cannot be read is complained of and passed over."""
        for record in records:
            key = (record.key or b"").decode(errors="replace")
            try:
                self._apply(key, record.value)
            except RecordError as error:
                complain(
                    f"{record.topic}/{record.partition}/{record.offset}: {error.code}: {error}"
                )

    def _apply(self, key: str, value: bytes | None) -> None:
        # Neither tenant nor name has a slash: a state's key is the one with two.
        is_state = key.count("/") == 2
        own = key.removesuffix("/state")
        if value is None:
            (self.states if is_state else self.targets).pop(own, None)
        elif is_state:
            self.states[own] = decode_target_state(value)
        else:
            self.targets[key] = decode_target(value)

    def find(self, tenant: str, name: str) -> TargetRecord:
        """One target.

        Raises:
            TargetError: there is none of that name.
        """
        record = self.targets.get(f"{tenant}/{name}")
        if record is None:
            raise TargetError(f"there is no target {name} of tenant {tenant}: outbox targets list")
        return record


async def read_registry(settings: Settings) -> RegistryView:
    """Read the registry to its present end.

    Raises:
        TopicsError: its topic is missing, or no Kafka answers.
    """
    options, topic = settings.kafka_options(), names(settings.prefix).targets
    await partitions_of(options, topic)
    view = RegistryView()
    with explained(options):
        await read_all(options, topic, {0: 0}, lambda _, records: view.take(records))
    return view


async def write_registry(settings: Settings, values: Mapping[str, bytes | None]) -> None:
    """Append to the registry, in order; done when durable."""
    topic = names(settings.prefix).targets
    async with Sender(settings.kafka_options()) as sender:
        for key, value in values.items():
            await sender.send(topic, 0, key=key.encode(), value=value)
        await sender.flush()
