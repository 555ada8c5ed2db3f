"""Every Kafka client of this process, with what the hot path needs of aiokafka made cheap."""

from __future__ import annotations

from streams.edge.fetched import unpack_cheaply
from streams.edge.fetches import ask_cheaply
from streams.edge.kafka_messages import speak_quickly


def tune_clients() -> None:
    """To be called once, before the first client is made; each part says what it changes, and why."""
    unpack_cheaply()
    ask_cheaply()
    speak_quickly()
