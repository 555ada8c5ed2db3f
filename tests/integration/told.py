"""What is committed of commands and audit records: read as an owner and a view read it."""

from __future__ import annotations

from streams.edge.log import read_all
from streams.wire.audit import AuditRecord, decode_audit
from streams.wire.commands import Redrive, decode_command
from tests.integration.world import World


async def commanded(world: World) -> list[tuple[bytes, Redrive]]:
    """The committed redrives, by activity key."""
    found: list[tuple[bytes, Redrive]] = []

    def take(_, records) -> None:
        for record in records:
            command = decode_command(record.value)
            if isinstance(command, Redrive):
                found.append((record.key, command))

    partitions = dict.fromkeys(range(world.partitions), 0)
    options = {"bootstrap_servers": world.brokers}
    await read_all(options, world.topics.commands, partitions, take)
    return found


async def all_audited(world: World) -> list[AuditRecord]:
    """The committed audit records."""
    found: list[AuditRecord] = []

    def take(_, records) -> None:
        found.extend(decode_audit(record.value) for record in records)

    await read_all({"bootstrap_servers": world.brokers}, world.topics.audit, {0: 0}, take)
    return found


async def audited(world: World, letter_id: str) -> list[AuditRecord]:
    """The committed audit records of one letter."""
    return [each for each in await all_audited(world) if each.dead_letter_id == letter_id]
