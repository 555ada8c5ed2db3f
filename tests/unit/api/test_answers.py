"""What every answer shares: tags, metrics, and that all endpoints of the contract are there."""

from __future__ import annotations

import httpx
import pytest

from streams.api.app import Parts, pages
from streams.api.asking import Desk
from streams.api.observation_schemas import paths
from streams.api.openapi import document
from tests.unit.api.desk import BASE, auth, dead_row, row

CONTRACT: dict[str, dict[str, set[str]]] = {
    "get": {
        "/deliveries": {"activity_id", "status", "target", "limit", "cursor"},
        "/deliveries/{delivery_id}": set(),
        "/deliveries/{delivery_id}/observations": set(),
        "/deliveries/{delivery_id}/content": {"reveal"},
        "/activities/{activity_id}": set(),
        "/dead-letters": {"limit", "offset"},
        "/targets": set(),
        "/targets/{name}": set(),
        "/redrive-jobs": set(),
        "/redrive-jobs/{job_id}": set(),
    },
    "post": {
        "/dead-letters/{dead_letter_id}:redrive": set(),
        "/deliveries/{delivery_id}:cancel": set(),
        "/targets/{name}:enable": set(),
        "/targets/{name}:disable": set(),
        "/targets/{name}:pause": set(),
        "/redrive-jobs": set(),
        "/redrive-jobs/{job_id}:stop": set(),
        "/provider-events/{provider}": set(),
    },
}
"""Interface §5 and issue 7: each endpoint with the parameters that the contract names."""


@pytest.mark.parametrize(
    ("method", "path"), [(method, path) for method, all_ in CONTRACT.items() for path in all_]
)
def test_every_endpoint_of_the_contract_is_in_the_document(method, path):
    """Interface §5: `/openapi.json` is the whole contract."""
    found = document(paths())["paths"][BASE + path][method]
    named = {each["name"] for each in found["parameters"]}

    assert CONTRACT[method][path] <= named


def test_every_operation_of_the_document_says_who_may_and_how_it_fails():
    """Scopes of interface §5; every failure is a problem."""
    for path in document(paths())["paths"].values():
        for operation in path.values():
            assert "security" in operation
            assert {"401", "503"} <= set(operation["responses"])


async def test_what_has_not_changed_is_not_sent_again(world):
    """RFC 9110, 13.1.2: by ETag, for one row and for a page; anew where it has changed."""
    world.deliver(1, row(1))
    place = f"{BASE}/deliveries"
    async with world.client() as client:
        first = await client.get(place)
        tag = {"if-none-match": f'"other", {first.headers["etag"]}'}
        same = await client.get(place, headers=tag)
        world.put(b"acme|urn:1", dead_row(1))
        changed = await client.get(place, headers=tag)

    assert [200, 304, 200] == [a.status_code for a in (first, same, changed)]
    assert b"" == same.content
    assert first.headers["etag"] == same.headers["etag"] != changed.headers["etag"]
    assert "private, no-cache" == first.headers["cache-control"]
    assert "offset-token" in same.headers


async def test_an_answer_to_a_change_is_kept_nowhere(world):
    """What was done once must not be answered from a cache."""
    letter = world.deliver(1, dead_row(1)).letter_id
    async with world.client() as client:
        answer = await client.post(
            f"{BASE}/dead-letters/{letter}:redrive",
            json={"reason": "x", "effect_mode": "reconcile_replay"},
        )

    assert "etag" not in answer.headers
    assert "no-store" == answer.headers["cache-control"]


async def test_requests_are_counted_by_route_and_never_by_what_they_name(world):
    """Bounded labels: an id in one would be a series for each delivery."""
    seen = world.deliver(1)
    async with world.client() as client:
        await client.get(f"{BASE}/deliveries/{seen.delivery_id}")
        await client.get(f"{BASE}/deliveries/dlv_none")
        await client.get("/nowhere/at/all")
        await client.get(f"{BASE}/deliveries", headers={"authorization": "Bearer nobody"})
        text = (await client.get("/metrics")).text

    route = f'route="{BASE}/deliveries/{{delivery_id}}"'
    assert f'outbox_api_requests_total{{method="GET",{route},status="200"}} 1.0' in text
    assert f'outbox_api_requests_total{{method="GET",{route},status="404"}} 1.0' in text
    assert 'outbox_api_requests_total{method="GET",route="none",status="404"} 1.0' in text
    assert 'outbox_api_requests_total{method="GET",route="none",status="401"} 1.0' in text
    assert f"outbox_api_request_seconds_count{{{route}}} 2.0" in text
    assert "outbox_api_view_behind_seconds 0.25" in text
    assert "outbox_api_view_ready 1.0" in text
    assert "nowhere" not in text
    assert seen.delivery_id not in text


async def test_what_fails_inside_is_counted_as_500(world, monkeypatch):
    """An alert on 5xx must see it."""
    monkeypatch.setattr(world.database, "delivery", lambda _: 1 / 0)
    async with world.client() as client:
        await client.get(f"{BASE}/deliveries/x")
        text = (await client.get("/metrics")).text

    assert 'delivery_id}",status="500"} 1.0' in text


async def test_the_pages_beside_need_no_token_and_show_nothing_else(world):
    """OUTBOX_API_METRICS_ADDRESS: for who runs it; no delivery is to be had there."""
    world.app()
    parts = Parts(
        desk=Desk(view=world.view, freshness=world.fresh),
        redriver=world.log,
        canceller=world.log,
        writer=world.log,
        targets_topic="targets",
        authenticator=world.log,
        new_id=world.new_id,
        now_ms=lambda: 0,
        registry=world.registry,
    )
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(pages(parts)), base_url="http://api"
    ) as client:
        codes = [
            (await client.get(path, headers=auth("t-admin"))).status_code
            for path in ("/healthz", "/readyz", "/metrics", f"{BASE}/deliveries", "/openapi.json")
        ]
        world.fresh.is_ready = False
        assert 503 == (await client.get("/readyz")).status_code

    assert [200, 200, 200, 404, 404] == codes
