"""The checker's own fold of the ledger: what a reader of it ends with, and how it got there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.history import OWNER_KEY, ZERO, Entry

Row = Mapping[str, Any]


@dataclass(slots=True)
class Folded:
    """What a reader of the ledger ends with, and how it got there."""

    rows: dict[bytes, Row] = field(default_factory=dict)
    valid: defaultdict[bytes, list[Entry]] = field(default_factory=lambda: defaultdict(list))
    """Delivery to its records that count, in order; claims have their fence filled in."""
    void: set[tuple[int, int]] = field(default_factory=set)
    """Partition and offset of the records that do not count."""
    owed: set[bytes] = field(default_factory=set)
    """Keys whose last record is void."""
    forgotten: set[bytes] = field(default_factory=set)
    """Deliveries whose row an end of life has deleted."""
    owners: int = 0


def fold(entries: list[Entry]) -> Folded:
    """ledger.md, rule 1, once more: an OWNER at o sets the epoch to o, a lower epoch is void."""
    folded = Folded()
    epochs: dict[int, int] = {}
    for entry in sorted(entries, key=lambda e: (e.partition, e.offset)):
        if entry.kind == "OWNER":
            epochs[entry.partition] = entry.offset
            folded.owners += 1
            continue
        assert entry.epoch is not None, "every record but OWNER has an epoch"
        if entry.epoch < epochs.get(entry.partition, -1):
            folded.void.add((entry.partition, entry.offset))
            folded.owed.add(entry.key)
            continue
        folded.owed.discard(entry.key)
        if entry.row is None:
            was = folded.rows.pop(entry.key, None)
            if entry.is_delivery and entry.kind == "REPORT" and was is not None:
                folded.forgotten.add(entry.key)
        else:
            folded.forgotten.discard(entry.key)
            row = dict(entry.row)
            if entry.kind == "CLAIM":
                row["fence"] = entry.offset
            folded.rows[entry.key] = row
        if entry.is_delivery:
            folded.valid[entry.key].append(entry)
    return folded


def deliveries(folded: Folded) -> Iterator[tuple[bytes, Row]]:
    """The rows of deliveries, without those of activities."""
    for key, row in folded.rows.items():
        if ZERO in key and key != OWNER_KEY:
            yield key, row


def claims(folded: Folded) -> Iterator[tuple[bytes, Row]]:
    """Every valid claim there ever was."""
    for key, entries in folded.valid.items():
        for entry in entries:
            if entry.kind == "CLAIM" and entry.row is not None:
                yield key, entry.row


def message_id(row: Row) -> str:
    """The `webhook-id` of a row's calls."""
    return f"{row['delivery_id']}-{row['generation']}"
