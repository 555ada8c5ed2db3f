"""The Avro schemas of our records: found, parsed and fingerprinted, the current and the past ones.

A record says by which schema it was written (single-object encoding), and is read with both that
schema and ours (G11). So a version that is no longer current stays readable only while it stands in
`schemas/history/<name>.<anything>.avsc`. A worker cannot read what a *newer* one wrote unless it
has that schema: a new version is therefore put into `history` one release before it is written.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from fastavro.schema import (
    SchemaParseException,
    UnknownType,
    fingerprint,
    parse_schema,
    to_parsing_canonical_form,
)

from streams.errors import SchemaError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

Schema: TypeAlias = Any
"""A parsed schema, as fastavro keeps it: opaque to us."""

MARK: Final = b"\xc3\x01"
"""First bytes of Avro's single-object encoding; eight bytes of fingerprint follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaSet:
    """All that is known of one kind of record.

    Attributes:
        name: File name without ending, e.g. `ledger-delivery`.
        current: What we write, and what we read as.
        fingerprint: 8 bytes, of `current`.
        writers: Fingerprint -> schema, of every version that can be read; `current` is one of them.
    """

    name: str
    current: Schema
    fingerprint: bytes
    writers: dict[bytes, Schema]


@cache
def schema_set(name: str) -> SchemaSet:
    """Every known version of the record `name`.

    Raises:
        SchemaError: when there is no such file, or one of them is no Avro schema.
    """
    folder = schema_folder()
    current = parse(_text(folder / f"{name}.avsc"), name)
    past = folder / "history"
    texts = (
        [_text(f) for f in past.iterdir() if f.name.startswith(f"{name}.")] if past.is_dir() else []
    )
    versions = [current, *(parse(text, name) for text in texts)]
    return SchemaSet(
        name=name,
        current=current,
        fingerprint=fingerprint_of(current),
        writers={fingerprint_of(version): version for version in versions},
    )


def schema_folder() -> Traversable:
    """Where the schemas are: in the package when installed, else at the root of the checkout."""
    packaged = files("streams.wire") / "schemas"
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "schemas"


def parse(text: str | bytes, name: str) -> Schema:
    """Parse one schema; `name` is for the message only.

    Raises:
        SchemaError: when it is no JSON or no Avro schema.
    """
    try:
        schema = parse_schema(json.loads(text), named_schemas={})
    except (ValueError, TypeError, KeyError, SchemaParseException, UnknownType) as error:
        raise SchemaError(f"schema {name!r} is not an Avro schema: {error}") from error
    _repair_defaults(schema)
    return schema


def _repair_defaults(schema: Schema) -> None:
    """Give fields of bytes the bytes that their default means.

    JSON has only text for it (Avro 1.11: code points 0..255), and fastavro 1.13.1 hands that text
    out as the field's value.
    """
    if isinstance(schema, list):
        for branch in schema:
            _repair_defaults(branch)
    elif isinstance(schema, dict):
        for inner in (schema.get("items"), schema.get("values")):
            _repair_defaults(inner)
        for field in schema.get("fields", ()):
            _repair_defaults(field["type"])
            if field["type"] == "bytes" and isinstance(field.get("default"), str):
                field["default"] = field["default"].encode("latin-1")


def fingerprint_of(schema: Schema) -> bytes:
    """CRC-64-AVRO of the schema's parsing canonical form, as on the wire: little-endian."""
    return bytes.fromhex(fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO"))


def _text(file: Traversable) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise SchemaError(f"schema file {file.name!r} is missing or cannot be read") from error
