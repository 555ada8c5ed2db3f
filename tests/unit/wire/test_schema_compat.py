"""The check of `make lint` finds what would break a reader."""

import json
import subprocess
from pathlib import Path

import pytest

from tools import schema_compat
from tools.schema_compat import breaches, compare, conflicts

SCHEMAS = Path(__file__).parents[3] / "schemas"


def record(*fields, name="A"):
    return {"type": "record", "name": name, "fields": list(fields)}


def field(name, type_, **default):
    return {"name": name, "type": type_, **default}


ID = field("id", "string", default="")
COUNT = field("count", "long", default=0)


@pytest.mark.parametrize("file", sorted(SCHEMAS.glob("*.avsc")), ids=lambda file: file.stem)
def test_every_schema_of_ours_keeps_our_rules(file):
    """
    G11, G15, G16, G19.
    """
    assert [] == breaches(json.loads(file.read_text()))


@pytest.mark.parametrize(
    ("schema", "rule"),
    [
        (record(field("x", "string")), "G11"),
        (record(field("x", ["null", "string"], default="s")), "G15"),
        (record(field("x", ["string", "null"], default=None)), "G15"),
        (record(field("x", {"type": "enum", "name": "E", "symbols": ["A"]}, default="A")), "G16"),
        (record(field("x", ["null", "float", "long"], default=None)), "G19"),
        (
            record(field("x", {"type": "array", "items": record(field("y", "long"))}, default=[])),
            "G11",
        ),
        (record(field("x", {"type": "map", "values": ["int", "long"]}, default={})), "G19"),
    ],
)
def test_a_schema_that_breaks_a_rule_is_found(schema, rule):
    [found] = breaches(schema)

    assert rule in found


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        (record(ID, COUNT), record(ID)),
        (record(ID), record(ID, COUNT)),
        (record(field("x", "long")), record(field("x", "int"))),
        (record(field("x", "double")), record(field("x", "long"))),
        (record(field("x", "bytes")), record(field("x", "string"))),
        (record(field("x", ["null", "string"])), record(field("x", "string"))),
        (
            {"type": "enum", "name": "E", "symbols": ["A"], "default": "A"},
            {"type": "enum", "symbols": ["B"]},
        ),
        ({"type": "fixed", "name": "F", "size": 4}, {"type": "fixed", "name": "F", "size": 4}),
        ({"type": "map", "values": "long"}, {"type": "map", "values": "int"}),
        ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}),
    ],
)
def test_what_avro_can_resolve_is_compatible(reader, writer):
    assert [] == conflicts(reader, writer)


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        (record(ID, field("x", "long")), record(ID)),
        (record(field("x", "int")), record(field("x", "long"))),
        (record(field("x", "string")), record(field("x", ["null", "string"]))),
        (record(field("x", ["null", "long"])), record(field("x", "string"))),
        (record(ID, name="B"), record(ID)),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, {"type": "enum", "symbols": ["A", "B"]}),
        ({"type": "fixed", "name": "F", "size": 4}, {"type": "fixed", "name": "F", "size": 8}),
        ({"type": "map", "values": "int"}, {"type": "map", "values": "long"}),
        ({"type": "array", "items": "int"}, {"type": "array", "items": "long"}),
    ],
)
def test_what_avro_cannot_resolve_is_found(reader, writer):
    assert 1 == len(conflicts(reader, writer))


def test_a_release_is_compared_in_both_directions():
    """
    Old and new workers run side by side during a deployment.
    """
    narrower = record(field("x", "int", default=0))
    wider = record(field("x", "long", default=0))

    found = compare({"a": wider}, {"a": narrower}, [narrower])

    assert ["a: they cannot read ours: /x: long cannot be read as int"] == found


def test_a_released_schema_is_kept_where_it_changes():
    """
    G11: its records are still there, and are read with it.
    """
    before, after = {"a": record(ID)}, {"a": record(ID, COUNT)}

    assert [] == compare(after, before, [record(ID)])
    assert ["a: the released version must be kept in schemas/history"] == compare(after, before, [])


def test_a_doc_or_default_may_change():
    before, after = {"a": record(ID)}, {"a": {**record({**ID, "doc": "d"}), "doc": "d"}}

    assert [] == compare(after, before, [])


def test_a_schema_is_not_removed():
    [found] = compare({}, {"a": record(ID)}, [])

    assert "must not be removed" in found


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository of the test's own: write a schema into it, or run git in it."""
    monkeypatch.setattr(schema_compat, "ROOT", tmp_path)
    (tmp_path / "schemas").mkdir()
    for variable in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(variable, raising=False)

    def git(*arguments):
        who = ("-c", "user.name=t", "-c", "user.email=t@example.org")
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True)

    def write(schema):
        (tmp_path / "schemas" / "a.avsc").write_text(json.dumps(schema))

    git("init")
    return git, write


def test_without_a_release_there_is_nothing_to_compare(repository, capsys):
    """The first commit must pass `make lint`."""
    _, write = repository
    write(record(ID))

    assert 0 == schema_compat.main()
    assert "no release yet" in capsys.readouterr().out


@pytest.fixture
def released(repository):
    """A repository whose last release, v1, has one record; write the next version of it."""
    git, write = repository
    write(record(ID))
    git("add", ".")
    git("commit", "--no-gpg-sign", "-m", "a")
    git("tag", "--no-sign", "v1")
    return write


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (record(field("id", "long", default=0)), "they cannot read ours: /id"),
        (record(ID, name="B"), "was renamed B"),
        (record(ID, field("x", "string")), "we cannot read theirs: /x: is not written"),
        (record(ID, COUNT), "must be kept in schemas/history"),
    ],
)
def test_what_breaks_with_the_last_tag_fails_the_check(released, capsys, schema, why):
    """
    Issue 4: `make lint` fails on an incompatible change against the last tag.
    """
    released(schema)

    assert 1 == schema_compat.main()
    assert why in capsys.readouterr().err


def test_a_field_more_passes_where_the_released_version_is_kept(released, tmp_path, capsys):
    """
    G11: that is how a schema grows; the check must not stand in its way.
    """
    released(record(ID, COUNT))
    (tmp_path / "schemas" / "history").mkdir()
    (tmp_path / "schemas" / "history" / "a.1.avsc").write_text(json.dumps(record(ID)))

    assert 0 == schema_compat.main()
    assert "1 compared with v1" in capsys.readouterr().out
