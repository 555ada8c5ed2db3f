"""Records of every kind as this product once wrote them: `golden.json`, and how to add to it.

    .venv/bin/python -m tests.unit.wire.golden

adds, for each kind whose schema is not in the file yet, a record as it is written today. It never
changes what is there: those bytes lie in somebody's topics.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from streams.model.ledger import Kind
from streams.wire.activity import read_activity
from streams.wire.audit import decode_audit, encode_audit
from streams.wire.avro import Codec
from streams.wire.codec import (
    decode_activity_row,
    decode_dead_letter,
    decode_receipt,
    decode_row,
    encode_activity_row,
    encode_dead_letter,
    encode_receipt,
    encode_row,
)
from streams.wire.commands import decode_command, encode_command
from streams.wire.observations import decode_observation, encode_observation
from streams.wire.records import (
    RetryItem,
    ledger_headers,
    ledger_offset_header,
    read_ledger_headers,
    read_ledger_offset,
    read_retry_headers,
    retry_headers,
)
from streams.wire.schemas import schema_set
from streams.wire.targets import (
    TargetState,
    decode_target,
    decode_target_state,
    encode_target,
    encode_target_state,
)
from tests.unit.wire import test_audit, test_codec, test_commands, test_observations, test_targets

FILE: Final = Path(__file__).with_name("golden.json")

Headers = list[tuple[str, bytes]]

_AVRO_ACTIVITY: Final = {
    "activity_id": "https://a.example/1",
    "actor": "https://a.example/al",
    "tenant": "acme",
    "recipients": [{"target": "crm", "inbox": None}, {"target": None, "inbox": "https://b.example/i"}],
    "body": b"\x00\xff",
    "content_type": "application/octet-stream",
    "channel": "push",
}  # fmt: skip
_JSON_ACTIVITY: Final = (
    b'{"activity_id": "https://a.example/1", "recipients": [{"inbox": "https://b.example/i"}],'
    b' "activity": {"type": "Create", "n": 1.50}, "later": true}'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """One kind of record.

    Attributes:
        schema: Name of its Avro schema; empty where it has none.
        module, codec: Where the product keeps the codec that it reads it with.
        samples: As written today, by name.
        decode: The product's reader.
    """

    schema: str
    module: str = ""
    codec: str = ""
    samples: Mapping[str, bytes]
    decode: Callable[[bytes], Any]


def pack(headers: Headers) -> bytes:
    """Headers as one string of bytes."""
    return json.dumps([[name, value.hex()] for name, value in headers]).encode()


def unpack(packed: bytes) -> Headers:
    """The headers again."""
    return [(name, bytes.fromhex(value)) for name, value in json.loads(packed)]


def _wires() -> dict[str, Wire]:
    row, commands = test_codec.ROW, "streams.wire.commands"
    items = [
        RetryItem(delivery_id="dlv_1", target="crm", attempt=2, fence=7),
        RetryItem(delivery_id="dlv_2", target="é", attempt=0, fence=-1, parked_ms=3, parked_since_ms=4),
    ]  # fmt: skip
    token = b"\x03" * 16
    read = partial(read_activity, max_bytes=262_144, max_depth=32)
    return {
        "ledger row": Wire(
            schema="ledger-delivery", module="streams.wire.codec", codec="_ROW",
            samples={"dead": encode_row(row)}, decode=decode_row,
        ),
        "activity row": Wire(
            schema="ledger-activity", module="streams.wire.codec", codec="_ACTIVITY_ROW",
            samples={"of two records": encode_activity_row(test_codec.ACTIVITY_ROW)},
            decode=decode_activity_row,
        ),
        "dead letter": Wire(
            schema="dead-letter", module="streams.wire.codec", codec="_DEAD_LETTER",
            samples={"of two": encode_dead_letter(test_codec.DEAD_LETTER)},
            decode=decode_dead_letter,
        ),
        "receipt": Wire(
            schema="receipt", module="streams.wire.codec", codec="_RECEIPT",
            samples={"sent": encode_receipt(test_codec.RECEIPT)}, decode=decode_receipt,
        ),
        "command": Wire(
            schema="command", module=commands, codec="_CODEC",
            samples={
                "redrive": encode_command(test_commands.REDRIVE),
                "cancel": encode_command(test_commands.CANCEL),
                "late report": encode_command(test_commands.LATE),
            },
            decode=decode_command,
        ),
        "observation": Wire(
            schema="observation", module="streams.wire.observations", codec="_CODEC",
            samples={"attempt": encode_observation(test_observations.SEEN)},
            decode=decode_observation,
        ),
        "target": Wire(
            schema="target", module="streams.wire.targets", codec="_TARGET",
            samples={"whole": encode_target(test_targets.TARGET)}, decode=decode_target,
        ),
        "target state": Wire(
            schema="target-state", module="streams.wire.targets", codec="_STATE",
            samples={"disabled": encode_target_state(
                TargetState(disabled=True, code="http_410", at_ms=5))},
            decode=decode_target_state,
        ),
        "audit": Wire(
            schema="audit", module="streams.wire.audit", codec="_CODEC",
            samples={
                "redrive": encode_audit(test_audit.RECORD),
                "job": encode_audit(test_audit.JOB),
            },
            decode=decode_audit,
        ),
        "activity": Wire(
            schema="activity", module="streams.wire.activity", codec="_CODEC",
            samples={"Avro": Codec("activity").encode(_AVRO_ACTIVITY)}, decode=read,
        ),
        "activity in JSON": Wire(schema="", samples={"JSON": _JSON_ACTIVITY}, decode=read),
        "retry headers": Wire(
            schema="", samples={"two deliveries": pack(retry_headers(1_767_225_600_000, items))},
            decode=lambda packed: read_retry_headers(unpack(packed)),
        ),
        "ledger headers": Wire(
            schema="",
            samples={
                kind.value: pack(ledger_headers(kind, None if kind is Kind.OWNER else 5, token))
                for kind in Kind
            },
            decode=lambda packed: read_ledger_headers(unpack(packed)),
        ),
        "dead letter headers": Wire(
            schema="", samples={"ledger offset": pack([ledger_offset_header(41)])},
            decode=lambda packed: read_ledger_offset(unpack(packed)),
        ),
    }  # fmt: skip


WIRES: Final[Mapping[str, Wire]] = _wires()


def shown(value: Any) -> Any:
    """What was read, as JSON has it; bytes in base64."""
    return msgspec.json.decode(msgspec.json.encode(value))


def holds(expected: Any, actual: Any) -> bool:
    """Whether all that was said then is said now; a later version may say more."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        return all(key in actual and holds(value, actual[key]) for key, value in expected.items())
    if isinstance(expected, list) and isinstance(actual, list):
        return len(expected) == len(actual) and all(map(holds, expected, actual))
    return bool(expected == actual)


def written() -> list[dict[str, Any]]:
    """Every record of the file: its kind, name, the fingerprint of its schema, bytes and meaning."""
    return json.loads(FILE.read_text()) if FILE.exists() else []


def fingerprint(wire: Wire) -> str:
    """Of the schema that the kind is written by now; `-` where it has none."""
    return schema_set(wire.schema).fingerprint.hex() if wire.schema else "-"


def main() -> None:
    """Add what is missing."""
    records = written()
    there = {(r["kind"], r["name"], r["schema"]) for r in records}
    for kind, wire in WIRES.items():
        for name, value in wire.samples.items():
            if (kind, name, fingerprint(wire)) not in there:
                told = {"kind": kind, "name": name, "schema": fingerprint(wire)}
                records.append({**told, "hex": value.hex(), "value": shown(wire.decode(value))})
    FILE.write_text(json.dumps(records, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
