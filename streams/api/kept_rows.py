"""A delivery as the read model's files keep it: its ledger row, bare of its target, and what it is found by.

The row itself is written as it came and decoded when somebody asks; what else is shown, whose it is and
the destination as operators may see it (F07), stands before it. So the files hold no URL.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from streams.api.shapes import STATUS_OF, SeenDelivery, Status, short_hash
from streams.model.ledger import Phase
from streams.rules.redaction import redact_url
from streams.wire.codec import decode_row
from streams.wire.row_sketch import as_written, sketch

HASH_BYTES: Final = 16
PLACE_BYTES: Final = 24
"""A delivery's place: 16 bytes for its activity, 8 for what follows in its ledger key."""

BY_STATUS, BY_TARGET = b"s", b"g"

_OWNER: Final = struct.Struct(">HII")
_TARGET: Final = struct.Struct(">8sI")
_TIME: Final = struct.Struct(">Q")
_LAST_MS: Final = (1 << 63) - 1
_STATUS_BYTES: Final = {status: bytes([at]) for at, status in enumerate(Status)}
_DEAD: Final = Phase.DEAD.value.encode()


class Indexes(NamedTuple):
    """What the index keys of a tenant's deliveries start with.

    Attributes:
        by_status: For each phase, as a row names it.
        by_target: Up to the target's hash.
    """

    by_status: Mapping[bytes, bytes]
    by_target: bytes


class Owner(NamedTuple):
    """An activity, as the rows of its deliveries need it."""

    tenant: str
    activity_id: str
    activity_hash: bytes
    indexes: Indexes
    head: bytes


class Kept(msgspec.Struct, frozen=True, gc=False):
    """One delivery, ready to be put.

    Attributes:
        place: Under which `row` stands; the index keys end in it.
        status_key, target_key: Where the indexes by status and by target hold it.
        is_dead: Whether it has an open dead letter.
    """

    place: bytes
    delivery_id: bytes
    row: bytes
    status_key: bytes
    target_key: bytes
    is_dead: bool


def tenant_hash(tenant: str) -> bytes:
    """What stands for a tenant in an index."""
    return short_hash(tenant.encode(), 8)


@lru_cache(maxsize=4_096)
def _indexes(tenant: str) -> Indexes:
    whose = tenant_hash(tenant)
    by_status = {
        phase.value.encode(): BY_STATUS + whose + status_byte(status)
        for phase, status in STATUS_OF.items()
    }
    return Indexes(by_status, BY_TARGET + whose)


@lru_cache(maxsize=50_000)
def rest_hash(rest: bytes) -> bytes:
    """What stands for a target, or for what else follows an activity's key in the ledger, in an index."""
    return short_hash(rest, 8)


@lru_cache(maxsize=4_096)
def newest_first(at_ms: int) -> bytes:
    """A time as indexes hold it."""
    return _TIME.pack(_LAST_MS - max(at_ms, 0))


def status_byte(status: Status) -> bytes:
    """A status as its index holds it."""
    return _STATUS_BYTES[status]


def owner(tenant: str, activity_id: str, activity_hash: bytes, partition: int) -> Owner:
    """An activity as its deliveries' rows need it; `partition` is the ledger's."""
    own, name = activity_id.encode(), tenant.encode()
    head = _OWNER.pack(len(name), len(own), partition) + name + own
    return Owner(tenant, activity_id, activity_hash, _indexes(tenant), head)


@lru_cache(maxsize=50_000)
def _told(rest: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    """Of what follows an activity's key: the target `as_written`, its hash, the whole's, a row's part."""
    target = rest.partition(b"\x00")[0]
    text = target.decode(errors="replace")
    shown = (redact_url(text) if "://" in text else text).encode()
    own = rest_hash(target)
    return as_written(target), own, rest_hash(rest), _TARGET.pack(own, len(shown)) + shown


def kept(own: Owner, rest: bytes, value: bytes) -> Kept:
    """A delivery of `own` as the files keep it.

    Args:
        rest: What follows the activity's key and a zero byte in the delivery's ledger key.
        value: Its ledger row.

    Raises:
        RecordError: as `decode_row`.
    """
    _, _, activity_hash, (by_status, by_target), head = own
    target, target_hash, own_hash, told = _told(rest)
    phase, delivery_id, admitted_ms, bare = sketch(value, target)
    place = activity_hash + own_hash
    tail = newest_first(admitted_ms) + place
    return Kept(
        place,
        delivery_id,
        head + told + bare,
        by_status[phase] + tail,
        by_target + target_hash + tail,
        phase == _DEAD,
    )


def found_again(place: bytes, raw: bytes) -> Kept:
    """What `kept` gave for a row that stands in the files."""
    parts = _parts(raw)
    return _kept_under(_indexes(parts.tenant.decode()), place, raw, parts)


def reassigned(own: Owner, place: bytes, raw: bytes) -> Kept:
    """A row of the files under the owner that its activity's own row names."""
    parts = _parts(raw)
    return _kept_under(own.indexes, place, own.head + raw[parts.target_at :], parts)


def seen(place: bytes, raw: bytes) -> SeenDelivery:
    """A delivery as operators may see it.

    Raises:
        RecordError: as `decode_row`.
    """
    parts = _parts(raw)
    row = decode_row(parts.bare)
    return SeenDelivery(
        delivery_id=row.delivery_id,
        tenant=parts.tenant.decode(),
        activity_id=parts.activity_id.decode(),
        activity_hash=place[:HASH_BYTES],
        target=parts.shown.decode(),
        target_hash=parts.target_hash,
        partition=parts.partition,
        phase=row.phase,
        attempts=row.attempts,
        generation=row.generation,
        budget=row.budget,
        admitted_ms=row.admitted_ms,
        first_claim_ms=row.first_claim_ms,
        claimed_ms=row.claimed_ms,
        due_ms=row.due_ms,
        settled_ms=row.settled_ms,
        http_status=row.status,
        code=row.code,
        cause=row.cause,
        failure_phase=row.failure_phase,
        reconciliation_required=row.reconciliation_required,
        effect_unknown=row.effect_unknown,
        provider_message_id=row.provider_message_id,
    )


class _Parts(NamedTuple):
    tenant: bytes
    activity_id: bytes
    partition: int
    target_at: int
    target_hash: bytes
    shown: bytes
    bare: bytes


def _parts(raw: bytes) -> _Parts:
    names, own, partition = _OWNER.unpack_from(raw)
    at = _OWNER.size + names
    target_at = at + own
    target_hash, size = _TARGET.unpack_from(raw, target_at)
    shown_at = target_at + _TARGET.size
    bare_at = shown_at + size
    return _Parts(
        raw[_OWNER.size : at],
        raw[at:target_at],
        partition,
        target_at,
        target_hash,
        raw[shown_at:bare_at],
        raw[bare_at:],
    )


def _kept_under(indexes: Indexes, place: bytes, raw: bytes, parts: _Parts) -> Kept:
    phase, delivery_id, admitted_ms, _ = sketch(parts.bare, as_written(b""))
    tail = newest_first(admitted_ms) + place
    return Kept(
        place,
        delivery_id,
        raw,
        indexes.by_status[phase] + tail,
        indexes.by_target + parts.target_hash + tail,
        phase == _DEAD,
    )
