"""Without its audit nothing is redriven, and a kill leaves both records or neither (D-065)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
import pytest_asyncio
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from streams.edge.localkafka import LocalKafka
from tests.integration.api_process import ApiProcess
from tests.integration.told import all_audited, audited, commanded
from tests.integration.world import Produced, World

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

HUNDRED = 100


@pytest.fixture(scope="module")
def own_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """A broker of this module's own: it is frozen here."""
    kafka = LocalKafka(tmp_path_factory.mktemp("kafka"))
    try:
        kafka.up()
        yield kafka
    finally:
        kafka.down(wait_s=5.0)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(
    own_kafka: LocalKafka, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[World]:
    assert own_kafka.bootstrap is not None
    async with World(own_kafka.bootstrap, tmp_path_factory.mktemp("closed")) as world:
        await world.work()
        yield world


async def letters(world: World, api: ApiProcess, name: str, count: int) -> list[str]:
    """An activity of so many deliveries, all given up; the ids of their letters."""
    paths = [f"/status/400/{name}{n}" for n in range(count)]
    activity = world.activity(f"urn:closed:{name}", *paths)
    await world.produce(activity)
    return await shown(api, activity, count)


async def shown(api: ApiProcess, activity: Produced, count: int) -> list[str]:
    found: list[str] = []

    async def are_shown() -> bool:
        answer = await api.get(
            "/deliveries", params={"activity_id": activity.activity_id, "limit": 200}
        )
        found[:] = [each["dead_letter_id"] for each in answer.json().get("items", ())]
        return len([each for each in found if each]) == count

    await api.world.until_true(are_shown, "the letters to be shown")
    return found


async def test_a_frozen_broker_means_503_a_hundred_times_of_a_hundred(
    own_kafka: LocalKafka, world: World, api: ApiProcess
) -> None:
    """D-065, issue 7: nothing is changed, and nothing is written afterwards either."""
    ids = await letters(world, api, "frozen", HUNDRED)
    assert 200 == (await api.redrive(await one(world, api, "warm"))).status_code
    own_kafka.freeze(1)
    try:
        answers = await asyncio.gather(*(api.redrive(each) for each in ids))
    finally:
        own_kafka.thaw(1)

    assert {503: HUNDRED} == Counter(answer.status_code for answer in answers)
    # Once this one is through, whatever the frozen broker still held was taken or aborted before it.
    await until_redriven(world, api, await one(world, api, "after"))
    assert not await are_written(world, ids)
    assert {"open"} == {(await api.get(f"/dead-letters/{each}")).json()["state"] for each in ids}


async def test_a_topic_that_takes_no_audit_means_503_a_hundred_times(
    world: World, api: ApiProcess
) -> None:
    """D-065: the broker refuses one record of the transaction; the other is never seen."""
    ids = await letters(world, api, "refused", HUNDRED)
    await take_at_most(world, 200)
    try:
        answers = await asyncio.gather(*(api.redrive(each) for each in ids))
    finally:
        await take_at_most(world, 2 << 20)

    assert {503: HUNDRED} == Counter(answer.status_code for answer in answers)
    await until_redriven(world, api, await one(world, api, "again"))
    assert not await are_written(world, ids)


@pytest.mark.parametrize(
    ("line", "is_done"),
    [
        ("audit_unsent", False),
        ("command_unsent", False),
        ("transaction_uncommitted", False),
        ("redrive_committed", True),
    ],
)
async def test_a_kill_at_each_step_leaves_both_records_or_neither(
    world: World, api: ApiProcess, line: str, is_done: bool
) -> None:
    """Issue 7, D-065: and after a restart the outcome can be read, and the letter redriven if it is open."""
    letter_id = await one(world, api, line)
    async with ApiProcess(
        world=world, name=f"doomed-{line}", overrides={"failpoint": f"{line}:kill"}
    ) as doomed:
        with pytest.raises(httpx.TransportError):
            await doomed.redrive(letter_id)
    async with ApiProcess(world=world, name=f"doomed-{line}") as again:
        wanted = "resolved" if is_done else "open"

        async def is_told() -> bool:
            return (await again.get(f"/dead-letters/{letter_id}")).json().get("state") == wanted

        await world.until_true(is_told, f"the letter to be {wanted}")
        audits, commands = await pair(world, letter_id)
        assert (audits, len(audits)) == (commands, int(is_done))

        assert (409 if is_done else 200) == (await again.redrive(letter_id)).status_code
        audits, commands = await pair(world, letter_id)
    assert (audits, len(audits)) == (commands, 1)


async def one(world: World, api: ApiProcess, name: str) -> str:
    return (await letters(world, api, name, 1))[0]


async def until_redriven(world: World, api: ApiProcess, letter_id: str) -> None:
    async def is_done() -> bool:
        return (await api.redrive(letter_id)).status_code in (200, 409)

    await world.until_true(is_done, "a redrive to be possible again")


async def pair(world: World, letter_id: str) -> tuple[set[str], set[str]]:
    """The ids of its committed audit records, and those that its committed commands name."""
    audits = {each.audit_id for each in await audited(world, letter_id)}
    commands = {each.audit_id for _, each in await commanded(world) if each.letter_id == letter_id}
    return audits, commands


async def are_written(world: World, ids: list[str]) -> list[str]:
    """Which of these letters have a committed audit record or command."""
    wanted = set(ids)
    found = [command.letter_id for _, command in await commanded(world)]
    found += [audit.dead_letter_id for audit in await all_audited(world)]
    return [each for each in found if each in wanted]


async def take_at_most(world: World, size: int) -> None:
    """How large a batch the audit topic takes. Above 100: the marker that ends a transaction must fit."""
    setting = {"max.message.bytes": str(size)}
    admin = AIOKafkaAdminClient(bootstrap_servers=world.brokers)
    await admin.start()
    try:
        await admin.alter_configs(
            [ConfigResource(ConfigResourceType.TOPIC, world.topics.audit, setting)]
        )
    finally:
        await admin.close()
