"""Planted markers are looked for wherever operators look: none may be found (D-038..047).

One worker and one API live through deliveries that carry a marker in each place where content, answers
and credentials stand. Then all that they wrote is searched, byte by byte. A destination may stand in the
ledger's keys and in producers' receipts, since it names the delivery; nothing else may.
"""

from __future__ import annotations

import json
import socket
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from streams.edge.log import read_all
from tests.integration.api_process import BASE, ApiProcess
from tests.integration.mail_provider import MailProvider
from tests.integration.world import Produced, World
from tests.unit.api.intake import signature

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

SECRET = f"whsec_{b64encode(b'CANARYSECRET' * 3).decode()}"
PLACES = (
    *("BODY", "ANSWER", "CREDENTIAL", "QUERY", "PATH", "USERINFO", "HEADER", "REASON", "EXCEPTION"),
    *("EVENT", "WEBHOOK"),
)
MARKERS = {place: f"CANARYX{place}X7Q" for place in PLACES}
DESTINATION = frozenset({"QUERY", "PATH"})
"""What stands in the URL of an inbox, which names its delivery in the ledger (D-002)."""


def needles(*without: str) -> dict[str, list[bytes]]:
    """What is searched for: the markers, and how base64 would write the secret."""
    secret = SECRET.removeprefix("whsec_")
    found = {place: [mark.encode()] for place, mark in MARKERS.items() if place not in without}
    return found | {"SECRET": [b"CANARYSECRET", secret.encode()]}


def finds(where: str, raw: bytes, *without: str) -> list[str]:
    return [
        f"{place} in {where}"
        for place, marks in needles(*without).items()
        if any(mark in raw for mark in marks)
    ]


@dataclass
class Lived:
    """What was lived through, and who can be asked."""

    world: World
    api: ApiProcess
    answers: dict[str, bytes]
    activities: list[Produced]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lived(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Lived]:
    async with (
        MailProvider(answer=MARKERS["ANSWER"].encode()) as mail,
        World(kafka, tmp_path_factory.mktemp("canary")) as world,
    ):
        keys = tmp_path_factory.mktemp("keys")
        (keys / "secret").write_text(SECRET)
        provider = {"name": "mail", "shape": "plain", "secret_refs": [f"file:{keys}/secret"]}
        await world.register(
            "mail",
            "",
            url=mail.url(f"/refuse?q={MARKERS['QUERY']}"),
            headers={"X-Team": "crm"},
            signing="standard-webhooks-hmac",
            secret_refs=(f"file:{keys}/secret",),
            message_id_from="header:x-message-id",
        )
        # A definition that breaks the rule that credentials stand outside the registry (D-042).
        await world.register(
            "leaky",
            "",
            url=mail.url(),
            headers={"Authorization": f"Bearer {MARKERS['CREDENTIAL']}"},
        )
        await world.work(log_level="DEBUG")
        overrides: dict[str, object] = {"api_providers": json.dumps([provider])}
        async with ApiProcess(world=world, overrides=overrides) as api:
            activities = await deliver(world, mail)
            answers = await ask(world, api, activities[0])
            assert any(MARKERS["BODY"].encode() in request for request in mail.requests)
            assert any(b"webhook-signature: v1," in request for request in mail.requests)
            yield Lived(world, api, answers, activities)


async def deliver(world: World, mail: MailProvider) -> list[Produced]:
    """Deliveries to a target and to inboxes, refused, sent, and of records that cannot be read."""
    text = {"content": MARKERS["BODY"], "headers": {"authorization": MARKERS["BODY"]}}
    refused = world.to_target("urn:canary:1", "mail")
    inner = json.dumps({"type": "Notice", **text}).encode()
    refused = Produced(
        activity_id=refused.activity_id,
        value=refused.value.replace(b'"activity": {', b'"activity": {"x": ' + inner + b", "),
        body=b"",
    )
    query = f"?api_key={MARKERS['QUERY']}&token={MARKERS['QUERY']}"
    inboxes = [
        mail.url(f"/send/{MARKERS['PATH']}{query}"),
        mail.url(f"/refuse/{MARKERS['PATH']}{query}"),
        f"http://127.0.0.1:{free_port()}/{MARKERS['PATH']}{query}",
    ]
    head = {
        "activity_id": "urn:canary:2",
        "recipients": [{"inbox": each} for each in inboxes],
        "activity": {"type": "Create", **text},
    }
    sent = Produced(
        activity_id="urn:canary:2", value=json.dumps(head).encode(), body=b"", paths=("", "", "")
    )
    with_user = head | {
        "activity_id": "urn:canary:3",
        "recipients": [{"inbox": f"http://{MARKERS['USERINFO']}:pw@127.0.0.1:{mail.port}/x"}],
    }
    unread = [
        json.dumps(with_user).encode(),
        b'{"activity_id": "' + MARKERS["EXCEPTION"].encode(),
        json.dumps({"activity_id": [MARKERS["EXCEPTION"]]}).encode(),
        b"\xff" + MARKERS["EXCEPTION"].encode(),
    ]
    await world._producer.send(
        world.topics.outbox,
        key=refused.key,
        partition=world.home(refused),
        value=refused.value,
        headers=[("authorization", MARKERS["HEADER"].encode())],
    )
    leaky = world.to_target("urn:canary:4", "leaky")
    await world.produce(sent, leaky)
    await world.write([(b"k", 0, value) for value in unread])
    await world.until_settled(refused, sent, leaky)
    await world.until(lambda: len(world.quarantined) == len(unread), "the quarantined records")
    return [refused, sent]


def free_port() -> int:
    """Nobody listens there."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


async def ask(world: World, api: ApiProcess, refused: Produced) -> dict[str, bytes]:
    """Every page that an operator can see, good answers and problems; what they said."""
    await world.until(lambda: refused.key.decode() in world.letters, "the dead letter")
    letter = world.letter(refused)

    async def is_shown() -> bool:
        shown = await api.get(f"/deliveries/{letter.delivery_id}/observations")
        return shown.status_code == 200 and bool(shown.json()["observations"])

    await world.until_true(is_shown, "the history")
    event = {
        "webhook_id": f"{letter.delivery_id}-1",
        "state": "bounced",
        "at": time.time(),
        "recipient": f"{MARKERS['EVENT']}@example.com",
        "reason": MARKERS["EVENT"],
        "code": f"550 {MARKERS['EVENT']}",
    }
    answers = {
        "event": await tell(api, json.dumps(event).encode()),
        "bad event": await tell(api, b'{"' + MARKERS["WEBHOOK"].encode()),
        "redrive": await api.redrive(
            letter.dead_letter_id, reason=f"Authorization: Bearer {MARKERS['REASON']}"
        ),
        "bad redrive": await api.redrive(letter.dead_letter_id, mode=MARKERS["REASON"]),
    }
    for path in (
        *("/deliveries", "/dead-letters", "/targets", "/targets/mail", "/targets/leaky"),
        f"/deliveries/{letter.delivery_id}",
        f"/deliveries/{letter.delivery_id}/observations",
        f"/dead-letters/{letter.dead_letter_id}",
        *("/activities/urn:canary:1", "/activities/urn:canary:2"),
        f"/deliveries?cursor={MARKERS['EXCEPTION']}&limit={MARKERS['EXCEPTION']}",
        f"/deliveries/{MARKERS['EXCEPTION']}",
    ):
        answers[path] = await api.get(path)
    # Shown masked on purpose; what it leaves in audit, logs, metrics and files is searched like all else.
    revealed = await api.get(f"/deliveries/{letter.delivery_id}/content?reveal=masked")
    assert revealed.status_code == 200, revealed.text
    answers["metrics"] = await api.client.get("/metrics")
    return {name: str(answer.headers).encode() + answer.content for name, answer in answers.items()}


async def tell(api: ApiProcess, body: bytes) -> Any:
    at = int(time.time())
    return await api.client.post(
        f"{BASE}/provider-events/mail",
        content=body,
        headers={
            "authorization": "",
            "webhook-id": "msg_1",
            "webhook-timestamp": str(at),
            "webhook-signature": signature(SECRET, body, at),
        },
    )


def files(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield str(path.relative_to(folder.parent)), path.read_bytes()


async def topic(world: World, name: str, partitions: int) -> bytes:
    """Every byte of a topic's records."""
    parts: list[bytes] = []

    def take(_partition: int, records: Any) -> None:
        for record in records:
            parts.extend(value for _, value in record.headers)
            parts.extend(each for each in (record.key, record.value) if each is not None)

    options = {"bootstrap_servers": world.brokers}
    await read_all(options, name, dict.fromkeys(range(partitions), 0), take)
    assert parts, f"{name} holds nothing to search"
    return b"\n".join(parts)


async def test_topics_that_operators_read_hold_no_marker(lived: Lived) -> None:
    """D-043: dead letters, observations and the audit, headers and keys included."""
    t, count = lived.world.topics, lived.world.partitions
    named = {t.outbox_dead_letters: count, t.observations: count, t.audit: 1}

    found = [
        each
        for name, partitions in named.items()
        for each in finds(name, await topic(lived.world, name, partitions))
    ]

    assert [] == found
    # The search finds what is there: producers' own topic holds what they wrote.
    assert f"BODY in {t.outbox}" in finds(t.outbox, await topic(lived.world, t.outbox, count))


async def test_receipts_and_the_ledger_hold_no_more_than_the_destination(lived: Lived) -> None:
    """D-042, C-11: what names the delivery stands there, and no content, answer or credential."""
    t, count = lived.world.topics, lived.world.partitions

    found = [
        each
        for name in (t.receipts, t.ledger)
        for each in finds(name, await topic(lived.world, name, count), *DESTINATION)
    ]

    assert [] == found


async def test_logs_and_metrics_hold_no_marker(lived: Lived) -> None:
    """D-043: the worker at DEBUG, and the API; both processes' metrics."""
    worker = lived.world.workers[0]
    _, metrics = await worker.page("/metrics")
    lines = worker.output

    assert "delivery.attempted" in lines
    assert "record.rejected" in lines
    assert "outbox_attempts_total" in metrics
    assert [] == [
        *finds("the worker's log", lines.encode()),
        *finds("the worker's metrics", metrics.encode()),
        *finds("the API's log", lived.api.log.read_bytes()),
    ]


async def test_answers_of_the_api_hold_no_marker(lived: Lived) -> None:
    """D-043..047: lists, single views, histories, problems, headers."""
    assert b'"accepted":1' in lived.answers["event"].replace(b" ", b"")
    assert b"audit_id" in lived.answers["redrive"]
    assert [] == [each for name, raw in lived.answers.items() for each in finds(name, raw)]


async def test_no_file_of_the_api_holds_a_marker(lived: Lived) -> None:
    """D-038, D-043: its RocksDBs hold what may be shown."""
    folder = lived.world.folder / lived.api.name
    found = dict(files(folder))

    assert any(b"dlv_" in raw for raw in found.values())
    assert [] == [each for name, raw in found.items() for each in finds(name, raw)]


async def test_the_workers_files_hold_no_more_than_the_destination(lived: Lived) -> None:
    """D-038: what the worker keeps is the ledger; bodies and secrets exist on the execution path only."""
    found = dict(files(lived.world.folder / "w1"))

    # The search sees through how it is stored: destinations are there.
    assert any(f"PATH in {name}" in finds(name, raw) for name, raw in found.items())
    assert [] == [each for name, raw in found.items() for each in finds(name, raw, *DESTINATION)]
