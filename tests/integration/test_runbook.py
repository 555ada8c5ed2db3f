"""`docs/runbook.md` and `docs/alerts.md` as they stand: their commands and calls, run against real parts."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from streams.model.receipt import Outcome
from tests.integration.api_process import ADMIN, ApiProcess
from tests.integration.world import Produced, World

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]

ROOT = Path(__file__).parents[2]
LINE = {
    "activity_id": "urn:runbook:1",
    "recipients": [{"target": "crm"}],
    "activity": {"type": "Notice", "about": "runbook"},
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with World(kafka, tmp_path_factory.mktemp("runbook")) as world:
        await world.register("crm", "/status/422/crm", updated_ms=1)
        await world.work()
        yield world


async def run(world: World, api: ApiProcess, *arguments: str) -> str:
    """Run `outbox ARGUMENTS` as the runbook sets it up; its output."""
    done = await asyncio.to_thread(
        lambda: world.command(*arguments, api_address=f"127.0.0.1:{api.port}", api_token=ADMIN)
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


async def produce(world: World, api: ApiProcess) -> Produced:
    file = world.folder / "original.jsonl"
    await asyncio.to_thread(file.write_text, json.dumps(LINE) + "\n")
    await run(world, api, "produce", str(file))
    return Produced(activity_id="urn:runbook:1", value=b"", body=b"")


async def test_the_seven_steps(world: World, api: ApiProcess) -> None:
    """The delivery document's runbook: each step's command or call answers what the page says."""
    activity = await produce(world, api)
    await world.until_settled(activity)
    await world.until(lambda: activity.key.decode() in world.letters, "the dead letter")
    letter = world.letter(activity)
    own = letter.delivery_id

    # 1
    assert letter.dead_letter_id in await run(world, api, "dead-letters")

    async def is_shown() -> bool:
        return letter.dead_letter_id in await run(world, api, "show", activity.activity_id)

    await world.until_true(is_shown, "step 1")
    letters = (await api.get("/dead-letters?limit=50&state=open")).json()["items"]
    assert letter.dead_letter_id in [each["dead_letter_id"] for each in letters]
    assert "failed" == (await api.get(f"/deliveries/{own}")).json()["status"]

    # 2
    history: dict[str, Any] = (await api.get(f"/deliveries/{own}/observations")).json()
    assert ["http_422"] == [each["code"] for each in history["observations"]]

    # 3, 4, 5: the cause is mended first
    await world.register("crm", "/ok/crm", updated_ms=2)
    reason = "CRM confirmed: request 4711 was not accepted; ticket 123"
    told = await run(
        world,
        api,
        *("redrive", letter.dead_letter_id, "--reason", reason),
        *("--effect-mode", "new_external_send"),
    )
    assert "status=queued" in told
    assert 409 == (await api.redrive(letter.dead_letter_id)).status_code

    # 6
    await produce(world, api)
    await world.until(
        lambda: any(r.verdict is Outcome.SENT for r in world.receipts[activity.activity_id]),
        "the receipt",
    )

    # 7
    async def is_confirmed() -> bool:
        nonlocal history
        history = (await api.get(f"/deliveries/{own}/observations")).json()
        return history["status"] == "sent" and len(history["observations"]) == 2

    await world.until_true(is_confirmed, "step 7")
    assert (2, "unknown") == (history["generation"], history["downstream"]["state"])
    assert [(1, 1), (2, 1)] == [
        (each["generation"], each["attempt"]) for each in history["observations"]
    ]


async def test_a_target_is_parked_and_released(world: World, api: ApiProcess) -> None:
    """A target that is down is parked: nothing is called while it is disabled, nothing is lost."""
    for verb, shown in (("disable", False), ("enable", True)):
        answer = await api.client.post(
            f"/api/v2/notifications/targets/crm:{verb}",
            json={"reason": "CRM migrates, ticket 124"},
            headers={"x-tenant-id": "default"},
        )

        assert (200, shown) == (answer.status_code, answer.json()["enabled"])


async def test_the_consumer_of_the_alerts_page_tells_of_a_dead_letter(
    world: World, api: ApiProcess
) -> None:
    """Issue 7, "Alerts": ten lines, as they are printed; only the places differ."""
    page = await asyncio.to_thread((ROOT / "docs" / "alerts.md").read_text)
    [code] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    code = code.replace("127.0.0.1:9092", world.brokers).replace(
        '"outbox.dead-letters"', f'"{world.topics.outbox_dead_letters}"'
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    try:
        activity = world.activity("urn:alert:1", "/status/400/alert")
        await world.produce(activity)
        await world.until_settled(activity)
        assert process.stdout is not None
        # It begins at the end of the topic: told again until it is there to hear it.
        heard = asyncio.ensure_future(process.stdout.readline())
        n = 1
        while not heard.done():
            n += 1
            another = world.activity(f"urn:alert:{n}", "/status/400/alert")
            await world.produce(another)
            await world.until_settled(another)
    finally:
        process.kill()
        await process.wait()

    assert b"urn:alert:" in await heard
    assert b"http_400" in await heard
