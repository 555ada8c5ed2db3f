"""An activity's record: bytes -> `Activity`, whoever wrote it and however."""

from __future__ import annotations

from binascii import a2b_base64
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from msgspec.structs import astuple

from streams.errors import RecordError, SchemaError
from streams.wire.avro import Codec
from streams.wire.contract import OPTIONAL, Found, activity_of
from streams.wire.schemas import MARK, Schema, parse
from streams.wire.strict_json import has_endless_number, is_too_deep, members

if TYPE_CHECKING:
    from collections.abc import Callable

    from streams.model.activity import Activity

SchemaById: TypeAlias = "Callable[[int], str | None]"
"""A registry's schema text by its id; None for an id it does not know. An unreachable registry must
raise what is not a `RecordError`: the record is then tried again, not given up (G13)."""

_REGISTRY_HEAD_BYTES: Final = 5
_CODEC: Final = Codec("activity")


class _RecipientFields(msgspec.Struct):
    target: str | None = None
    inbox: str | None = None


class _Fields(msgspec.Struct):
    activity_id: str | None = None
    actor: str | None = None
    tenant: str | None = None
    recipients: list[_RecipientFields] | None = None
    activity: msgspec.Raw = msgspec.Raw(b"")
    body: str | None = None
    content_type: str | None = None
    transaction: str | None = None
    workflow: str | None = None
    subscriber: str | None = None
    channel: str | None = None


_FIELDS: Final = msgspec.json.Decoder(_Fields)
_KNOWN: Final = frozenset(_Fields.__struct_fields__)


def read_activity(
    value: bytes | None,
    *,
    max_bytes: int,
    max_depth: int,
    schema_by_id: SchemaById | None = None,
) -> Activity:
    """Read a record of `outbox` or `inbox`: JSON, or Avro in either framing (interface.md §3).

    `body` is the producer's own bytes: for JSON the very slice of `value`, with its white space,
    escapes, big numbers and repeated names (G03, G08, G09). What is not ours to read is checked to
    be JSON and otherwise left alone. Half a surrogate pair passes within `activity`, not within
    the fields that we read (G04).

    Args:
        value: The record's value.
        max_bytes: C-14; of the whole value, recipients included.
        max_depth: C-14; levels of the whole value, the record's own object being the first. In an
            Avro record the activity counts from the second, so that both forms allow the same.
        schema_by_id: See `SchemaById`; None where there is no registry.

    Raises:
        RecordError: with the code of the rule broken (`docs/codes.md`) and nothing of the content.

    Measured, CPython 3.11 on a shared two-core machine: 8–11 µs for a record of 540 bytes, of which
    the two frozen values take 3; 17 more where it has unknown fields.
    """
    if not value:
        raise RecordError("tombstone", "the record has no value: an activity cannot be deleted")
    if len(value) > max_bytes:
        raise RecordError("too_large", f"the value must be at most {max_bytes} bytes")
    first = value[0]
    if first == MARK[0]:
        found = _from_avro(_CODEC.decode(value), 0, max_depth)
    elif first == 0:
        found = _from_registry(value, schema_by_id, max_depth)
    else:
        found = _from_json(value, max_depth)
    return activity_of(found)


def _from_json(value: bytes, max_depth: int) -> Found:
    if is_too_deep(value, max_depth):
        raise _too_deep(max_depth)
    if has_endless_number(value):
        raise RecordError("not_json", "a number must have at most 4,300 digits")
    try:
        found = _FIELDS.decode(value)
    except (msgspec.DecodeError, RecursionError):
        return _from_members(value)
    raw = bytes(found.activity)
    if not (value.isascii() or _is_utf8(value)) or not _is_plain(value, raw, found):
        return _from_members(value)
    assert found.recipients is not None, "a plain record has recipients"
    return Found(
        activity_id=found.activity_id,
        actor=found.actor,
        tenant=found.tenant,
        recipients=[(recipient.target, recipient.inbox) for recipient in found.recipients],
        activity=raw or None,
        body=None if found.body is None else _base64(found.body),
        content_type=found.content_type,
        optional=(found.transaction, found.workflow, found.subscriber, found.channel),
        unknown_fields=0,
    )


def _is_plain(value: bytes, activity: bytes, found: _Fields) -> bool:
    """Whether the record holds the fields found and nothing else: none unknown, repeated or null.

    Counts quotation marks: outside `activity`, a text field has four, a recipient four, and whatever
    else there is, escaped ones included, only adds to them. msgspec itself would take the last of
    two equal names.
    """
    if found.recipients is None or activity[:1] not in (b"{", b""):
        return False
    at = value.find(activity)
    rest = value[:at] + value[at + len(activity) :]
    given = len(_KNOWN) - astuple(found).count(None)
    # Two less for `recipients`, whose value is no text, and for `activity`, which is never None.
    expected = 4 * (given + len(found.recipients)) - (4 if activity else 6)
    return rest.count(b'"') == expected


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _from_members(value: bytes) -> Found:
    """Read what the fast path will not: unknown fields, nulls, and all that is wrong."""
    found = members(value)
    fields = {name: parsed for name, (parsed, _) in found.items()}
    activity, body = fields.get("activity"), fields.get("body")
    if activity is not None and not isinstance(activity, dict):
        raise RecordError("activity_not_an_object", "activity must be a JSON object")
    return Found(
        activity_id=fields.get("activity_id"),
        actor=fields.get("actor"),
        tenant=fields.get("tenant"),
        recipients=_recipient_members(fields.get("recipients")),
        activity=None if activity is None else found["activity"][1],
        body=None if body is None else _base64(body),
        content_type=fields.get("content_type"),
        optional=tuple(fields.get(name) for name in OPTIONAL),
        unknown_fields=len(fields.keys() - _KNOWN),
    )


def _recipient_members(recipients: object) -> list[tuple[Any, Any]]:
    if recipients is None:
        raise RecordError("recipients_missing", "recipients is required")
    if not isinstance(recipients, list):
        raise RecordError("recipient_invalid", "recipients must be a list of objects")
    if not all(isinstance(recipient, dict) for recipient in recipients):
        raise RecordError("recipient_invalid", "a recipient must be an object")
    return [(recipient.get("target"), recipient.get("inbox")) for recipient in recipients]


def _base64(body: object) -> bytes:
    rule = RecordError("body_not_base64", "body must be standard, padded base64 (RFC 4648 §4)")
    if not isinstance(body, str):
        raise rule
    try:
        return a2b_base64(body, strict_mode=True)
    except ValueError:  # binascii's own error is one
        raise rule from None


def _from_registry(value: bytes, schema_by_id: SchemaById | None, max_depth: int) -> Found:
    if len(value) < _REGISTRY_HEAD_BYTES:
        raise RecordError("frame_short", "the record ends within its schema id")
    schema_id = int.from_bytes(value[1:_REGISTRY_HEAD_BYTES], "big")
    text = None if schema_by_id is None else schema_by_id(schema_id)
    if text is None:
        raise RecordError("schema_unknown", "the record's schema id is not in the registry")
    writer, unknown_fields = _registered(text)
    record = _CODEC.decode_as(value, _REGISTRY_HEAD_BYTES, writer)
    return _from_avro(record, unknown_fields, max_depth)


@lru_cache(maxsize=64)
def _registered(text: str) -> tuple[Schema, int]:
    """A registry's schema, parsed, and how many of its fields are not ours."""
    try:
        writer = parse(text, "registry")
        names = {field["name"] for field in writer["fields"]}
    except (SchemaError, TypeError, KeyError):
        raise RecordError(
            "schema_unknown", "the registry's schema must be an Avro record"
        ) from None
    return writer, len(names - _KNOWN)


def _from_avro(record: dict[str, Any], unknown_fields: int, max_depth: int) -> Found:
    activity = record["activity"]
    if activity is not None:
        _check_object(activity, max_depth)
    return Found(
        activity_id=record["activity_id"],
        actor=record["actor"],
        tenant=record["tenant"],
        recipients=[(each["target"], each["inbox"]) for each in record["recipients"]],
        activity=activity,
        body=record["body"],
        content_type=record["content_type"],
        optional=tuple(record[name] for name in OPTIONAL),
        unknown_fields=unknown_fields,
    )


def _check_object(activity: bytes, max_depth: int) -> None:
    if is_too_deep(activity, max_depth - 1):
        raise _too_deep(max_depth)
    if has_endless_number(activity):
        raise RecordError("not_json", "a number must have at most 4,300 digits")
    members(activity)


def _too_deep(max_depth: int) -> RecordError:
    return RecordError("too_deep", f"the value must nest at most {max_depth} levels")
