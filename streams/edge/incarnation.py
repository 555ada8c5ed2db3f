"""Which life of a topic this is: a topic that is deleted and made anew keeps its name, and nothing else.

Kafka gives each topic an id when it is created (KIP-516). A record in the topic could not say as much:
it would have to be written before any other, under a key that compaction never finds again. aiokafka
speaks Metadata up to version 5 and the id came with version 10, hence the two structs.
"""

from __future__ import annotations

from hashlib import blake2b
from io import BytesIO
from typing import Any, ClassVar

from aiokafka.errors import IncompatibleBrokerVersion, KafkaError, for_code
from aiokafka.protocol.abstract import AbstractType
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)

from streams.errors import TopicsError


class _Uuid(AbstractType[bytes]):  # type: ignore[misc]  # aiokafka has no types
    """16 bytes, as they are."""

    @classmethod
    def encode(cls, value: bytes) -> bytes:
        return value

    @classmethod
    def decode(cls, data: BytesIO) -> bytes:
        return data.read(16)

    @classmethod
    def repr(cls, value: bytes) -> str:
        return value.hex()


class _Answer(Response):  # type: ignore[misc]
    API_KEY = 3
    API_VERSION = 10
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            CompactArray(
                ("node_id", Int32),
                ("host", CompactString("utf-8")),
                ("port", Int32),
                ("rack", CompactString("utf-8")),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_id", CompactString("utf-8")),
        ("controller_id", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16),
                ("name", CompactString("utf-8")),
                ("topic_id", _Uuid),
                ("is_internal", Boolean),
                (
                    "partitions",
                    CompactArray(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", CompactArray(Int32)),
                        ("isr", CompactArray(Int32)),
                        ("offline_replicas", CompactArray(Int32)),
                        ("tags", TaggedFields),
                    ),
                ),
                ("authorized_operations", Int32),
                ("tags", TaggedFields),
            ),
        ),
        ("authorized_operations", Int32),
        ("tags", TaggedFields),
    )


class _Question(RequestStruct):  # type: ignore[misc]
    FLEXIBLE_VERSION = True
    API_KEY = 3
    API_VERSION = 10
    RESPONSE_TYPE = _Answer
    SCHEMA = Schema(
        (
            "topics",
            CompactArray(
                ("topic_id", _Uuid), ("name", CompactString("utf-8")), ("tags", TaggedFields)
            ),
        ),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_authorized_operations", Boolean),
        ("include_topic_authorized_operations", Boolean),
        ("tags", TaggedFields),
    )


class _Asking(Request[_Question]):  # type: ignore[misc]
    API_KEY: ClassVar[int] = 3

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def build(self, request_struct_class: type[_Question]) -> _Question:
        return request_struct_class([(bytes(16), self._topic, {})], False, False, False, {})


async def incarnation_of(client: Any, topic: str) -> bytes:
    """16 bytes that name this topic of this cluster, and no other that ever had its name.

    Args:
        client: A connected client of aiokafka's.

    Raises:
        KafkaError: no broker answers, or the topic is not there.
        TopicsError: the brokers give topics no ids.
    """
    try:
        answer = await client.send(client.get_random_node(), _Asking(topic))
    except (IncompatibleBrokerVersion, NotImplementedError) as error:
        raise TopicsError(
            "the brokers give topics no ids, so that a ledger made anew would not be noticed:"
            " Kafka 2.8 or later is needed"
        ) from error
    code, _, topic_id, *_ = answer.topics[0]
    if code:
        failed: type[KafkaError] = for_code(code)
        raise failed(topic)
    assert topic_id != bytes(16), "a broker that speaks version 10 gives every topic an id"
    return blake2b(answer.cluster_id.encode() + topic_id, digest_size=16).digest()
