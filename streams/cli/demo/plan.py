"""What the demo produces, and what must come of each line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Protocol

from streams.errors import RecordError
from streams.model.activity import Activity, Recipient
from streams.model.receipt import Outcome
from streams.rules.identity import canonical_hash, delivery_id, partition_of
from streams.wire.activity import read_activity


class Behaviour(Protocol):
    """What comes of a delivery to one path of the receiver: a row of `examples`' tables."""

    @property
    def calls_each(self) -> int:
        """Calls that it takes where no worker dies in one."""

    @property
    def receipt(self) -> str:
        """The verdict of its receipt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What is known of a recipient.

    Attributes:
        path: The behaviour, as the tables name it.
        idempotent: Whether a call of unknown effect may be repeated.
    """

    path: str
    idempotent: bool


class Places(Protocol):
    """Knows the recipients."""

    def __call__(self, tenant: str, recipient: Recipient) -> Place:
        """Where a recipient leads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owed:
    """One delivery that must be settled.

    Attributes:
        activity: Tenant and activity ID.
        path: Its behaviour.
        calls: Calls that it takes where no worker dies in one.
        verdict: Of its receipt, then.
        body_sha256: Of what the receiver must get, in hexadecimal.
        ledger_entry_id: What its dead letter must carry (O-023).
    """

    delivery_id: str
    activity: tuple[str, str]
    path: str
    calls: int
    verdict: Outcome
    idempotent: bool
    body_sha256: str
    ledger_entry_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One line as it goes to the topic.

    Attributes:
        code: The rule that it breaks, None for a good one. A bad one has no key and is sent raw.
    """

    text: bytes
    key: bytes | None
    partition: int
    code: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that goes in, and everything that must come out.

    Attributes:
        records: In the order of the lines.
        owed: By delivery id.
        duplicates, conflicts: Activities that come a second time: that receipt, and no call.
    """

    records: tuple[Record, ...]
    owed: dict[str, Owed]
    duplicates: frozenset[tuple[str, str]]
    conflicts: frozenset[tuple[str, str]]

    @property
    def malformed(self) -> tuple[Record, ...]:
        """Lines that a worker must dead-letter unread."""
        return tuple(record for record in self.records if record.code is not None)

    @property
    def activities(self) -> int:
        """Lines that are delivered."""
        again = len(self.duplicates) + len(self.conflicts)
        return len(self.records) - len(self.malformed) - again

    @property
    def paths(self) -> list[str]:
        """Every behaviour, in the order of first mention among the deliveries, most first."""
        counts: dict[str, int] = {}
        for owed in self.owed.values():
            counts[owed.path] = counts.get(owed.path, 0) + 1
        return sorted(counts, key=lambda path: -counts[path])


def plan_of(
    lines: Iterable[bytes],
    *,
    places: Places,
    behaviours: Mapping[str, Behaviour],
    partitions: int,
    max_bytes: int,
    max_depth: int,
) -> Plan:
    """Read the lines as a worker reads them, and say what must come of each.

    Args:
        lines: Without their ends.
        behaviours: By path.
        partitions: Of the outbox topic.
        max_bytes, max_depth: What a record may be.
    """
    records: list[Record] = []
    owed: dict[str, Owed] = {}
    first: dict[tuple[str, str], bytes] = {}
    again: dict[Outcome, set[tuple[str, str]]] = {Outcome.DUPLICATE: set(), Outcome.CONFLICT: set()}
    for number, text in enumerate(lines):
        try:
            activity = read_activity(text, max_bytes=max_bytes, max_depth=max_depth)
        except RecordError as error:
            raw = Record(text=text, key=None, partition=number % partitions, code=error.code)
            records.append(raw)
            continue
        home = partition_of(activity.key, partitions)
        records.append(Record(text=text, key=activity.key, partition=home))
        name, digest = (activity.tenant, activity.activity_id), canonical_hash(activity)
        if first.setdefault(name, digest) != digest:
            again[Outcome.CONFLICT].add(name)
        elif owed.keys() >= (mine := _owed(activity, places, behaviours)).keys():
            again[Outcome.DUPLICATE].add(name)
        else:
            owed |= mine
    return Plan(
        records=tuple(records),
        owed=owed,
        duplicates=frozenset(again[Outcome.DUPLICATE]),
        conflicts=frozenset(again[Outcome.CONFLICT]),
    )


def _owed(
    activity: Activity, places: Places, behaviours: Mapping[str, Behaviour]
) -> dict[str, Owed]:
    found = {}
    for recipient in activity.recipients:
        place = places(activity.tenant, recipient)
        behaviour = behaviours[place.path]
        owed = Owed(
            delivery_id=delivery_id(activity, recipient),
            activity=(activity.tenant, activity.activity_id),
            path=place.path,
            calls=behaviour.calls_each,
            verdict=Outcome(behaviour.receipt),
            idempotent=place.idempotent,
            body_sha256=sha256(activity.body).hexdigest(),
            ledger_entry_id=activity.ledger_entry_id,
        )
        found[owed.delivery_id] = owed
    return found
