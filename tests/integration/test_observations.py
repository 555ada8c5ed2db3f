"""Histories for real: a worker writes them, the API shows them, a provider adds to them (D-048..056)."""

from __future__ import annotations

import json
import time
from base64 import b64encode
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio

from tests.integration.api_process import BASE, OTHER, ApiProcess, bearer, tenant
from tests.integration.mail_provider import MailProvider
from tests.integration.world import Produced, World
from tests.unit.api.intake import signature

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]

SECRET = f"whsec_{b64encode(bytes(range(32))).decode()}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mail() -> AsyncIterator[MailProvider]:
    async with MailProvider() as mail:
        yield mail


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(
    kafka: str, tmp_path_factory: pytest.TempPathFactory, mail: MailProvider
) -> AsyncIterator[World]:
    async with World(kafka, tmp_path_factory.mktemp("observations")) as world:
        (world.folder / "key").write_text(SECRET)
        await world.register("mail", "", url=mail.url(), message_id_from="header:x-message-id")
        await world.work()
        yield world


def with_provider(world: World, name: str = "api1") -> ApiProcess:
    provider = {"name": "mail", "shape": "plain", "secret_refs": [f"file:{world.folder}/key"]}
    return ApiProcess(world=world, name=name, overrides={"api_providers": json.dumps([provider])})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(world: World) -> AsyncIterator[ApiProcess]:
    async with with_provider(world) as api:
        yield api


async def history(world: World, api: ApiProcess, activity: Produced, entries: int) -> Any:
    """The one delivery's history, once it has so many entries."""
    own = world.receipts[activity.activity_id][0].delivery_id
    found: list[Any] = []

    async def is_there() -> bool:
        answer = await api.get(f"/deliveries/{own}/observations")
        found[:] = [answer.json()]
        return answer.status_code == 200 and len(found[0]["observations"]) >= entries

    await world.until_true(is_there, f"{entries} entries")
    return found[0]


async def tell(api: ApiProcess, event: object, secret: str = SECRET) -> httpx.Response:
    body = json.dumps(event).encode()
    at = int(time.time())
    return await api.client.post(
        f"{BASE}/provider-events/mail",
        content=body,
        headers={
            "authorization": "",
            "content-type": "application/json",
            "webhook-id": "msg_1",
            "webhook-timestamp": str(at),
            "webhook-signature": signature(secret, body, at),
        },
    )


async def counted(api: ApiProcess, outcome: str) -> float:
    text = (await api.client.get("/metrics")).text
    label = f'outbox_provider_events_total{{outcome="{outcome}",provider="mail"}} '
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(label))


async def test_every_attempt_is_in_the_history(world: World, api: ApiProcess) -> None:
    """D-052..054: what each saw, how long it took, who made it; in order."""
    activity = world.activity("urn:seen:1", "/flaky/2/seen")
    await world.produce(activity)
    await world.until_settled(activity)

    shown = await history(world, api, activity, 3)

    assert [
        ("attempt", 1, "http_503", "waiting", "w1"),
        ("attempt", 2, "http_503", "waiting", "w1"),
        ("attempt", 3, "http_200", "sent", "w1"),
    ] == [
        (each["source"], each["attempt"], each["code"], each["phase"], each["worker"])
        for each in shown["observations"]
    ]
    assert ("sent", "unknown") == (shown["status"], shown["downstream"]["state"])


async def test_what_was_never_called_says_why(world: World, api: ApiProcess) -> None:
    """D-009: a decision is no attempt."""
    activity = world.to_target("urn:seen:2", "nobody")
    await world.produce(activity)
    await world.until_settled(activity)

    [only] = (await history(world, api, activity, 1))["observations"]

    assert ("decision", 0, "unknown_target", "admission") == (
        only["source"],
        only["attempt"],
        only["code"],
        only["failure_phase"],
    )


async def test_a_providers_event_is_matched_by_its_message_id(
    world: World, api: ApiProcess
) -> None:
    """D-050, D-055, D-071: state and status stand apart; told again, it is the same."""
    activity = world.to_target("urn:seen:3", "mail")
    await world.produce(activity)
    await world.until_settled(activity)
    before = await history(world, api, activity, 1)
    event = {
        "message_id": before["provider_message_id"],
        "state": "bounced",
        "code": "5.1.1",
        "at": time.time(),
        "event_id": "e1",
    }
    first = (await tell(api, event)).json()
    shown = await history(world, api, activity, 2)
    again = (await tell(api, event)).json()

    assert (1, 1) == (first["accepted"], again["repeated"])
    assert ("sent", "bounced", "5.1.1", 1) == (
        shown["status"],
        shown["downstream"]["state"],
        shown["downstream"]["provider_code"],
        shown["downstream"]["events"],
    )


async def test_what_is_not_signed_changes_nothing_and_is_counted(
    world: World, api: ApiProcess
) -> None:
    """D-056: with our own id, which anybody who was called knows."""
    activity = world.activity("urn:seen:4", "/ok/seen4")
    await world.produce(activity)
    await world.until_settled(activity)
    own = (await history(world, api, activity, 1))["delivery_id"]
    event = {"webhook_id": f"{own}-1", "state": "complained", "at": time.time()}
    other = f"whsec_{b64encode(bytes(32)).decode()}"

    refused = await tell(api, event, other)
    taken = await tell(api, event | {"state": "delivered"})
    shown = await history(world, api, activity, 2)

    assert (401, 202) == (refused.status_code, taken.status_code)
    assert ("delivered", 1) == (shown["downstream"]["state"], shown["downstream"]["events"])
    assert 1.0 == await counted(api, "forged")


async def test_another_tenant_sees_no_history(world: World, api: ApiProcess) -> None:
    """C-13: 404 as for what does not exist; without a token 401."""
    activity = world.activity("urn:seen:5", "/ok/seen5")
    await world.produce(activity)
    await world.until_settled(activity)
    path = (
        f"{BASE}/deliveries/{(await history(world, api, activity, 1))['delivery_id']}/observations"
    )

    other = await api.client.get(path, headers=bearer(OTHER) | tenant("other"))
    nobody = await api.client.get(path, headers={"authorization": ""})

    assert [404, 401] == [other.status_code, nobody.status_code]


async def test_a_new_replica_shows_the_same_histories(world: World, api: ApiProcess) -> None:
    """Issue 7: from nothing, side by side with the first."""
    activity = world.activity("urn:seen:6", "/flaky/1/seen6")
    await world.produce(activity)
    await world.until_settled(activity)
    first = await history(world, api, activity, 2)
    async with with_provider(world, "api2") as other:
        second = await history(world, other, activity, 2)

    assert first == second


async def test_the_openapi_document_names_histories_and_events(api: ApiProcess) -> None:
    """Issue 7: what is served is described."""
    paths = (await api.client.get("/openapi.json")).json()["paths"]

    assert {
        f"{BASE}/deliveries/{{delivery_id}}/observations",
        f"{BASE}/provider-events/{{provider}}",
    } <= set(paths)
