"""The operator's turn: one activity shown, its dead letter redriven, and shown again, through the API."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from streams.cli.asking_api import BASE, ApiError, ask, client_of
from streams.cli.demo.children import DemoError
from streams.cli.demo.evidence import Evidence
from streams.cli.show import lines_of
from streams.model.ledger import FailurePhase
from streams.model.receipt import DeadLetter, Letter
from streams.rules.decide import EffectMode
from streams.settings import Settings

if TYPE_CHECKING:
    import httpx

TENANT: Final = "default"
REASON: Final = "the demo: its receiver was asked, and did nothing with it"
READY_S: Final = 30.0


def turn(settings: Settings, seen: Evidence) -> Iterator[str]:
    """Play it, a line for each thing that is shown; none where nothing was given up.

    Raises:
        DemoError: the API does not answer, or does not do what it is asked to.
    """
    found = _some_letter(seen)
    if found is None:
        return
    dead, letter = found
    place = f"{BASE}/activities/{quote(dead.activity_id, safe='')}"
    try:
        with client_of(settings, TENANT, None) as client:
            _until_ready(client)
            yield f"outbox show {dead.activity_id}"
            yield from (f"  {line}" for line in lines_of(ask(client, "GET", place)[1]))
            wish = {"reason": REASON, "effect_mode": EffectMode.RECONCILE_REPLAY.value}
            status, facts = ask(
                client, "POST", f"{BASE}/dead-letters/{letter.dead_letter_id}:redrive", body=wish
            )
            yield f"outbox redrive {letter.dead_letter_id} --effect-mode {wish['effect_mode']}"
            yield f"  {_told(status, facts)}"
            yield from (f"  {line}" for line in lines_of(ask(client, "GET", place)[1]))
    except ApiError as error:
        raise DemoError(str(error)) from error


def _some_letter(seen: Evidence) -> tuple[DeadLetter, Letter] | None:
    """A delivery that was given up, of the tenant that the demo's token is for: best one that was refused."""
    found = [
        (dead, letter)
        for dead in seen.letters.values()
        for letter in dead.deliveries
        if dead.tenant == TENANT and letter.delivery_id.startswith("dlv_")
    ]
    found.sort(key=lambda each: (each[1].failure_phase, each[0].activity_id))
    refused = [each for each in found if each[1].failure_phase is FailurePhase.REJECTED_PERMANENT]
    return next(iter([*refused, *found]), None)


def _until_ready(client: httpx.Client) -> None:
    deadline = time.monotonic() + READY_S
    while True:
        try:
            ask(client, "GET", "/readyz")
        except ApiError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return


def _told(status: int, facts: dict[str, Any]) -> str:
    if status != 200:
        raise DemoError("the owner did not answer the redrive")
    delivery = facts["delivery"]
    return (
        f"audit={facts['audit_id']} delivery={delivery['delivery_id']} status={delivery['status']}"
        f" generation={delivery['generation']}: nothing is sent until it is produced again"
    )
