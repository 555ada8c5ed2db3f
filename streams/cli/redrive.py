"""`outbox redrive`: reopen a dead letter, through the API, audited."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

import typer

from streams.cli.asking_api import BASE, TokenFile, ask, client_of
from streams.cli.common import AsJson, EnvFile, Exit, complain, read_settings, show
from streams.rules.decide import EffectMode


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command(
        "redrive",
        epilog="Example: outbox redrive dlv_5f0c7a52d1f44d1f8f4e6a0b1c2d3e4f.1"
        " --reason 'CRM was down, ticket 123' --effect-mode reconcile_replay",
    )(redrive)


def redrive(
    letter_id: Annotated[str, typer.Argument(metavar="ID", help="Of the dead letter.")],
    *,
    reason: Annotated[str, typer.Option(help="1 to 512 characters, kept in the audit.")],
    effect_mode: Annotated[
        EffectMode,
        typer.Option(
            help="reconcile_replay while the effect is uncertain: same generation and webhook-id."
            " new_external_send where a second effect is wanted."
        ),
    ],
    tenant: Annotated[str, typer.Option(help="Whose it is.")] = "default",
    token_file: TokenFile = None,
    env_file: EnvFile = None,
    as_json: AsJson = False,
) -> None:
    """Reopen a dead letter. Nothing is sent by itself: produce the same activity again after it.

    Exit 1 where it is resolved already, unknown, or the owner has not answered in time.
    """
    settings = read_settings(env_file)
    with client_of(settings, tenant, token_file) as client:
        status, facts = ask(
            client,
            "POST",
            f"{BASE}/dead-letters/{quote(letter_id, safe='')}:redrive",
            body={"reason": reason, "effect_mode": effect_mode.value},
        )
    delivery = facts["delivery"]
    told = f"{letter_id} audit={facts['audit_id']}"
    if status == 200:
        told += f" delivery={delivery['delivery_id']} status={delivery['status']}"
        told += f" generation={delivery['generation']}"
    show(facts, [told], as_json=as_json)
    if status != 200:
        complain("the owner has not answered yet; it will: ask again with `outbox show`")
        raise typer.Exit(Exit.FAILED)
