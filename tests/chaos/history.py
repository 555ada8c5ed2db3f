"""What the topics and the receiver's log hold of one round, read without the product's code.

Only the schemas are shared with it: a checker that reused the product's reading would repeat its
mistakes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import fastavro

_SCHEMAS: Final = Path(__file__).parents[2] / "schemas"
_HEAD_BYTES: Final = 10
"""Avro's single-object framing: C3 01 and the schema's fingerprint."""

OWNER_KEY: Final = b"\x00owner"
ZERO: Final = b"\x00"

Place = tuple[str, int]
"""A topic and a partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """An activity as it lies in `outbox`."""

    partition: int
    offset: int
    t_ms: int
    activity: str
    """Its activity key."""
    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One ledger record. `epoch` is None on OWNER, `row` on OWNER and tombstones."""

    partition: int
    offset: int
    t_ms: int
    key: bytes
    kind: str
    epoch: int | None
    token: bytes
    row: Mapping[str, Any] | None

    @property
    def is_delivery(self) -> bool:
        """Whether it speaks of a delivery, not of an activity or of the partition's owner."""
        return ZERO in self.key and self.key != OWNER_KEY


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One delivery of a waiting retry."""

    delivery_id: str
    target: str
    attempt: int
    fence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """One record of a delay topic."""

    topic: str
    partition: int
    offset: int
    t_ms: int
    activity: str
    due_ms: int
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterRecord:
    """One record of `outbox.dead-letters`; `deliveries` is None for a tombstone."""

    partition: int
    offset: int
    t_ms: int
    activity: str
    deliveries: tuple[Mapping[str, Any], ...] | None
    is_derived: bool
    """Whether rows of the ledger stand behind it: it has the header `ledger-offset`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """One record of `outbox.receipts`."""

    t_ms: int
    activity: str
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One record of `outbox.commands`."""

    partition: int
    offset: int
    t_ms: int
    activity: str
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One line of the receiver's log."""

    t: float
    id: str
    attempt: int
    path: str
    status: int | None


@dataclass(slots=True, kw_only=True)
class History:
    """Everything of one round.

    Attributes:
        compacted: The ledger as compaction left it, read anew at the end.
        committed: The group's offsets.
        ends: End offsets of the topics that the group consumes.
        strict: Names of the targets that are not idempotent.
        dedupe_window_ms: How long after its last settlement an activity must be known.
        skew_ms: How wrong a worker's wall clock may have been.
        is_whole: False where only some of the activities were recorded.
    """

    max_attempts: int
    strict: frozenset[str] = frozenset()
    dedupe_window_ms: int = 7 * 24 * 60 * 60 * 1_000
    skew_ms: int = 0
    is_whole: bool = True
    sources: list[Source] = field(default_factory=list)
    ledger: list[Entry] = field(default_factory=list)
    compacted: list[Entry] | None = None
    retries: list[Retry] = field(default_factory=list)
    letters: list[LetterRecord] = field(default_factory=list)
    receipts: list[Receipt] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    committed: dict[Place, int] = field(default_factory=dict)
    ends: dict[Place, int] = field(default_factory=dict)
    outbox: str = "outbox"
    """Name of the topic that the sources lie in."""

    def is_pending(self, topic: str, partition: int, offset: int) -> bool:
        """Whether the group will still be given this record."""
        return offset >= self.committed.get((topic, partition), 0)


@cache
def _schema(name: str) -> Any:
    return fastavro.parse_schema(json.loads((_SCHEMAS / f"{name}.avsc").read_text()))


def read_avro(name: str, value: bytes) -> dict[str, Any]:
    """A record's fields, by the schema of this name."""
    read = fastavro.schemaless_reader(BytesIO(value[_HEAD_BYTES:]), _schema(name), None)
    assert isinstance(read, dict)
    return read


def read_source(partition: int, offset: int, t_ms: int, value: bytes) -> Source:
    """An activity's record, JSON."""
    told = json.loads(value)
    tenant = told.get("tenant", "default")
    own = told["activity_id"]
    return Source(
        partition=partition,
        offset=offset,
        t_ms=t_ms,
        activity=own if tenant == "default" else f"{tenant}|{own}",
        targets=tuple(r.get("target") or r["inbox"] for r in told["recipients"]),
    )


def read_items(headers: Iterable[tuple[str, bytes]]) -> tuple[int, tuple[Item, ...]]:
    """When a retry is due, and the deliveries that it carries: four headers for each."""
    due_ms, values = 0, []
    for name, value in headers:
        if name == "due":
            due_ms = int(value)
        elif name in ("delivery", "target", "attempt", "fence"):
            values.append(value.decode())
    items = tuple(
        Item(delivery_id=d, target=t, attempt=int(a), fence=int(f))
        for d, t, a, f in zip(*(values[i::4] for i in range(4)), strict=True)
    )
    return due_ms, items


def read_calls(log: Path, keeps: Callable[[str], bool] = lambda _path: True) -> list[Call]:
    """The calls of the receiver's log whose path is kept; a last line that is not whole is left out."""
    if not log.exists():
        return []
    whole = log.read_bytes().rpartition(b"\n")[0]
    told = [json.loads(line) for line in whole.splitlines()]
    return [
        Call(
            t=c["t"],
            id=c["id"] or "",
            attempt=c["attempt"] or 0,
            path=c["path"],
            status=c["status"],
        )
        for c in told
        if keeps(c["path"])
    ]
