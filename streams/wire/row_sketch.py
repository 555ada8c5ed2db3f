"""The few fields of a delivery's ledger row by which it is found, read without decoding the rest.

For the operator API's read model, which indexes a row when it is written and shows it only when somebody
asks: `decode_row` takes 9 µs, this 2 (tests/property/test_row_sketch.py holds that both say the same).
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
_EMPTY: Final = b"\x00"
"""A text of no length."""

_TWO_BYTES: Final = 64
_THREE_BYTES: Final = 8_192
"""From so many bytes on a text's length is written in two bytes, or in three (Avro's zigzag numbers)."""


def _start(schemas: SchemaSet) -> re.Pattern[bytes]:
    fields = tuple((each["name"], each["type"]) for each in schemas.current["fields"])
    if fields[: len(_LEADING)] != _LEADING:
        raise SchemaError("ledger-delivery: the leading fields moved; row_sketch must follow them")
    phases = b"|".join(phase.value.encode() for phase in Phase)
    head = re.escape(MARK + schemas.fingerprint)
    # 36 characters of a delivery id: their number is written as H.
    return re.compile(head + b".(" + phases + b")H(dlv_[0-9a-f]{32})", re.DOTALL)


_START: Final = _start(schema_set("ledger-delivery"))


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
        target: Its target, which the ledger's key names too.

    Raises:
        RecordError: as `decode_row`.
    """
    size = len(target)
    start = _START.match(value)
    if start is not None and size < _THREE_BYTES:
        cut = start.end()
        at = cut + (1 if size < _TWO_BYTES else 2)
        after = at + size
        rest = _REST.match(value, after)
        if rest is not None and value[at:after] == target:
            phase, delivery_id = start.groups()
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
            LONGS[len(activity_id)] + activity_id + LONGS[len(name)] + name, _ID_AT
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
