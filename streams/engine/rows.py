"""What one ledger partition's rows say: read from the store, decoded once, what is on its way included."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from streams.edge.store import PartitionStore, StoredRow
from streams.model.ledger import SEPARATOR, ActivityRow, Kind, Phase, Row
from streams.rules.fold import LedgerRecord
from streams.wire.codec import decode_activity_row, decode_row, encode_row

HOT_ROWS: Final = 1_000
"""Decoded rows kept in memory per partition; beyond it the cache starts anew. Enough for what is under
way; a worker may lead all 64 partitions, and a row takes about 0.8 KB."""

_ADMIT: Final = Kind.ADMIT
_CLAIM: Final = Kind.CLAIM


class Rows:
    """The rows of one partition, by key."""

    def __init__(self, store: PartitionStore) -> None:
        self.store = store
        self._hot: dict[bytes, Row | None] = {}
        self._known: set[bytes] = set()
        """Activities whose row was folded lately and not taken away since."""
        self._admitting: dict[bytes, tuple[ActivityRow, bytes]] = {}
        """Activities' rows that are appended and not yet folded, each with its token."""

    def forget(self) -> None:
        """Drop all that was folded: it was another log's, and is folded anew."""
        self.store.forget()
        self._cool()
        self._admitting.clear()

    def _cool(self) -> None:
        """Let go of what is kept beside the store, which is written to without us."""
        self._hot.clear()
        self._known.clear()

    def _remember(self, record: LedgerRecord, row: Row | None) -> None:
        """Keep a row that we wrote ourselves decoded; one that others wrote is decoded when asked for."""
        if len(self._hot) >= HOT_ROWS:
            self._hot.clear()
        if row is None:
            self._hot.pop(record.key, None)
            self._note_activity(record)
            pending = self._admitting.get(record.key)
            if pending is not None and pending[1] == record.token:
                del self._admitting[record.key]
        elif record.kind is _CLAIM:
            self._hot[record.key] = replace(row, fence=record.offset)
        else:
            self._hot[record.key] = row

    def _note_activity(self, record: LedgerRecord) -> None:
        if record.kind is not _ADMIT:
            self._known.discard(record.key)
            return
        if len(self._known) >= HOT_ROWS:
            self._known.clear()
        self._known.add(record.key)

    def row(self, key: bytes) -> Row | None:
        """The folded row of a delivery."""
        if key in self._hot:
            return self._hot[key]
        if len(self._hot) >= HOT_ROWS:
            self._hot.clear()
        stored = self.store.get(key)
        # That there is none is kept too: a new delivery is looked for three times before its claim.
        row = self._hot[key] = None if stored is None else row_of(stored)
        return row

    def activity(self, key: bytes) -> ActivityRow | None:
        """The row of an activity, one that is appended and not yet folded included."""
        pending = self._admitting.get(key)
        if pending is not None:
            return pending[0]
        stored = self.store.get(key)
        return None if stored is None else decode_activity_row(stored.value)

    def is_admitting(self, activity_key: bytes) -> bool:
        """Whether an activity's row is on its way."""
        return activity_key in self._admitting

    def knows(self, activity_key: bytes) -> bool:
        """Whether an activity has a row, folded or on its way."""
        is_recent = self.is_admitting(activity_key) or activity_key in self._known
        return is_recent or self.store.get(activity_key) is not None

    def deliveries(self, activity_key: bytes) -> list[Row]:
        """Every delivery's row of one activity, in key order."""
        return [row_of(stored) for _, stored in self.store.under(activity_key + SEPARATOR)]

    def letter(self, activity_key: bytes, letter_id: str) -> bytes | None:
        """The ledger key of the delivery whose dead letter has this id, or None."""
        for key, stored in self.store.under(activity_key + SEPARATOR):
            row = row_of(stored)
            if row.phase is Phase.DEAD and row.letter_id == letter_id:
                return key
        return None


def row_of(stored: StoredRow) -> Row:
    """A delivery's row as it was stored, with the fence that the fold gave it."""
    row = decode_row(stored.value)
    return row if stored.fence is None else replace(row, fence=stored.fence)


def value_of_repair(key: bytes, stored: StoredRow) -> bytes:
    """What a repair writes: the row with the fence that the fold gave it, or the activity's row as is."""
    if SEPARATOR not in key or stored.fence is None:
        return stored.value
    return encode_row(row_of(stored))
