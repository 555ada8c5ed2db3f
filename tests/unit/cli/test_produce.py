"""`outbox produce` holds lines to the worker's rules and sends each where it belongs."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from streams.__main__ import build
from streams.cli.produce import KeyBy, Placed, Placer
from streams.errors import RecordError
from streams.rules.identity import partition_of

GOOD = {
    "activity_id": "https://a.example/1",
    "tenant": "acme",
    "recipients": [{"target": "crm"}],
    "activity": {"type": "Create"},
}


def placer(**fields):
    return Placer(**{"max_bytes": 262_144, "max_depth": 32, "partitions": 8} | fields)


def test_a_record_is_keyed_by_its_activity_and_lies_where_java_would_put_it():
    """interface.md §3: the key is `tenant|ID`, the partition murmur2 of it."""
    key = b"acme|https://a.example/1"

    assert Placed(key=key, partition=partition_of(key, 8)) == placer().place(
        json.dumps(GOOD).encode()
    )


def test_without_a_key_records_are_spread():
    """C-14: any key and any partitioner; workers forward what lies elsewhere."""
    spread = placer(key_by=KeyBy.NONE, partitions=3)
    places = [spread.place(json.dumps(GOOD).encode()) for _ in range(6)]

    assert {None} == {place.key for place in places}
    assert [1, 2, 0, 1, 2, 0] == [place.partition for place in places]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b"{", "not_json"),
        (json.dumps(GOOD | {"activity_id": ""}).encode(), "activity_id_empty"),
        (json.dumps(GOOD | {"activity": {"a": [[[[1]]]]}}).encode(), "too_deep"),
        (json.dumps(GOOD | {"activity": {"a": "x" * 1000}}).encode(), "too_large"),
        (None, "too_large"),
    ],
)
def test_a_line_is_held_to_the_rules_that_a_worker_holds_it_to(text, code):
    """interface.md §1: `produce` refuses a bad line; what it takes, no worker dead-letters unread."""
    with pytest.raises(RecordError) as refused:
        placer(max_bytes=500, max_depth=5).place(text)

    assert refused.value.code == code


def test_a_file_that_is_not_there_is_wrong_usage(settings_for, tmp_path):
    """interface.md §1: exit 2."""
    settings_for()

    for path in (tmp_path / "none.jsonl", tmp_path):
        assert CliRunner().invoke(build(), ["produce", str(path)]).exit_code == 2


@pytest.mark.parametrize(
    "command",
    [
        *("produce", "dead-letters", "demo", "targets put", "targets list"),
        *("targets show", "targets remove", "targets test"),
    ],
)
def test_every_command_shows_an_example(command):
    """interface.md §1: `--help` with an example."""
    shown = CliRunner().invoke(build(), [*command.split(), "--help"])

    assert shown.exit_code == 0
    assert f"Example: outbox {command}" in shown.stdout
