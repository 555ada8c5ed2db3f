"""The few fields of a delivery's ledger row by which it is found, read without decoding the rest.

For the operator API's read model, which indexes a row when it is written and shows it only when somebody
asks: `decode_row` takes 11 µs, this 1.2 (tests/property/test_row_sketch.py holds that both say the same).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, TypeAlias

import msgspec

from streams.errors import SchemaError
from streams.model.ledger import Phase
from streams.wire.avro import LONGS
from streams.wire.codec import decode_activity_row, decode_row, encode_row
from streams.wire.schemas import MARK, SchemaSet, schema_set

Sketch: TypeAlias = tuple[bytes, bytes, int, bytes]
"""Phase, delivery id, when it was admitted (epoch milliseconds), and the row without its target."""

_LEADING: Final = (
    ("phase", "string"),
    ("delivery_id", "string"),
    ("target", "string"),
    ("attempts", "long"),
    ("generation", "long"),
    ("budget", "long"),
    ("token", "bytes"),
    ("fence", "long"),
    ("admitted_ms", "long"),
)
_LONG: Final = rb"[\x80-\xff]{0,9}[\x00-\x7f]"
_REST: Final = re.compile(
    _LONG * 3 + rb"(?:\x20.{16}|\x00)" + _LONG + b"(" + _LONG + b")", re.DOTALL
)


def as_written(text: bytes) -> bytes:
    """A text as it stands in a row."""
    return LONGS[len(text)] + text


_EMPTY: Final = as_written(b"")
"""A text of no length."""

_ID_STARTS: Final = b"dlv_"
_BEFORE_HEX: Final = len(_ID_STARTS)
_HEX: Final = 32
"""Hex digits that end a delivery id."""


def _current(schemas: SchemaSet) -> bytes:
    fields = tuple((each["name"], each["type"]) for each in schemas.current["fields"])
    if fields[: len(_LEADING)] != _LEADING:
        raise SchemaError("ledger-delivery: the leading fields moved; row_sketch must follow them")
    return MARK + schemas.fingerprint


_CURRENT: Final = _current(schema_set("ledger-delivery"))
_PHASES: Final = {
    _CURRENT + as_written(phase) + LONGS[_BEFORE_HEX + _HEX] + _ID_STARTS: phase
    for phase in (each.value.encode() for each in Phase)
}
"""What a row starts with, up to the hex digits of its delivery id, to its phase: two look-ups in place of an
expression over what does not change, which took half of all the time here."""

_SIZE: Final = slice(len(_CURRENT), len(_CURRENT) + 1)
"""Where the length of the phase stands."""

_HEX_AT: Final = {start[_SIZE]: len(start) for start in _PHASES}


def _activity_head(schemas: SchemaSet) -> bytes:
    names = [each["name"] for each in schemas.current["fields"][:3]]
    if names != ["canonical_hash", "activity_id", "tenant"]:
        raise SchemaError("ledger-activity: the leading fields moved; row_sketch must follow them")
    # 32 bytes of hash: their number is written as @.
    return MARK + schemas.fingerprint + b"@"


_ACTIVITY_HEAD: Final = _activity_head(schema_set("ledger-activity"))
_HEAD_BYTES: Final = len(_ACTIVITY_HEAD)
_ID_AT: Final = _HEAD_BYTES + 32


def sketch(value: bytes, target: bytes) -> Sketch:
    """Read what a delivery's row is found by.

    Args:
        value: As the ledger holds it.
        target: Its target, which the ledger's key names too, `as_written`.

    Raises:
        RecordError: as `decode_row`.
    """
    hex_at = _HEX_AT.get(value[_SIZE], 0)
    phase = _PHASES.get(value[:hex_at])
    if phase is not None:
        cut = hex_at + _HEX
        after = cut + len(target)
        delivery_id = value[hex_at - _BEFORE_HEX : cut]
        rest = _REST.match(value, after)
        if rest is not None and value[cut:after] == target and delivery_id.isascii():
            return phase, delivery_id, _number(rest[1]), value[:cut] + _EMPTY + value[after:]
    # Written by another version of the schema, or with a key that says something else.
    row = decode_row(value)
    bare = encode_row(msgspec.structs.replace(row, target=""))
    return row.phase.value.encode(), row.delivery_id.encode(), row.admitted_ms, bare


def named_by(key: bytes, row: bytes) -> tuple[str, str]:
    """Tenant and activity ID as an activity's own row says, whose key is `key`.

    The key says it too (interface.md §3), but an ID of the tenant `default` can look like another tenant's.
    So the row is asked whether it says the same, which takes no decoding; where it does not, it is right.

    Raises:
        RecordError: as `decode_activity_row`.
    """
    tenant, bar, own = key.partition(b"|")
    for name, activity_id in ((tenant, own), (b"default", key)) if bar else ((b"default", key),):
        if row.startswith(_ACTIVITY_HEAD) and row.startswith(
            as_written(activity_id) + as_written(name), _ID_AT
        ):
            return name.decode(), activity_id.decode()
    known = decode_activity_row(row)
    return known.tenant, known.activity_id


@lru_cache(maxsize=4_096)
def _number(raw: bytes) -> int:
    """Avro's long: seven bits a byte, the least first, the sign in the lowest bit."""
    number = 0
    for byte in reversed(raw):
        number = number << 7 | byte & 0x7F
    return number >> 1 ^ -(number & 1)
