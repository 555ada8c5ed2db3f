"""`outbox show`: every delivery of one activity and its history, through the API."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any, Final
from urllib.parse import quote

import typer

from streams.cli.asking_api import BASE, TokenFile, ask, client_of
from streams.cli.common import AsJson, EnvFile, read_settings, show

HISTORIES_SHOWN: Final = 50
ENTRIES_SHOWN: Final = 20


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("show", epilog="Example: outbox show https://a.example/activities/1 --json")(show_)


def show_(
    activity_id: Annotated[str, typer.Argument(help="As produced.")],
    tenant: Annotated[str, typer.Option(help="Whose it is.")] = "default",
    token_file: TokenFile = None,
    env_file: EnvFile = None,
    as_json: AsJson = False,
) -> None:
    """Print every delivery of an activity: done, not yet, or never; attempts, next try, last code, history.

    The history of the first 50 deliveries, 20 entries of each; the rest is with the API.
    """
    settings = read_settings(env_file)
    with client_of(settings, tenant, token_file) as client:
        _, facts = ask(client, "GET", f"{BASE}/activities/{quote(activity_id, safe='')}")
        for each in facts["deliveries"][:HISTORIES_SHOWN]:
            place = f"{BASE}/deliveries/{each['delivery_id']}/observations?limit={ENTRIES_SHOWN}"
            each["observations"] = ask(client, "GET", place)[1]["observations"]
    show(facts, lines_of(facts), as_json=as_json)


def lines_of(facts: dict[str, Any]) -> list[str]:
    """An activity as the API tells of it: a line for the whole, and one for each delivery."""
    head = (
        f"{facts['activity_id']} reach={facts['reach']} owed={facts['owed']}"
        f" unclaimed={facts['unclaimed']}"
    )
    return [head, *(line for each in facts["deliveries"] for line in _lines(each))]


def _lines(delivery: dict[str, Any]) -> Iterator[str]:
    yield _line(delivery)
    for entry in delivery.get("observations", ()):
        told = ("source", "provider", "attempt", "verdict", "kind", "state", "code", "duration_ms")
        shown = " ".join(f"{name}={entry[name]}" for name in told if entry.get(name) is not None)
        at = datetime.fromtimestamp(entry["observed_ms"] / 1_000, UTC)
        yield f"  {at.isoformat(timespec='milliseconds')} {shown}"


def _line(delivery: dict[str, Any]) -> str:
    shown = ("status", "phase", "attempts", "generation", "code", "cause", "due_ms")
    told = " ".join(f"{name}={delivery[name]}" for name in shown if delivery[name] is not None)
    letter = delivery["dead_letter_id"]
    return f"{delivery['target']} {told} delivery={delivery['delivery_id']}" + (
        f" dead_letter={letter}" if letter else ""
    )
