"""Schemas: where they are found, what they promise, and how a record names its own."""

import json
from dataclasses import fields
from pathlib import Path

import pytest

from streams.errors import SchemaError
from streams.model.activity import Activity, Recipient
from streams.model.ledger import ActivityRow, Admission, Row
from streams.model.receipt import DeadLetter, Letter, Receipt
from streams.wire.observations import ObservationRecord
from streams.wire.schemas import fingerprint_of, parse, schema_folder, schema_set
from streams.wire.targets import TargetRecord, TargetState

SCHEMAS = Path(__file__).parents[3] / "schemas"
NAMES = sorted(file.stem for file in SCHEMAS.glob("*.avsc"))
VALUES = {
    "dead-letter": (DeadLetter, {"deliveries": Letter}),
    "ledger-activity": (ActivityRow, {"admissions": Admission}),
    "ledger-delivery": (Row, {}),
    "observation": (ObservationRecord, {}),
    "receipt": (Receipt, {}),
    "target": (TargetRecord, {}),
    "target-state": (TargetState, {}),
}


def test_the_fingerprint_of_null_is_that_of_the_specification():
    """
    Avro 1.11, "Schema fingerprints": 63dd24e7cc258f8a, little-endian on the wire.
    """
    assert bytes.fromhex("8a8f25cce724dd63") == fingerprint_of(parse('"null"', "null"))


def test_a_default_or_a_doc_does_not_change_the_fingerprint():
    """
    They are no part of the parsing canonical form: adding one keeps every record readable.
    """
    schema = {"type": "record", "name": "A", "fields": [{"name": "x", "type": "long"}]}
    explained = {**schema, "doc": "d", "fields": [{"name": "x", "type": "long", "default": 3}]}

    before, after = (fingerprint_of(parse(json.dumps(s), "A")) for s in (schema, explained))

    assert before == after


@pytest.mark.parametrize("name", NAMES)
def test_every_schema_of_the_folder_loads_under_its_own_namespace(name):
    schemas = schema_set(name)

    assert schemas.current["name"].startswith("outbox.")
    assert schemas.writers[schemas.fingerprint] is schemas.current


def names_of(type_: type) -> tuple[str, ...]:
    """The fields of a frozen value, of either kind."""
    struct: tuple[str, ...] | None = getattr(type_, "__struct_fields__", None)
    return struct or tuple(field.name for field in fields(type_))


@pytest.mark.parametrize(("name", "value"), VALUES.items())
def test_a_schema_has_exactly_the_fields_of_its_value(name, value):
    """
    A field that one of the two lacks would be lost on the way, in silence.
    """
    type_, nested = value
    schema = json.loads((SCHEMAS / f"{name}.avsc").read_text())
    inner = {
        field["name"]: field["type"]["items"]
        for field in schema["fields"]
        if field["name"] in nested
    }

    assert set(names_of(type_)) == {field["name"] for field in schema["fields"]}
    for name_, type_of_item in nested.items():
        in_schema = {field["name"] for field in inner[name_]["fields"]}
        assert set(names_of(type_of_item)) == in_schema


def test_the_activity_schema_has_the_fields_of_the_contract():
    """
    interface.md §3: an activity may be produced as Avro.
    """
    schema = json.loads((SCHEMAS / "activity.avsc").read_text())
    ours = set(names_of(Activity))
    derived = {"ledger_entry_id", "is_activity", "unknown_fields"}
    recipients = next(f["type"]["items"] for f in schema["fields"] if f["name"] == "recipients")

    assert (ours - derived) | {"activity"} == {field["name"] for field in schema["fields"]}
    assert set(names_of(Recipient)) == {f["name"] for f in recipients["fields"]}


def test_the_dead_letter_has_the_field_names_of_the_contract():
    """
    interface.md §3: what alerts and dashboards read.
    """
    schema = json.loads((SCHEMAS / "dead-letter.avsc").read_text())
    names = [field["name"] for field in schema["fields"]]
    letter = next(f["type"]["items"] for f in schema["fields"] if f["name"] == "deliveries")

    assert ["activity_id", "queue", "tenant", "ledger_entry_id", "deliveries"] == names
    assert {
        "dead_letter_id",
        "delivery_id",
        "target",
        "failure_phase",
        "code",
        "attempts",
        "generation",
        "reconciliation_required",
        "summary",
        "created_ms",
    } <= {field["name"] for field in letter["fields"]}


def test_a_checkout_reads_the_schemas_of_its_root():
    assert SCHEMAS == schema_folder()


@pytest.mark.parametrize("text", ["{", '"nothing"', '{"type": "record"}', "7"])
def test_what_is_no_schema_is_refused(text):
    with pytest.raises(SchemaError, match="not an Avro schema"):
        parse(text, "x")


def test_a_missing_schema_is_named():
    with pytest.raises(SchemaError, match="nowhere"):
        schema_set("nowhere")
