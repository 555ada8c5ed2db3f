"""Which topics there are and what they keep: design.md §1 as data. Knows no cluster."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from streams.rules.buckets import BUCKETS

HOUR_MS: Final = 60 * 60 * 1_000
DAY_MS: Final = 24 * HOUR_MS
WEEK_MS: Final = 7 * DAY_MS

MAX_MESSAGE_BYTES: Final = 2 * 1024**2
FOREVER: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """The full names, prefix included, of everything that Kafka knows of us by name.

    Attributes:
        outbox_retries, inbox_retries: By bucket name, shortest wait first.
        group: The consumer group.
    """

    prefix: str
    outbox: str
    inbox: str
    outbox_retries: dict[str, str]
    inbox_retries: dict[str, str]
    ledger: str
    outbox_dead_letters: str
    inbox_dead_letters: str
    quarantine: str
    receipts: str
    commands: str
    audit: str
    targets: str
    subscriptions: str
    broadcasts: str
    payloads: str
    observations: str
    group: str

    def transactional_id(self, role: str) -> str:
        """The transactional id of one writer, e.g. `api` or `api-2`."""
        return f"{self.prefix}{role}"


class Cleanup(StrEnum):
    """What becomes of old records."""

    DELETE = "delete"
    COMPACT = "compact"
    BOTH = "compact,delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """One topic as it ought to be.

    Attributes:
        retention_ms: Of a topic whose old records are deleted; `FOREVER`: never by age.
        is_partitioned: Whether it has `OUTBOX_PARTITIONS` partitions, the same as all of its kind,
            so that one worker owns partition p of each; else it has one.
        settings: Further topic settings, as Kafka names and writes them.
    """

    name: str
    cleanup: Cleanup
    retention_ms: int = FOREVER
    is_partitioned: bool = True
    settings: tuple[tuple[str, str], ...] = ()

    @property
    def config(self) -> dict[str, str]:
        """What the topic is created with, and is checked for, beside partitions and copies."""
        kept = (
            {"retention.ms": str(self.retention_ms)} if self.cleanup is not Cleanup.COMPACT else {}
        )
        return {
            "cleanup.policy": self.cleanup.value,
            "max.message.bytes": str(MAX_MESSAGE_BYTES),
            "message.timestamp.type": "CreateTime",
            **kept,
            **dict(self.settings),
        }


def names(prefix: str) -> Topics:
    """All names under `prefix`."""
    own = f"{prefix}outbox"
    return Topics(
        prefix=prefix,
        outbox=own,
        inbox=f"{prefix}inbox",
        outbox_retries={bucket: f"{own}.retry.{bucket}" for bucket, _ in BUCKETS},
        inbox_retries={bucket: f"{prefix}inbox.retry.{bucket}" for bucket, _ in BUCKETS},
        ledger=f"{prefix}ledger",
        outbox_dead_letters=f"{own}.dead-letters",
        inbox_dead_letters=f"{prefix}inbox.dead-letters",
        quarantine=f"{own}.quarantine",
        receipts=f"{own}.receipts",
        commands=f"{own}.commands",
        audit=f"{own}.audit",
        targets=f"{own}.targets",
        subscriptions=f"{own}.subscriptions",
        broadcasts=f"{own}.broadcasts",
        payloads=f"{own}.payloads",
        observations=f"{own}.observations",
        group=own,
    )


def wanted(prefix: str) -> tuple[Topic, ...]:
    """Every topic as it ought to be (design.md §1)."""
    t = names(prefix)
    retries = (*t.outbox_retries.values(), *t.inbox_retries.values())
    return (
        *(
            # Retries wait at most an hour, and are kept a week: an outage must not eat them. Their
            # delay counts from the record's own timestamp, hence CreateTime.
            Topic(name=name, cleanup=Cleanup.DELETE, retention_ms=WEEK_MS)
            for name in (t.outbox, t.inbox, *retries, t.quarantine, t.receipts, t.commands)
        ),
        Topic(
            name=t.ledger,
            cleanup=Cleanup.COMPACT,
            # A void record must be repaired before compaction can keep it in place of a valid one;
            # a tombstone must be seen by a worker that was away for a week.
            settings=(
                ("min.compaction.lag.ms", str(DAY_MS)),
                ("delete.retention.ms", str(WEEK_MS)),
            ),
        ),
        Topic(name=t.outbox_dead_letters, cleanup=Cleanup.COMPACT),
        Topic(name=t.inbox_dead_letters, cleanup=Cleanup.COMPACT),
        Topic(name=t.observations, cleanup=Cleanup.DELETE, retention_ms=90 * DAY_MS),
        Topic(name=t.broadcasts, cleanup=Cleanup.DELETE, retention_ms=WEEK_MS),
        # One partition each. Targets and subscriptions are read whole by every worker, and their
        # producers need not know a partitioner. The audit is a history, small and in order. A
        # payload is written once a broadcast and fetched by offset, by whichever worker needs it.
        _single(t.targets, Cleanup.COMPACT),
        _single(t.subscriptions, Cleanup.COMPACT),
        _single(t.audit, Cleanup.DELETE, 5 * 365 * DAY_MS),
        _single(t.payloads, Cleanup.BOTH, WEEK_MS),
    )


def _single(name: str, cleanup: Cleanup, retention_ms: int = FOREVER) -> Topic:
    return Topic(name=name, cleanup=cleanup, retention_ms=retention_ms, is_partitioned=False)
