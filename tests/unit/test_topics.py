"""Which topics there are and what they keep (design.md §1)."""

from __future__ import annotations

from dataclasses import fields

from streams.topics import names, wanted
from streams.topics.catalogue import DAY_MS, WEEK_MS, Cleanup, Topic

BUCKETS = ("1s", "5s", "30s", "2m", "10m", "1h")


def by_name(prefix: str = "") -> dict[str, Topic]:
    return {topic.name: topic for topic in wanted(prefix)}


def test_all_topics_of_the_design_are_there() -> None:
    """Nothing is auto-created: what is not listed does not exist."""
    expected = {
        "outbox",
        "inbox",
        "ledger",
        "outbox.dead-letters",
        "inbox.dead-letters",
        *(f"outbox.{name}" for name in ("quarantine", "receipts", "commands", "audit")),
        *(f"outbox.{name}" for name in ("targets", "subscriptions", "broadcasts", "payloads")),
        "outbox.observations",
        *(f"{queue}.retry.{bucket}" for queue in ("outbox", "inbox") for bucket in BUCKETS),
    }

    assert expected == set(by_name())


def test_the_prefix_stands_before_every_name() -> None:
    """interface.md §2: several installations share a cluster by their prefix."""
    plain, prefixed = set(by_name()), set(by_name("acme."))
    group = names("acme.")

    assert {f"acme.{name}" for name in plain} == prefixed
    assert ("acme.outbox", "acme.api") == (group.group, group.transactional_id("api"))


def test_every_name_that_code_can_use_is_a_topic() -> None:
    """A name in `Topics` that nobody creates would fail on the first cluster."""
    topics = names("x.")
    plain = {
        getattr(topics, field.name)
        for field in fields(topics)
        if field.name not in ("prefix", "group", "outbox_retries", "inbox_retries")
    }
    retries = {*topics.outbox_retries.values(), *topics.inbox_retries.values()}

    assert set(by_name("x.")) == plain | retries
    assert BUCKETS == tuple(topics.outbox_retries) == tuple(topics.inbox_retries)


def test_the_ledger_is_compacted_late() -> None:
    """Void records must be repaired before compaction keeps them; tombstones outlast an absence."""
    assert {
        "cleanup.policy": "compact",
        "max.message.bytes": "2097152",
        "message.timestamp.type": "CreateTime",
        "min.compaction.lag.ms": str(DAY_MS),
        "delete.retention.ms": str(WEEK_MS),
    } == by_name()["ledger"].config


def test_waiting_retries_are_kept_a_week_whatever_their_bucket() -> None:
    """
    An outage of days must not eat retries that wait a second; their delay counts from the
    record's own timestamp.
    """
    configs = [topic.config for name, topic in by_name().items() if ".retry." in name]

    assert len(configs) == 12
    assert all(
        {
            "cleanup.policy": "delete",
            "retention.ms": str(WEEK_MS),
            "max.message.bytes": "2097152",
            "message.timestamp.type": "CreateTime",
        }
        == config
        for config in configs
    )


def test_dead_letters_are_compacted() -> None:
    """C-16: keyed by activity ID, the last state is kept until its tombstone."""
    found = by_name()

    assert (Cleanup.COMPACT, Cleanup.COMPACT) == (
        found["outbox.dead-letters"].cleanup,
        found["inbox.dead-letters"].cleanup,
    )


def test_payloads_are_compacted_and_kept_seven_days() -> None:
    """D-031."""
    assert ("compact,delete", str(WEEK_MS)) == (
        by_name()["outbox.payloads"].config["cleanup.policy"],
        by_name()["outbox.payloads"].config["retention.ms"],
    )


def test_only_what_every_worker_reads_whole_has_one_partition() -> None:
    """C-15: all others have N, so that one worker owns partition p of each of them."""
    assert {"outbox.targets", "outbox.subscriptions", "outbox.audit", "outbox.payloads"} == {
        name for name, topic in by_name().items() if not topic.is_partitioned
    }
