"""What was never committed is never acted on."""

from __future__ import annotations

from pathlib import Path

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from streams.model.receipt import Outcome
from streams.rules.decide import NOT_CALLED, EffectMode
from streams.wire.commands import LateReport, Redrive, encode_command
from tests.integration.world import World

MARKER = LateReport(delivery_key=b"none\x00x", token=b"0" * 16, judgement=NOT_CALLED)
"""A command that does nothing."""


async def has_passed(world: World, offset: int) -> bool:
    """Whether the group has committed past this command."""
    admin = AIOKafkaAdminClient(bootstrap_servers=world.brokers)
    await admin.start()
    try:
        found = await admin.list_consumer_group_offsets(world.topics.group)
    finally:
        await admin.close()
    at = found.get(TopicPartition(world.topics.commands, 0))
    return at is not None and at.offset > offset


async def test_an_aborted_redrive_is_not_applied(kafka: str, tmp_path: Path) -> None:
    """
    D-065: the audit record and the command are one transaction; where it was aborted there is no
    audit, so there must be no redrive. faust reads uncommitted records (measured).
    """
    async with World(kafka, tmp_path / "world", {"partitions": 1}) as world:
        await world.work()
        activity = world.activity("urn:aborted", "/status/400")
        await world.produce(activity)
        await world.until_settled(activity)
        await world.until(lambda: activity.key.decode() in world.letters, "the dead letter")
        command = Redrive(
            letter_id=world.letter(activity).dead_letter_id,
            mode=EffectMode.RECONCILE_REPLAY,
            audit_id="none",
        )
        producer = AIOKafkaProducer(
            bootstrap_servers=kafka, transactional_id=world.topics.transactional_id("test")
        )
        await producer.start()
        try:
            await producer.begin_transaction()
            await producer.send_and_wait(
                world.topics.commands, encode_command(command), activity.key, partition=0
            )
            await producer.abort_transaction()
        finally:
            await producer.stop()

        (marker,) = await world.write([(b"none", 0, encode_command(MARKER))], world.topics.commands)
        await world.until_true(
            lambda: has_passed(world, marker), "the commands to be worked through"
        )
        # A replay: of a redriven delivery it would be a call, of a dead one it is a duplicate.
        await world.produce(activity)

        await world.until(
            lambda: (
                any(r.verdict is Outcome.DUPLICATE for r in world.receipts[activity.activity_id])
                or len(world.calls("/status/400")) > 1
            ),
            "the replay's receipt",
        )
        assert 1 == len(world.calls("/status/400"))
        assert activity.key.decode() in world.letters
        assert world.letters[activity.key.decode()] is not None
