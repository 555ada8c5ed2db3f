"""What a command must know of the cluster before it starts, and Kafka's errors as clear lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaConnectionError, KafkaError

from streams.errors import TopicsError

PATIENCE_MS: Final = 15_000
"""How long one question to the cluster may take."""


@contextmanager
def explained(options: Mapping[str, Any]) -> Iterator[None]:
    """Raise what Kafka's client raises as a `TopicsError` that says what to do.

    Args:
        options: Client options, for the addresses; what else they hold is never shown.
    """
    where = ",".join(options["bootstrap_servers"])
    try:
        yield
    except BrokenPipeError:
        raise  # nobody reads our output any more; a broker that hangs up is an error of Kafka's
    except (KafkaConnectionError, OSError, TimeoutError) as error:
        raise TopicsError(
            f"no Kafka answers at {where} ({type(error).__name__}): set OUTBOX_BROKERS,"
            " or start a local one with `outbox kafka up`"
        ) from error
    except KafkaError as error:
        raise TopicsError(f"Kafka at {where} refuses: {type(error).__name__}: {error}") from error


async def partitions_of(options: Mapping[str, Any], topic: str) -> int:
    """How many partitions a topic has.

    All topics are asked for, not this one: where the cluster creates topics by itself, naming one
    that is missing would create it.

    Raises:
        TopicsError: the topic is missing, or no Kafka answers.
    """
    with explained(options):
        admin = AIOKafkaAdminClient(request_timeout_ms=PATIENCE_MS, **options)
        try:
            await admin.start()
            described = await admin.describe_topics()
        finally:
            await admin.close()
    counts = {each["topic"]: len(each["partitions"]) for each in described}
    if not counts.get(topic):
        raise TopicsError(f"the topic {topic} is missing: outbox topics apply")
    return counts[topic]
