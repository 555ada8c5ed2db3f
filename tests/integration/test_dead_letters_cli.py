"""`outbox dead-letters` against a real broker (interface.md §1)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from streams import topics
from streams.__main__ import build
from streams.edge.producing import Sender
from streams.model.ledger import FailurePhase
from streams.model.receipt import DeadLetter, Letter
from streams.model.values import replace
from streams.rules.identity import partition_of
from streams.wire.codec import encode_dead_letter
from tests.conftest import SettingsFor

N = 4


def letter(number: int, tenant: str = "default", *, deliveries: int = 1) -> DeadLetter:
    entry = Letter(
        dead_letter_id=f"dlv_{number}.1",
        delivery_id=f"dlv_{number}",
        target="crm",
        failure_phase=FailurePhase.REJECTED_PERMANENT,
        code="http_400",
        attempts=1,
        generation=1,
        reconciliation_required=False,
        summary="HTTP 400 after 1 attempt: http_400",
        created_ms=1_000 + number,
        cause="http_400",
    )
    return DeadLetter(
        activity_id=f"urn:{number}",
        queue="outbox",
        tenant=tenant,
        ledger_entry_id=None,
        deliveries=tuple(
            replace(entry, dead_letter_id=f"dlv_{number}.{n}") for n in range(1, deliveries + 1)
        ),
    )


@pytest.fixture
def settings(settings_for: SettingsFor, kafka: str, prefix: str):
    found = settings_for(brokers=kafka, prefix=prefix, partitions=N, replication=1)
    asyncio.run(topics.apply(found))
    return found


def write(settings, *letters: DeadLetter, gone: tuple[DeadLetter, ...] = ()) -> None:
    async def send():
        topic = topics.names(settings.prefix).outbox_dead_letters
        async with Sender(settings.kafka_options()) as sender:
            for each in (*letters, *gone):
                key = each.activity_id.encode()
                value = None if each in gone else encode_dead_letter(each)
                await sender.send(topic, partition_of(key, N), key=key, value=value)
            await sender.flush()

    asyncio.run(send())


def test_those_that_stand_are_listed_over_all_partitions(settings):
    """C-16: the last record of an activity counts, a tombstone resolves it; per tenant on demand."""
    write(settings, *(letter(n) for n in range(6)), letter(9, "acme"))
    write(settings, letter(1, deliveries=2), gone=(letter(2),))

    lines = CliRunner().invoke(build(), ["dead-letters"])
    objects = CliRunner().invoke(build(), ["dead-letters", "--json", "--tenant", "acme"])

    assert ["urn:0", "urn:1", "urn:1", "urn:3", "urn:4", "urn:5", "urn:9"] == [
        line.split()[1].removeprefix("activity=") for line in lines.stdout.splitlines()
    ]
    assert ["urn:9"] == [json.loads(line)["activity_id"] for line in objects.stdout.splitlines()]
    assert (0, "") == (lines.exit_code, lines.stderr)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_following_tells_new_ones_as_they_come_until_it_is_told_to_end(settings, number):
    """interface.md §1: a shell pipeline is an alert, so each line is flushed, once, and exit is 0."""
    variables = {"OUTBOX_BROKERS": settings.brokers, "OUTBOX_PREFIX": settings.prefix}
    write(settings, letter(1))
    process = subprocess.Popen(
        [sys.executable, "-m", "streams", "dead-letters", "--follow", "--json"],
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert "following" in process.stderr.readline()
        write(settings, letter(1, deliveries=2), letter(2), letter(2))
        told = [json.loads(process.stdout.readline()) for _ in range(2)]
        write(settings, letter(3))
        told.append(json.loads(process.stdout.readline()))
        process.send_signal(number)
        rest, _ = process.communicate(timeout=60)
    finally:
        process.kill()

    assert [["dlv_1.2"], ["dlv_2.1"], ["dlv_3.1"]] == [
        [delivery["dead_letter_id"] for delivery in each["deliveries"]]
        for each in sorted(told, key=lambda each: each["activity_id"])
    ]
    assert ("", 0) == (rest, process.returncode)
