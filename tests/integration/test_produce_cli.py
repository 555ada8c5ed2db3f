"""`outbox produce` against a real broker (interface.md §1, §3)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from aiokafka import ConsumerRecord
from typer.testing import CliRunner, Result

from streams import topics
from streams.__main__ import build
from streams.edge.log import read_all
from streams.errors import TopicsError
from streams.rules.identity import partition_of
from tests.conftest import Outbox, SettingsFor

N = 4


def line(number: int, **fields: object) -> bytes:
    activity = {
        "activity_id": f"https://a.example/{number}",
        "recipients": [{"target": "crm"}],
        "activity": {"type": "Create", "n": number},
    }
    return json.dumps(activity | fields).encode()


@pytest.fixture
def settings(settings_for: SettingsFor, kafka: str, prefix: str):
    found = settings_for(brokers=kafka, prefix=prefix, partitions=N, replication=1)
    asyncio.run(topics.apply(found))
    return found


def produce(folder: Path, *arguments: str) -> Result:
    """Run `outbox produce` in this process."""
    return CliRunner().invoke(build(), ["produce", str(folder / "in.jsonl"), *arguments])


def records(settings):
    """Every record of the outbox topic."""
    found: list[ConsumerRecord[bytes, bytes]] = []
    topic = topics.names(settings.prefix).outbox
    asyncio.run(
        read_all(
            settings.kafka_options(),
            topic,
            dict.fromkeys(range(N), 0),
            lambda _, batch: found.extend(batch),
        )
    )
    return found


def test_each_line_lies_byte_for_byte_under_its_activity_on_the_partition_that_owns_it(
    settings, tmp_path
):
    """interface.md §3: the key is the activity ID or `tenant|ID`; C-14: murmur2, as Java's."""
    odd = b'{ "activity_id" : "urn:\\u00e9", "tenant":"acme","recipients":[{"target":"crm"}], '
    odd += '"activity": {"b": 1.0, "a": "Grüße"} }'.encode()
    lines = [*map(line, range(20)), odd]
    (tmp_path / "in.jsonl").write_bytes(b"\n".join(lines))

    run = produce(tmp_path)

    keys = [f"https://a.example/{n}".encode() for n in range(20)] + ["acme|urn:é".encode()]
    assert (0, "produced=21 refused=0\n") == (run.exit_code, run.stdout)
    assert sorted(
        (partition_of(key, N), key, value) for key, value in zip(keys, lines, strict=True)
    ) == sorted((r.partition, r.key, r.value) for r in records(settings))


def test_a_bad_line_is_refused_with_its_number_and_the_rest_goes_on(settings, tmp_path):
    """interface.md §1: exit 1 if any was refused; D-043: nothing of the line is told."""
    lines = [
        line(1),
        b"",
        line(2, activity_id=""),
        b'{"canary": ',
        line(3, activity={"a": "canary" * 100_000}),
        line(4) + b"\r",
    ]
    (tmp_path / "in.jsonl").write_bytes(b"\n".join(lines) + b"\n")

    run = produce(tmp_path, "--json")

    assert (1, {"produced": 2, "refused": 3}) == (run.exit_code, json.loads(run.stdout))
    assert ["line 3 refused: activity_id_empty", "line 4 refused: not_json"] == [
        told.removeprefix("outbox: ").rpartition(":")[0]
        for told in run.stderr.splitlines()
        if "line 3" in told or "line 4" in told
    ]
    assert "line 5 refused: too_large" in run.stderr
    assert "canary" not in run.stderr
    assert {line(1), line(4)} == {record.value for record in records(settings)}


def test_without_keys_the_records_lie_anywhere(settings, tmp_path):
    """C-14: what other clients do, to try out that a worker forwards them."""
    (tmp_path / "in.jsonl").write_bytes(b"\n".join(map(line, range(8))))

    produce(tmp_path, "--key", "none")

    assert sorted([(n % N, None) for n in range(8)]) == sorted(
        (record.partition, record.key) for record in records(settings)
    )


def test_standard_input_is_sent_as_it_comes_and_an_end_asked_for_loses_nothing(settings):
    """A stream has no end: what was read is durable before the command ends on SIGTERM."""
    variables = {"OUTBOX_BROKERS": settings.brokers, "OUTBOX_PREFIX": settings.prefix}
    process = subprocess.Popen(
        [sys.executable, "-m", "streams", "produce", "-"],
        env=os.environ | variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        process.stdin.write(line(1) + b"\n" + line(2) + b"\n" + b'{"begun')
        process.stdin.flush()
        while len(records(settings)) < 2:
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)  # its input stays open: the end of a stream would be another end
        told, said = process.communicate()
    finally:
        process.kill()

    assert (1, b"produced=2 refused=0\n") == (process.returncode, told)
    assert b"outbox: interrupted" in said


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        ({"prefix": "nowhere."}, "is missing: outbox topics apply"),
        ({"brokers": "127.0.0.1:1"}, "no Kafka answers at 127.0.0.1:1"),
    ],
)
@pytest.mark.parametrize("command", [["produce"], ["targets", "list"], ["dead-letters"]])
def test_a_cluster_that_is_not_ready_is_one_clear_error(
    settings_for: SettingsFor, kafka: str, tmp_path, command, overrides, told
):
    """An operator's first day: what is missing, and the command that mends it."""
    settings_for(**({"brokers": kafka} | overrides))
    file = tmp_path / "in.jsonl"
    file.write_bytes(line(1))

    run = CliRunner().invoke(build(), [*command, *([str(file)] if command == ["produce"] else [])])

    assert isinstance(run.exception, TopicsError)
    assert told in str(run.exception)


def test_the_error_is_one_line_and_exit_1(outbox: Outbox, kafka: str, tmp_path):
    """No traceback: it may hold content (D-043)."""
    (tmp_path / "in.jsonl").write_bytes(line(1))

    run = outbox("produce", "in.jsonl", brokers=kafka, prefix="nowhere.")

    expected = "outbox: the topic nowhere.outbox is missing: outbox topics apply\n"
    assert (1, "", expected) == (run.returncode, run.stdout, run.stderr)
