"""Whether an activity's record is new, a redelivery, a duplicate or a conflict (D-006/007)."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from streams.model.ledger import ActivityRow, Admission
from streams.model.words import Word

DELIVERIES_MAX: Final = 3_000
"""Deliveries that one activity may come to have, over all its records. Given up together they make a
dead letter of 1.6 MB at most; a topic takes 2 MiB (field case E08)."""

HASH_BYTES: Final = 8
"""Length of one recipient's hash in `Admission.targets`."""


class Admitted(Word):
    """What one source record turns out to be."""

    NEW = "new"
    """It brings recipients that the activity did not have: its row is to be written."""
    REDELIVERED = "redelivered"
    """The very record that brought its recipients, again: its deliveries go on where they stand."""
    DUPLICATE = "duplicate"
    """Another record of the same activity that brings nobody new."""
    CONFLICT = "conflict"
    """Another record of the same activity with other content."""
    TOO_MANY = "too_many"
    """It would bring the activity more deliveries than one dead letter can hold: nothing is sent."""
    TOO_OLD = "too_old"
    """Older than the dedupe window and unknown: it may have been delivered and forgotten, so it is
    dead-lettered and not sent."""


class AdmissionDecision(msgspec.Struct, frozen=True, kw_only=True):
    """What a source record is, the activity's row after it, and which of its recipients it owns.

    Attributes:
        kind: See `Admitted`.
        row: To be appended when `kind` is NEW or TOO_OLD, else the row that stands.
        owned: Positions, among the record's recipients, of those that this record answers for.
        repeated: Positions of those that an earlier record answers for.
    """

    kind: Admitted
    row: ActivityRow
    owned: tuple[int, ...] = ()
    repeated: tuple[int, ...] = ()


def admit(
    known: ActivityRow | None,
    seen: ActivityRow,
    recipients: tuple[bytes, ...],
    *,
    offset: int,
    record_ms: int,
    now_ms: int,
    dedupe_window_ms: int,
) -> AdmissionDecision:
    """Say what a source record is.

    Args:
        known: The activity's row, or None.
        seen: The row it would have as new; its `admissions` are ignored.
        recipients: An 8-byte hash of each recipient's ledger key, in the record's order.
        offset: The record's offset; tells a redelivery from a duplicate.
        record_ms: The record's timestamp.
        now_ms: Wall clock.
        dedupe_window_ms: How long a settled activity is remembered.
    """
    everyone = tuple(range(len(recipients)))
    if known is None:
        row = replace(seen, admissions=(Admission(offset=offset, targets=b"".join(recipients)),))
        too_old = record_ms < now_ms - dedupe_window_ms
        kind = Admitted.TOO_OLD if too_old else Admitted.NEW
        return AdmissionDecision(kind=kind, row=row, owned=everyone)
    if known.canonical_hash != seen.canonical_hash:
        return AdmissionDecision(kind=Admitted.CONFLICT, row=known)
    brought_by = _brought_by(known)
    owned = tuple(i for i in everyone if brought_by.get(recipients[i], offset) == offset)
    mine = frozenset(owned)
    repeated = tuple(i for i in everyone if i not in mine)
    added = [recipients[i] for i in owned if recipients[i] not in brought_by]
    if added and known.deliveries + len(added) > DELIVERIES_MAX:
        return AdmissionDecision(kind=Admitted.TOO_MANY, row=known)
    if added:
        more = Admission(offset=offset, targets=b"".join(added))
        row = replace(known, admissions=(*known.admissions, more))
        return AdmissionDecision(kind=Admitted.NEW, row=row, owned=owned, repeated=repeated)
    kind = Admitted.REDELIVERED if owned else Admitted.DUPLICATE
    if owned and _was_too_old(known, offset, record_ms, dedupe_window_ms):
        kind = Admitted.TOO_OLD
    return AdmissionDecision(kind=kind, row=known, owned=owned, repeated=repeated)


def _was_too_old(known: ActivityRow, offset: int, record_ms: int, dedupe_window_ms: int) -> bool:
    """Whether the record was refused for its age when it first came: a redelivery must not send it."""
    is_first = known.admissions[0].offset == offset
    return is_first and record_ms < known.first_seen_ms - dedupe_window_ms


def _brought_by(known: ActivityRow) -> dict[bytes, int]:
    return {
        entry.targets[i : i + HASH_BYTES]: entry.offset
        for entry in known.admissions
        for i in range(0, len(entry.targets), HASH_BYTES)
    }
