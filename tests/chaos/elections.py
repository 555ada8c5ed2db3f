"""Moves the leaders of partitions while everybody is at work, as an operator's rebalancing does.

aiokafka has no ElectLeaders, so its two structures stand here (KIP-460, version 2).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any, Final

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.protocol.admin import AlterPartitionReassignmentsRequest
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    CompactArray,
    CompactString,
    Int8,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)

PREFERRED: Final = 0
TIMEOUT_MS: Final = 15_000


class _ElectLeadersResponse(Response):
    API_KEY = 43
    API_VERSION = 2
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        (
            "topics",
            CompactArray(
                ("topic", CompactString("utf-8")),
                (
                    "partitions",
                    CompactArray(
                        ("partition", Int32),
                        ("error_code", Int16),
                        ("error_message", CompactString("utf-8")),
                        ("tags", TaggedFields),
                    ),
                ),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _ElectLeadersStruct(RequestStruct):
    FLEXIBLE_VERSION = True
    API_KEY = 43
    API_VERSION = 2
    RESPONSE_TYPE = _ElectLeadersResponse
    SCHEMA = Schema(
        ("election_type", Int8),
        (
            "topics",
            CompactArray(
                ("topic", CompactString("utf-8")),
                ("partitions", CompactArray(Int32)),
                ("tags", TaggedFields),
            ),
        ),
        ("timeout_ms", Int32),
        ("tags", TaggedFields),
    )


class _ElectLeaders(Request[_ElectLeadersStruct]):
    API_KEY = 43

    def __init__(self, topics: list[Any]) -> None:
        self._topics = topics

    def build(self, request_struct_class: type[_ElectLeadersStruct]) -> _ElectLeadersStruct:
        return request_struct_class(PREFERRED, self._topics, TIMEOUT_MS, {})


async def elect_others(bootstrap: str, prefix: str) -> int:
    """Make the next replica of each partition its leader.

    Args:
        prefix: Of the topics whose leaders move.

    Returns:
        How many leaders have moved, as the cluster says afterwards.
    """
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap, request_timeout_ms=TIMEOUT_MS)
    await admin.start()
    try:
        before = await _leaders(admin, prefix)
        await admin._send_to_controller(_prefer_the_next(before))
        places: defaultdict[str, list[int]] = defaultdict(list)
        for topic, partition in before:
            places[topic].append(partition)
        wanted: list[Any] = [(topic, partitions, {}) for topic, partitions in places.items()]
        await admin._send_to_controller(_ElectLeaders(wanted))
        async with asyncio.timeout(TIMEOUT_MS / 1000):
            while True:
                now = await _leaders(admin, prefix)
                moved = sum(now[place][0] != leader for place, (leader, _) in before.items())
                if moved:
                    return moved
                await asyncio.sleep(0.2)
    finally:
        await admin.close()


async def _leaders(
    admin: AIOKafkaAdminClient, prefix: str
) -> dict[tuple[str, int], tuple[int, list[int]]]:
    """Partition to its leader and its replicas, the preferred one first."""
    return {
        (topic["topic"], partition["partition"]): (partition["leader"], partition["replicas"])
        for topic in await admin.describe_topics()
        if topic["topic"].startswith(prefix)
        for partition in topic["partitions"]
    }


def _prefer_the_next(
    leaders: dict[tuple[str, int], tuple[int, list[int]]],
) -> AlterPartitionReassignmentsRequest:
    """The same replicas in another order: the one behind the leader comes to be preferred."""
    topics: defaultdict[str, list[Any]] = defaultdict(list)
    for (topic, partition), (leader, replicas) in leaders.items():
        at = (replicas.index(leader) + 1) % len(replicas) if leader in replicas else 0
        topics[topic].append((partition, replicas[at:] + replicas[:at], {}))
    wanted: list[Any] = [(topic, partitions, {}) for topic, partitions in topics.items()]
    return AlterPartitionReassignmentsRequest(TIMEOUT_MS, wanted, {})
