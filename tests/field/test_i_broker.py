"""Where the broker's own behaviour is the point: a real Kafka, a real worker."""

from __future__ import annotations

from pathlib import Path

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete

from tests.integration.world import World


async def test_i09_a_worker_goes_on_where_retention_left_off(kafka: str, tmp_path: Path) -> None:
    """
    I09: the group committed 1 and went away; 1 to 5 are gone by the time it is back. Never `latest`:
    the rest is delivered, and one line names the range that is lost.
    """
    async with World(kafka, tmp_path, {"partitions": "1"}) as world:
        activities = [world.activity(f"urn:i09:{n}", f"/ok/i09-{n}") for n in range(9)]
        await world.produce(*activities)
        tp = TopicPartition(world.topics.outbox, 0)
        await commit(world, tp, 1)
        await delete_before(world, tp, 6)

        worker = await world.work()
        await world.until_settled(*activities[6:])

        assert {a.paths[0]: 1 for a in activities[6:]} == dict(world.calls_by_path())
        gaps = [(each["at"], each["to"]) for each in worker.events("partition.gap")]
        assert [(1, 6)] == gaps


async def commit(world: World, tp: TopicPartition, offset: int) -> None:
    """Commit for the worker's group, as a worker that was here before."""
    group = world.topics.group
    consumer = AIOKafkaConsumer(bootstrap_servers=world.brokers, group_id=group)
    await consumer.start()
    consumer.assign([tp])
    await consumer.commit({tp: offset})
    await consumer.stop()


async def delete_before(world: World, tp: TopicPartition, offset: int) -> None:
    """Take the records before `offset`, as retention does."""
    admin = AIOKafkaAdminClient(bootstrap_servers=world.brokers)
    await admin.start()
    await admin.delete_records({tp: RecordsToDelete(before_offset=offset)})
    await admin.close()
