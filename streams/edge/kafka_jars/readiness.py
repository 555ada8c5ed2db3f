"""Whether a local cluster is ready for work."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from streams.edge.kafka_jars.nodes import HOST, Node, bootstrap


def serves(nodes: Sequence[Node]) -> bool:
    """Whether every node answers for itself and knows all, and the coordinators answer.

    Each is asked at its own port: for 3 s the others still name a node that was killed. A
    coordinator answers only once its topic was made, which proves that topics can be made.
    """
    if not all(_accepts(node.port) for node in nodes):
        return False
    with ThreadPoolExecutor(1) as thread:  # the caller may have a running loop in its own
        return thread.submit(asyncio.run, _answer(nodes)).result()


async def _answer(nodes: Sequence[Node]) -> bool:
    everyone = {node.number for node in nodes}
    try:
        for node in nodes:
            if not everyone <= await _known_to(node):
                return False
    except (KafkaError, OSError, TimeoutError):
        return False
    return True


async def _known_to(node: Node) -> set[int]:
    """Ask one node for the brokers that it knows, and for both kinds of coordinator."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap([node]), request_timeout_ms=5_000)
    try:
        await admin.start()
        for kind in (0, 1):  # of groups, of transactions
            await admin.find_coordinator("outbox-readiness", kind)
        return {broker["node_id"] for broker in (await admin.describe_cluster())["brokers"]}
    finally:
        await admin.close()


def _accepts(port: int) -> bool:
    """Whether something listens: asked first, because Kafka's client logs every refusal."""
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True
