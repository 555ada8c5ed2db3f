"""The operator API against a real broker and a real worker: see, ask, redrive, replay."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections import Counter
from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio
from aiokafka.admin import AIOKafkaAdminClient

from streams.model.receipt import Outcome
from tests.integration.api_process import ADMIN, BASE, OTHER, READER, ApiProcess, bearer, tenant
from tests.integration.told import all_audited, audited, commanded
from tests.integration.world import Produced, World

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with World(kafka, tmp_path_factory.mktemp("api")) as world:
        await world.work()
        yield world


async def dead(world: World, api: ApiProcess, activity: Produced) -> dict[str, object]:
    """Produce an activity whose one delivery is refused; its dead letter as the API shows it."""
    await world.produce(activity)
    await world.until_settled(activity)
    await world.until(lambda: activity.key.decode() in world.letters, "the dead letter")
    letter_id = world.letter(activity).dead_letter_id

    async def is_shown() -> bool:
        return (await api.get(f"/dead-letters/{letter_id}")).status_code == 200

    await world.until_true(is_shown, "the letter to be shown")
    return dict((await api.get(f"/dead-letters/{letter_id}")).json())


async def test_what_is_told_of_an_activity_tells_not_yet_never_and_done_apart(
    world: World, api: ApiProcess
) -> None:
    """O-022, D-008, F07: by query, without logs; destinations masked."""
    activity = world.activity("urn:api:three", "/ok/a", "/status/400/b", "/retry-after/30/c")
    await world.produce(activity)

    async def is_told() -> bool:
        answer = await api.get("/activities/urn:api:three")
        return answer.status_code == 200 and answer.json()["counts"] == {
            "queued": 0,
            "running": 1,
            "sent": 1,
            "failed": 1,
            "skipped": 0,
        }

    await world.until_true(is_told, "one of each")
    facts = (await api.get("/activities/urn:api:three")).json()

    assert "not_yet" == facts["reach"]
    assert {"done": "sent", "never": "failed", "not_yet": "running"} == {
        each["reach"]: each["status"] for each in facts["deliveries"]
    }


async def test_a_redriven_letter_is_resolved_and_its_replay_is_sent_once(
    world: World, api: ApiProcess
) -> None:
    """D-060..069, C-12, C-13: audited; same generation and webhook-id; nothing sent by itself."""
    activity = world.activity("urn:api:once", "/status/400/once")
    letter = await dead(world, api, activity)
    first = world.calls("/status/400/once")[0].id

    # A replay without a redrive is a duplicate, and nothing is sent.
    await world.produce(activity)
    await world.until(
        lambda: any(r.verdict is Outcome.DUPLICATE for r in world.receipts["urn:api:once"]),
        "the duplicate",
    )
    answer = await api.redrive(str(letter["dead_letter_id"]))
    again = await api.redrive(str(letter["dead_letter_id"]))
    assert (200, 409) == (answer.status_code, again.status_code)
    assert ("queued", 1) == (
        answer.json()["delivery"]["status"],
        answer.json()["delivery"]["generation"],
    )
    assert 1 == len(world.calls("/status/400/once"))

    shown = await api.get(
        f"/dead-letters/{letter['dead_letter_id']}?at-least={answer.headers['offset-token']}"
    )
    assert ("resolved", "reconcile_replay") == (
        shown.json()["state"],
        shown.json()["resolution"]["effect_mode"],
    )
    assert shown.json()["resolution"]["audit_id"] == answer.json()["audit_id"]
    assert shown.json()["created_ms"] <= shown.json()["resolved_ms"]

    await world.produce(activity)
    await world.until(lambda: len(world.calls("/status/400/once")) == 2, "the second call")
    assert first == world.calls("/status/400/once")[1].id


async def test_a_new_external_send_has_a_new_id_and_generation(
    world: World, api: ApiProcess
) -> None:
    """C-12, D-076: the next generation can be read afterwards."""
    activity = world.activity("urn:api:new", "/status/400/new")
    letter = await dead(world, api, activity)

    answer = await api.redrive(str(letter["dead_letter_id"]), "new_external_send")
    await world.produce(activity)
    await world.until(lambda: len(world.calls("/status/400/new")) == 2, "the second call")

    assert 2 == answer.json()["delivery"]["generation"]
    one, two = world.calls("/status/400/new")
    assert one.id != two.id


async def test_a_replay_with_changed_input_is_a_conflict(world: World, api: ApiProcess) -> None:
    """C-13: the canonical hash is compared, also after a redrive."""
    activity = world.activity("urn:api:changed", "/status/400/changed")
    letter = await dead(world, api, activity)
    assert 200 == (await api.redrive(str(letter["dead_letter_id"]))).status_code

    await world.produce(world.activity("urn:api:changed", "/status/400/changed", further="x"))
    await world.until(
        lambda: any(r.verdict is Outcome.CONFLICT for r in world.receipts["urn:api:changed"]),
        "the conflict",
    )

    assert 1 == len(world.calls("/status/400/changed"))


async def test_fifty_at_once_redrive_a_letter_once(world: World, api: ApiProcess) -> None:
    """Issue 7, rule 11: one success, 49 times 409; one audit record."""
    letter = await dead(world, api, world.activity("urn:api:fifty", "/status/400/fifty"))

    answers = await asyncio.gather(*(api.redrive(str(letter["dead_letter_id"])) for _ in range(50)))

    assert {200: 1, 409: 49} == Counter(answer.status_code for answer in answers)
    assert 1 == len(await audited(world, str(letter["dead_letter_id"])))


async def test_two_replicas_redrive_a_letter_once(world: World, api: ApiProcess) -> None:
    """Issue 7: the ledger decides between replicas, and both tell the same."""
    letter = await dead(world, api, world.activity("urn:api:two", "/status/400/two"))
    letter_id = str(letter["dead_letter_id"])
    async with ApiProcess(world=world, name="api2") as second:
        answers = await asyncio.gather(api.redrive(letter_id), second.redrive(letter_id))

        assert [200, 409] == sorted(answer.status_code for answer in answers)
        (good,) = (answer for answer in answers if answer.status_code == 200)
        shown = [(await each.get(f"/dead-letters/{letter_id}")).json() for each in (api, second)]

    assert {good.json()["audit_id"]} == {each["resolution"]["audit_id"] for each in shown}


async def test_a_killed_api_leaves_both_records_or_neither(world: World, api: ApiProcess) -> None:
    """Issue 7, D-065: kill -9 amid redrives; each audit has its command, and the other way round."""
    activities = [world.activity(f"urn:api:kill:{n}", f"/status/400/kill{n}") for n in range(8)]
    letters = [await dead(world, api, each) for each in activities]
    async with ApiProcess(world=world, name="api4") as doomed:
        asked = [
            asyncio.create_task(doomed.redrive(str(letter["dead_letter_id"]))) for letter in letters
        ]
        await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        doomed.process.kill()
        answers = await asyncio.gather(*asked, return_exceptions=True)
    # One of its name aborts what it left open, which hides all that is written behind it.
    async with ApiProcess(world=world, name="api4") as again:
        after = await dead(world, again, world.activity("urn:api:after", "/status/400/after"))
        assert 200 == (await again.redrive(str(after["dead_letter_id"]))).status_code

    told = {each.json()["audit_id"] for each in answers if isinstance(each, httpx.Response)}
    commands = await commanded(world)
    audits = {
        audit.audit_id
        for letter in letters
        for audit in await audited(world, str(letter["dead_letter_id"]))
    }
    keys = {activity.key for activity in activities}
    assert audits == {command.audit_id for key, command in commands if key in keys}
    assert told <= audits


async def test_the_reason_is_kept_redacted_with_who_asked(world: World, api: ApiProcess) -> None:
    """D-062, D-074."""
    letter = await dead(world, api, world.activity("urn:api:why", "/status/400/why"))

    await api.redrive(
        str(letter["dead_letter_id"]), reason="asked by Authorization: Bearer sk_live_canary12345"
    )

    (audit,) = await audited(world, str(letter["dead_letter_id"]))
    assert ("al", "redrive", "urn:api:why") == (audit.subject, audit.action, audit.activity_id)
    assert "canary" not in audit.reason
    assert audit.reason.startswith("asked by")


async def test_a_waiting_delivery_is_cancelled_through_its_owner(
    world: World, api: ApiProcess
) -> None:
    """Issue 7: by command and ledger; its producer is told, its target is called no more."""
    activity = world.activity("urn:api:cancel", "/retry-after/40/cancel")
    await world.produce(activity)

    async def waits() -> bool:
        answer = await api.get("/deliveries?activity_id=urn:api:cancel")
        return [each["phase"] for each in answer.json()["items"]] == ["waiting"]

    await world.until_true(waits, "the delivery to wait")
    (shown,) = (await api.get("/deliveries?activity_id=urn:api:cancel")).json()["items"]
    place = f"{BASE}/deliveries/{shown['delivery_id']}"
    answers = [
        await api.client.post(
            f"{place}:cancel", json={"reason": "not wanted"}, headers=tenant("default")
        )
        for _ in range(2)
    ]
    await world.until_settled(activity)

    assert [200, 409] == [answer.status_code for answer in answers]
    assert ("skipped", "cancelled") == (
        answers[0].json()["delivery"]["status"],
        answers[0].json()["delivery"]["code"],
    )
    (receipt,) = world.receipts["urn:api:cancel"]
    assert (Outcome.SKIPPED, "cancelled") == (receipt.verdict, receipt.code)
    assert 1 == len(world.calls("/retry-after/40/cancel"))
    assert ["delivery.cancel"] == [
        each.action for each in await all_audited(world) if each.delivery_id == shown["delivery_id"]
    ]


async def test_a_job_redrives_many_and_goes_on_after_a_kill(world: World, api: ApiProcess) -> None:
    """Issue 7: resumable, with progress; each letter with its own audit record, at a bounded rate."""
    count = 12
    activity = world.activity("urn:api:job", *(f"/status/400/job{n}" for n in range(count)))
    await world.produce(activity)
    await world.until_settled(activity)

    async def resolved(process: ApiProcess) -> int:
        items = (await process.get("/deliveries?activity_id=urn:api:job&limit=200")).json()["items"]
        return len([each for each in items if each["status"] == "queued"])

    async with ApiProcess(world=world, name="api-job") as doomed:
        await world.until_true(lambda: _is_dead(doomed, "urn:api:job", count), "the letters")
        answer = await doomed.client.post(
            f"{BASE}/redrive-jobs",
            json={
                "reason": "CRM was down",
                "effect_mode": "reconcile_replay",
                "filter": {"activity_id": "urn:api:job"},
                "rate_per_s": 2,
            },
            headers=tenant("default"),
        )
        assert 202 == answer.status_code, answer.text
        place = answer.headers["location"].removeprefix(BASE)

        async def has_begun() -> bool:
            return await resolved(doomed) >= 2

        await world.until_true(has_begun, "the job to have begun")
        doomed.process.kill()
    async with ApiProcess(world=world, name="api-job") as again:

        async def is_done() -> bool:
            return bool((await again.get(place)).json().get("state") == "done")

        await world.until_true(is_done, "the job to be done")
        assert count == await resolved(again)
        facts = (await again.get(place)).json()
    audits = [each for each in await all_audited(world) if each.job_id == facts["job_id"]]
    redriven = [each for each in audits if each.action == "redrive"]

    assert {"job.start", "redrive", "job.stop"} == {each.action for each in audits}
    assert count == len({each.dead_letter_id for each in redriven})
    assert len(redriven) == facts["redriven"]


async def _is_dead(process: ApiProcess, activity_id: str, count: int) -> bool:
    answer = await process.get(f"/deliveries?activity_id={activity_id}&status=failed&limit=200")
    return answer.status_code == 200 and len(answer.json()["items"]) == count


async def test_content_is_shown_masked_while_its_record_exists(
    world: World, api: ApiProcess
) -> None:
    """Issue 7, D-044: read from the outbox topic, in the audit; no token of it is shown."""
    activity = world.activity("urn:api:content", "/ok/content", api_key="canary-7f3a", note="hello")
    await world.produce(activity)
    await world.until_settled(activity)
    (shown,) = await _items(world, api, "urn:api:content")
    answer = await api.get(f"/deliveries/{shown['delivery_id']}/content?reveal=masked")

    assert 200 == answer.status_code, answer.text
    assert "hello" in answer.text
    assert "canary" not in answer.text
    assert ["content.reveal"] == [
        each.action
        for each in await all_audited(world)
        if each.audit_id == answer.json()["audit_id"]
    ]


async def _items(world: World, api: ApiProcess, activity_id: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []

    async def are_shown() -> bool:
        found[:] = (await api.get(f"/deliveries?activity_id={activity_id}")).json()["items"]
        return bool(found)

    await world.until_true(are_shown, "the delivery to be shown")
    return found


async def test_another_tenant_sees_nothing(world: World, api: ApiProcess) -> None:
    """C-13: another tenant's id is answered as an unknown one; no token, no answer."""
    letter = await dead(world, api, world.activity("urn:api:mine", "/status/400/mine"))
    place = f"{BASE}/dead-letters/{letter['dead_letter_id']}"
    wish = {"reason": "x", "effect_mode": "reconcile_replay"}

    async def status(method: str, path: str, headers: dict[str, str]) -> int:
        body = wish if method == "POST" else None
        return (await api.client.request(method, path, json=body, headers=headers)).status_code

    eve = bearer(OTHER) | tenant("other")
    assert [404] * 4 == [
        await status("GET", place, eve),
        await status("POST", f"{place}:redrive", eve),
        await status("GET", f"{BASE}/deliveries/{letter['delivery_id']}", eve),
        await status("GET", f"{BASE}/activities/urn:api:mine", eve),
    ]
    assert [] == (await api.client.get(f"{BASE}/dead-letters", headers=eve)).json()["items"]
    assert 403 == await status("GET", place, bearer(OTHER) | tenant("default"))
    assert 403 == await status("POST", f"{place}:redrive", bearer(READER))
    assert 401 == await status("GET", place, {"authorization": "Bearer nobody"})


async def test_a_target_is_parked_and_released(world: World, api: ApiProcess) -> None:
    """Issue 7: keeping the backlog; audited as a redrive is."""
    await world.register("crm", "/ok/crm", updated_ms=1)
    place = f"{BASE}/targets/crm"

    async def is_there() -> bool:
        return (await api.get("/targets/crm")).status_code == 200

    async def switch(how: str):
        return await api.client.post(
            f"{place}:{how}", json={"reason": "maintenance"}, headers=tenant("default")
        )

    await world.until_true(is_there, "the target")
    off = await switch("disable")
    activity = world.to_target("urn:api:parked", "crm")
    await world.produce(activity)
    await world.until(
        lambda: any(r.key == activity.key for r in world.retries), "a record that waits"
    )
    on = await switch("enable")
    await world.until_settled(activity)

    assert [(200, True), (200, False)] == [(r.status_code, r.json()["parked"]) for r in (off, on)]
    assert 1 == len(world.calls("/ok/crm"))


async def test_a_restart_resumes_and_tells_the_same(world: World, api: ApiProcess) -> None:
    """Issue 7: from stored offsets, and from nothing alike; a clean stop exits 0."""
    await dead(world, api, world.activity("urn:api:again", "/status/400/again"))
    before = (await api.get("/dead-letters?limit=200")).json()["items"]
    async with ApiProcess(world=world, name="api3") as fresh:
        rebuilt = (await fresh.get("/dead-letters?limit=200")).json()["items"]
        assert 0 == await fresh.stop()
    async with ApiProcess(world=world, name="api3") as resumed:
        after = (await resumed.get("/dead-letters?limit=200")).json()["items"]

    def told(items):
        return {each["dead_letter_id"]: (each["state"], each["code"]) for each in items}

    assert told(before) == told(rebuilt) == told(after)


async def test_every_answer_says_how_far_the_view_has_read(world: World, api: ApiProcess) -> None:
    """Issue 7: seconds behind the log, small where nothing holds it up; a token to wait for."""
    seen_s: list[float] = []

    async def is_close() -> bool:
        seen_s.append(float((await api.get("/deliveries")).headers["as-of"]))
        return seen_s[-1] < 5

    await world.until_true(
        is_close, "the view to be close to the log, the audit's markers included"
    )

    assert 0 <= seen_s[-1] < 5


async def test_the_commands_speak_to_the_api(world: World, api: ApiProcess) -> None:
    """Interface §1: `outbox show`, `outbox redrive`."""
    activity = world.activity("urn:api/cli:1", "/status/400/cli")
    letter = await dead(world, api, activity)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return world.command(
            *arguments, api_address=f"127.0.0.1:{api.port}", api_token=ADMIN, data_dir=world.folder
        )

    redrive = (
        "redrive",
        str(letter["dead_letter_id"]),
        "--reason",
        "ticket 1",
        "--effect-mode",
        "reconcile_replay",
    )
    shown = await asyncio.to_thread(run, "show", "urn:api/cli:1", "--json")
    done = await asyncio.to_thread(run, *redrive)
    again = await asyncio.to_thread(run, *redrive)

    facts = json.loads(shown.stdout)
    assert "never" == facts["reach"]
    (entry,) = facts["deliveries"][0]["observations"]
    assert ("attempt", "http_400") == (entry["source"], entry["code"])
    assert (0, 1) == (done.returncode, again.returncode), done.stderr
    assert "status=queued" in done.stdout
    assert "409 already_resolved" in again.stderr


async def test_without_its_audit_topic_nothing_is_redriven(kafka: str, world: World, api) -> None:
    """D-065: 503, and nothing changed. Last in this module: it takes the topic away."""
    letter = await dead(world, api, world.activity("urn:api:blind", "/status/400/blind"))
    letter_id = str(letter["dead_letter_id"])
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    await admin.delete_topics([world.topics.audit])
    await admin.close()

    answers = [await api.redrive(letter_id) for _ in range(2)]

    assert [503, 503] == [answer.status_code for answer in answers]
    assert "open" == (await api.get(f"/dead-letters/{letter_id}")).json()["state"]
    assert [] == [key for key, _ in await commanded(world) if key == b"urn:api:blind"]
