"""A record that cannot be taken: dead-lettered, its bytes to quarantine, and out of the way (C-14)."""

from __future__ import annotations

from streams.engine.lanes import Lane, Record
from streams.engine.outputs import FollowUps, Rejected
from streams.engine.telling import Teller
from streams.wire.records import position_of


async def reject(
    follow_ups: FollowUps, teller: Teller, lane: Lane, record: Record, code: str
) -> None:
    """Settle a record whose promise is broken; done when its dead letter is durable.

    Args:
        code: The rule broken.
    """
    position = position_of(record.topic, record.partition, record.offset)
    await follow_ups.reject(
        Rejected(position=position, partition=record.partition, code=code, value=record.value)
    )
    teller.rejected(position, code)
    lane.settle(record)
