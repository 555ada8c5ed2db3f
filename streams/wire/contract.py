"""What the fields of an activity's record must be, whichever form it came in (interface.md §3)."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from streams.errors import RecordError
from streams.model.activity import Activity, Recipient
from streams.model.target import NAME_PATTERN
from streams.wire.inbox import canonical_inbox

MAX_RECIPIENTS: Final = 1_000
"""interface.md §3; more is a broadcast."""
MAX_ID_BYTES: Final = 1_024
"""Of `activity_id`, `actor` and each optional part of the identity."""
ACTIVITY_CONTENT_TYPE: Final = "application/activity+json"
CASE_LEDGER_ENTRY: Final = "CaseLedgerEntry"

_TENANT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_TENANT_PREFIX: Final = re.compile(_TENANT.pattern + r"\|")
_POSITION: Final = re.compile(r"[A-Za-z0-9._-]*(?:outbox|inbox)(?:\.retry\.\w+)?/[0-9]+/[0-9]+")
"""How an unreadable record is named: topic, with or without a prefix, partition, offset (C-14)."""
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_CONTENT_TYPE: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+/[!-~](?:[ -~]{0,253}[!-~])?")
OPTIONAL: Final = ("transaction", "workflow", "subscriber", "channel")
"""The optional parts of a delivery's identity (D-002); an empty one counts as not given."""
_NO_PARTS: Final = (None, None, None, None)


class Found(msgspec.Struct, gc=False):
    """A record's fields as found, not yet judged; of any type where the record is JSON.

    Attributes:
        recipients: Target and inbox of each.
        activity: Its exact bytes, known to be one JSON object.
        body: Decoded.
        optional: Transaction, workflow, subscriber, channel.
    """

    activity_id: Any
    actor: Any
    tenant: Any
    recipients: list[tuple[Any, Any]]
    activity: bytes | None
    body: bytes | None
    content_type: Any
    optional: tuple[Any, ...]
    unknown_fields: int


class _Object(msgspec.Struct):
    type: str | None = None
    id: str | None = None


class _Entry(msgspec.Struct):
    object: _Object | None = None


_ENTRY: Final = msgspec.json.Decoder(_Entry)


def activity_of(found: Found) -> Activity:
    """Hold a record's fields to the contract.

    Raises:
        RecordError: with the code of the first rule broken, and nothing of the content.
    """
    activity_id = _activity_id(found.activity_id)
    tenant = "default" if found.tenant is None else found.tenant
    if not isinstance(tenant, str) or not _TENANT.fullmatch(tenant):
        raise RecordError("tenant_invalid", "tenant must be 1 to 64 of A-Z a-z 0-9 . _ -")
    if tenant == "default" and "|" in activity_id and _TENANT_PREFIX.match(activity_id):
        # `acme|1` of the default tenant and `1` of `acme` would share a key, and so a ledger row.
        raise RecordError("activity_id_ambiguous", "activity_id must not start like `tenant|`")
    if tenant == "default" and _POSITION.fullmatch(activity_id):
        # The dead letter of an unreadable record has its position for a key: one would replace the other.
        raise RecordError("activity_id_ambiguous", "activity_id must not be a record's position")
    recipients = _recipients(found.recipients)
    body, content_type = _content(found)
    optional = found.optional
    if optional != _NO_PARTS:
        optional = tuple(map(_text, optional, OPTIONAL))
    transaction, workflow, subscriber, channel = optional
    return Activity(
        activity_id=activity_id,
        tenant=tenant,
        actor=_text(found.actor, "actor") or "",
        recipients=recipients,
        body=body,
        content_type=content_type,
        ledger_entry_id=None if found.activity is None else _ledger_entry_id(body),
        transaction=transaction,
        workflow=workflow,
        subscriber=subscriber,
        channel=channel,
        is_activity=found.activity is not None,
        unknown_fields=found.unknown_fields,
    )


def _activity_id(found: object) -> str:
    if found is None:
        raise RecordError("activity_id_missing", "activity_id is required")
    if found == "":
        # An empty key would be shared by all such records on a compacted topic (E02).
        raise RecordError("activity_id_empty", "activity_id must not be empty")
    return _text(found, "activity_id") or ""


def _text(found: object, name: str) -> str | None:
    """A bounded text without control characters: it goes into keys, headers and logs."""
    if found is None or found == "":
        return None
    if not isinstance(found, str):
        raise RecordError(f"{name}_invalid", f"{name} must be a string")
    if found.isascii():
        size, is_clean = len(found), found.isprintable()
    else:
        size, is_clean = _utf8_bytes(found), not _CONTROL.search(found)
    if size > MAX_ID_BYTES:
        raise RecordError(
            "activity_id_too_long" if name == "activity_id" else f"{name}_invalid",
            f"{name} must be at most {MAX_ID_BYTES} bytes of UTF-8",
        )
    if size < 0 or not is_clean:
        raise RecordError(
            f"{name}_invalid", f"{name} must have no control characters or half surrogate pairs"
        )
    return found


def _utf8_bytes(text: str) -> int:
    """Length in UTF-8, or -1 for half a surrogate pair, which has none."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return -1


def _recipients(found: list[tuple[Any, Any]]) -> tuple[Recipient, ...]:
    """Each place once, in the order of first mention (D-006, J02)."""
    if not found:
        raise RecordError("recipients_empty", "recipients must name at least one")
    if len(found) > MAX_RECIPIENTS:
        raise RecordError(
            "too_many_recipients", f"recipients must be at most {MAX_RECIPIENTS}: use a broadcast"
        )
    if len(found) == 1:
        return (_recipient(*found[0]),)
    return tuple(dict.fromkeys([_recipient(target, inbox) for target, inbox in found]))


def _recipient(target: object, inbox: object) -> Recipient:
    if isinstance(target, str) and inbox is None:
        if NAME_PATTERN.fullmatch(target):
            return Recipient(target=target)
    elif isinstance(inbox, str) and target is None:
        return Recipient(inbox=canonical_inbox(inbox))
    raise RecordError(
        "recipient_invalid",
        "a recipient must have either target (a registered name) or inbox (a URL)",
    )


def _content(found: Found) -> tuple[bytes, str]:
    if found.activity is not None:
        if found.body is not None:
            raise RecordError("both_activity_and_body", "activity and body exclude each other")
        return found.activity, ACTIVITY_CONTENT_TYPE
    if found.body is None:
        raise RecordError("activity_or_body_missing", "one of activity and body is required")
    content_type = found.content_type
    if content_type is None:
        raise RecordError("content_type_missing", "body needs a content_type")
    if not isinstance(content_type, str) or not _CONTENT_TYPE.fullmatch(content_type):
        # It becomes a header: a line break in it would forge others.
        raise RecordError("content_type_invalid", "content_type must be a media type in ASCII")
    return found.body, content_type


def _ledger_entry_id(activity: bytes) -> str | None:
    """O-023..025: any error reading it gives none."""
    try:
        entry = _ENTRY.decode(activity).object
    except (msgspec.DecodeError, RecursionError):
        return None
    if entry is None or entry.type != CASE_LEDGER_ENTRY or not entry.id:
        return None
    return entry.id if len(entry.id) <= MAX_ID_BYTES else None
