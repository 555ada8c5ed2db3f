"""`outbox kafka`: a local Apache Kafka, without Docker."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer

from streams.cli.common import AsJson, EnvFile, Exit, hush_clients, read_settings, say, show
from streams.edge.localkafka import DEFAULT_PORT, LocalKafka, is_free
from streams.settings import Settings
from streams.topics import count_brokers

DATA = Path(".local/kafka")

DataDir = Annotated[Path, typer.Option("--data", help="The cluster's folder.", file_okay=False)]
Brokers = Annotated[
    int | None, typer.Option(help="Nodes: 1 or 3; as before where there is one, else 1.")
]
Port = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65_532,
        help=f"Of the first node; 0 picks free ones. As before, else {DEFAULT_PORT} where free.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    group = typer.Typer(no_args_is_help=True, help="A local Apache Kafka, without Docker.")
    group.command("up", epilog="Example: outbox kafka up --brokers 3 --port 0")(up)
    group.command("down", epilog="Example: outbox kafka down --data .local/kafka")(down)
    group.command("status", epilog="Example: outbox kafka status --json")(status)
    app.add_typer(group, name="kafka")


def up(
    brokers: Brokers = None,
    port: Port = None,
    data: DataDir = DATA,
    env_file: EnvFile = None,
    as_json: AsJson = False,
) -> None:
    """Start a local Kafka, return once it serves and print its bootstrap; nothing new if it runs.

    Where OUTBOX_BROKERS names another cluster, that one is used and nothing is started.
    """
    hush_clients()
    settings = read_settings(env_file)
    if _is_elsewhere(settings, data):
        asyncio.run(count_brokers(settings))
        say("OUTBOX_BROKERS is set and answers: nothing started")
        _show_up({"bootstrap": settings.brokers, "is_local": False}, as_json=as_json)
        return
    recorded = LocalKafka(data).nodes()
    count = brokers if brokers is not None else len(recorded) or 1
    if port is None:
        wanted = range(DEFAULT_PORT, DEFAULT_PORT + count)
        port = DEFAULT_PORT if not recorded and all(map(is_free, wanted)) else 0
    kafka = LocalKafka(data, brokers=count, port=port, say=say)
    bootstrap = kafka.up()
    facts = {"bootstrap": bootstrap, "is_local": True, "pids": kafka.node_pids()}
    _show_up(facts, as_json=as_json)
    say(f"next: export OUTBOX_BROKERS={bootstrap} OUTBOX_REPLICATION={count}")


def down(data: DataDir = DATA, env_file: EnvFile = None, as_json: AsJson = False) -> None:
    """End the local Kafka; what it holds stays for the next `up`. Nothing happens if none runs."""
    settings = read_settings(env_file)
    if _is_elsewhere(settings, data):
        say(f"OUTBOX_BROKERS names a Kafka that is not the one in {data}: left alone")
        show({"ended": False}, ["left alone"], as_json=as_json)
        return
    ended = LocalKafka(data).down()
    show({"ended": ended}, ["ended" if ended else "none ran"], as_json=as_json)


def status(data: DataDir = DATA, env_file: EnvFile = None, as_json: AsJson = False) -> None:
    """Print the nodes and whether they run; exit 1 where none does."""
    hush_clients()
    settings = read_settings(env_file)
    if _is_elsewhere(settings, data):
        count = asyncio.run(count_brokers(settings))
        facts = {"running": True, "bootstrap": settings.brokers, "brokers": count}
        show(facts, [f"bootstrap={settings.brokers} brokers={count}"], as_json=as_json)
        return
    kafka = LocalKafka(data)
    pids = kafka.node_pids()
    nodes = [{"node": n.number, "port": n.port, "pid": pids.get(n.number)} for n in kafka.nodes()]
    lines = [f"node={n['node']} port={n['port']} pid={n['pid'] or 'down'}" for n in nodes]
    if pids:
        lines.append(f"bootstrap={kafka.bootstrap}")
    else:
        lines.append(f"no Kafka runs in {data}")
    facts = {"running": bool(pids), "bootstrap": kafka.bootstrap if pids else None, "nodes": nodes}
    show(facts, lines, as_json=as_json)
    if not pids:
        raise typer.Exit(Exit.FAILED)


def _is_elsewhere(settings: Settings, data: Path) -> bool:
    """Whether OUTBOX_BROKERS was set to another cluster than the one in the folder.

    `up` tells people to set it to that very one, and `down` must then still end it.
    """
    named = settings.brokers.replace("localhost", "127.0.0.1")
    return settings.is_given("OUTBOX_BROKERS") and named != LocalKafka(data).bootstrap


def _show_up(facts: dict[str, Any], *, as_json: bool) -> None:
    show(facts, [f"bootstrap={facts['bootstrap']}"], as_json=as_json)
