"""Framing and evolution of our Avro records."""

import json

import pytest

from streams.errors import RecordError, SchemaError
from streams.model.ledger import ActivityRow, Row
from streams.model.receipt import Receipt
from streams.wire import schemas
from streams.wire.avro import Codec, flat_encoder
from streams.wire.schemas import MARK, schema_set

OLD = {
    "type": "record",
    "name": "A",
    "namespace": "outbox",
    "fields": [{"name": "id", "type": "string", "default": ""}],
}
NEW = {
    **OLD,
    "fields": [*OLD["fields"], {"name": "attempt", "type": ["null", "long"], "default": None}],
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A schema folder of the test's own."""
    (tmp_path / "history").mkdir()
    monkeypatch.setattr(schemas, "schema_folder", lambda: tmp_path)
    schema_set.cache_clear()
    yield tmp_path
    schema_set.cache_clear()


def codec(folder, current, history=()):
    (folder / "a.avsc").write_text(json.dumps(current))
    for at, schema in enumerate(history):
        (folder / "history" / f"a.{at}.avsc").write_text(json.dumps(schema))
    schema_set.cache_clear()
    return Codec("a")


def test_a_record_starts_with_the_mark_and_its_schemas_fingerprint():
    """
    Avro 1.11, "Single-object encoding".
    """
    value = Codec("target-state").encode({"code": "http_410"})

    assert MARK + schema_set("target-state").fingerprint == value[:10]


def test_old_bytes_are_read_with_the_default_of_a_new_field(folder):
    """
    G11: resolved with the writer's schema, not read with the reader's alone.
    """
    value = codec(folder, OLD).encode({"id": "act-1"})

    assert {"id": "act-1", "attempt": None} == codec(folder, NEW, [OLD]).decode(value)


def test_new_bytes_are_read_by_a_version_that_was_told_of_them(folder):
    """
    G11, the other way round: a release before a schema is written, it stands in `history`.
    """
    value = codec(folder, NEW).encode({"id": "act-1", "attempt": 3})

    assert {"id": "act-1"} == codec(folder, OLD, [NEW]).decode(value)


def test_a_new_field_of_bytes_takes_bytes_as_its_default(folder):
    """
    G11: fastavro hands out the default's JSON text, which is no bytes.
    """
    token = {"name": "token", "type": "bytes", "default": "\u00ff"}
    item = {"type": "record", "name": "B", "fields": [{**token, "default": ""}]}
    items = {"name": "items", "type": {"type": "array", "items": item}, "default": []}
    old_items = {**items, "type": {"type": "array", "items": {**item, "fields": []}}}
    was = {**OLD, "fields": [*OLD["fields"], old_items]}
    value = codec(folder, was).encode({"id": "act-1", "items": [{}]})

    read = codec(folder, {**OLD, "fields": [*OLD["fields"], token, items]}, [was]).decode(value)

    assert {"id": "act-1", "token": b"\xff", "items": [{"token": b""}]} == read


def test_bytes_of_an_unknown_version_are_refused_and_not_guessed_at(folder):
    """
    G11: without the writer's schema the fields would shift.
    """
    value = codec(folder, OLD).encode({"id": "act-1"})

    with pytest.raises(RecordError) as refused:
        codec(folder, NEW).decode(value)

    assert "schema_unknown" == refused.value.code


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (b"", "frame_unknown"),
        (b"{}", "frame_unknown"),
        (b"null", "frame_unknown"),
        (MARK, "frame_short"),
        (MARK + b"1234567", "frame_short"),
        (MARK + b"12345678", "schema_unknown"),
        (MARK + schema_set("target-state").fingerprint, "record_corrupt"),
        (Codec("target-state").encode({}) + b"\x00", "record_corrupt"),
        (Codec("target-state").encode({})[:-1], "record_corrupt"),
    ],
)
def test_what_is_not_a_whole_record_has_a_code(value, code):
    """
    E03: only a null value is a tombstone; empty bytes and the text null are corrupt.
    """
    with pytest.raises(RecordError) as refused:
        Codec("target-state").decode(value)

    assert code == refused.value.code


def test_an_error_says_nothing_of_the_content():
    value = Codec("target-state").encode({"code": "canary"})[:-1]

    with pytest.raises(RecordError) as refused:
        Codec("target-state").decode(value)

    assert "canary" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_a_codec_tells_its_own_records_from_others():
    state = Codec("target-state").encode({})

    assert (True, False) == (Codec("target-state").writes(state), Codec("target").writes(state))


def test_a_record_with_a_map_cannot_be_written_as_a_flat_one():
    """
    Refused at start, not wrong at run time.
    """
    with pytest.raises(SchemaError, match="not a plain scalar"):
        flat_encoder("target")


@pytest.mark.parametrize(
    ("name", "type_"),
    [("ledger-delivery", Row), ("ledger-activity", ActivityRow), ("receipt", Receipt)],
)
def test_the_fields_of_what_is_written_most_stand_in_their_schemas_order(name, type_):
    """
    They are read all at once then; in another order each is looked up by name, three times a delivery.
    """
    fields = tuple(field["name"] for field in schema_set(name).current["fields"])

    assert fields == type_.__struct_fields__
