"""The one function that turns ledger records into state.

Live tail, recovery and the API's read model run the same `fold`, so that they cannot disagree
(ledger.md, rule 1). It knows one test: an OWNER record at offset o sets the epoch to o; a record
with a lower epoch is void; everything else replaces its row.
"""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from streams.model.ledger import Kind

_OWNER: Final = Kind.OWNER
_CLAIM: Final = Kind.CLAIM


class LedgerRecord(msgspec.Struct, kw_only=True, gc=False):
    """One record of a ledger partition, its value still in bytes.

    Attributes:
        offset: Where it lies in its partition.
        key: Delivery key, activity key, or `OWNER_KEY`.
        kind: Its header `k`.
        epoch: The writer's epoch, header `e`; ignored on OWNER.
        token: Header `t`: 16 bytes by which its writer knows it again.
        value: Avro row, or None for a tombstone.
    """

    offset: int
    key: bytes
    kind: Kind
    epoch: int
    token: bytes
    value: bytes | None


class Folded(Protocol):
    """What `fold` writes to: one partition's state."""

    epoch: int
    """Offset of the last OWNER folded; -1 before the first."""
    next: int
    """Offset from which the next record is to be folded."""

    def put(self, key: bytes, fence: int | None, value: bytes) -> None:
        """Replace a row; `fence` is the claim's offset, None to keep what the value itself says."""

    def delete(self, key: bytes) -> None:
        """Forget a row."""

    def owe(self, key: bytes) -> None:
        """Note that the key's last record is void: it owes a repair (rule 6)."""

    def pay(self, key: bytes) -> None:
        """Forget what the key owed."""


def fold(state: Folded, record: LedgerRecord) -> bool:
    """Apply `record` to `state`; say whether it counts.

    Total and deterministic: any prefix of one log gives one state.

    Returns:
        True when the record is valid, False when it is void: written by a worker whose epoch was
        already superseded when the record reached the log.
    """
    state.next = record.offset + 1
    if record.kind is _OWNER:
        state.epoch = record.offset
        return True
    if record.epoch < state.epoch:
        state.owe(record.key)
        return False
    if record.value is None:
        state.delete(record.key)
    else:
        fence = record.offset if record.kind is _CLAIM else None
        state.put(record.key, fence, record.value)
    state.pay(record.key)
    return True
