"""Waiting retries: those of one activity that are due in the same second share a record (design §5)."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from streams.engine.retry_writer import RetryRecord, RetryWriter
from streams.engine.trigger import Carried, Trigger
from streams.rules.buckets import BUCKETS
from streams.rules.identity import delivery_id, delivery_key
from streams.wire.activity import read_activity
from streams.wire.records import RetryItem, read_retry_headers
from tests.sim.broker import BASE_MS
from tests.sim.loop import run_virtual
from tests.sim.machine import SimTime

LENGTHS_MS = dict(BUCKETS)
PARTITION: Any = SimpleNamespace(index=0)


class Log:
    """`RetryLog` that takes a moment."""

    def __init__(self) -> None:
        self.records: list[RetryRecord] = []
        self.fails = False

    def append_retry(self, record: RetryRecord) -> asyncio.Future[int]:
        loop = asyncio.get_running_loop()
        self.records.append(record)
        done: asyncio.Future[int] = loop.create_future()
        if self.fails:
            loop.call_later(0.01, done.set_exception, OSError("the broker is gone"))
        else:
            loop.call_later(0.01, done.set_result, 0)
        return done

    def items(self) -> list[tuple[int, RetryItem]]:
        """Every delivery written, with its due time."""
        return [
            (due_ms, item)
            for record in self.records
            for due_ms, items in [read_retry_headers(record.headers)]
            for item in items
        ]


def triggers(*targets: str) -> list[Trigger]:
    value = json.dumps(
        {
            "activity_id": "urn:1",
            "recipients": [{"target": target} for target in targets],
            "activity": {"type": "Note"},
        }
    ).encode()
    activity = read_activity(value, max_bytes=1 << 20, max_depth=8)
    carried = Carried(activity=activity, value=value, headers=(("trace", b"1"),))
    return [
        Trigger(
            partition=PARTITION,
            assignment=1,
            key=delivery_key(activity, recipient),
            delivery_id=delivery_id(activity, recipient),
            carried=carried,
            recipient=recipient,
        )
        for recipient in activity.recipients
    ]


def item_of(trigger: Trigger, attempt: int = 1) -> RetryItem:
    return RetryItem(
        delivery_id=trigger.delivery_id, target=trigger.recipient.key, attempt=attempt, fence=7
    )


def writing(scenario: Any) -> Log:
    """Play a scenario in virtual time; what was written."""
    log = Log()

    async def play() -> None:
        await scenario(RetryWriter(log, SimTime(asyncio.get_running_loop(), Random(1))))

    run_virtual(play())
    return log


def test_the_retry_of_a_single_recipient_is_written_at_once():
    """There is nobody to share a record with, so nothing is gathered."""
    (only,) = triggers("a")

    async def scenario(writer: RetryWriter) -> None:
        await writer.write(only, item_of(only), BASE_MS + 1_500)
        assert asyncio.get_running_loop().time() < 0.02

    (record,) = writing(scenario).records

    assert ("1s", b"urn:1", only.carried.value, BASE_MS) == (
        record.bucket,
        record.key,
        record.value,
        record.timestamp_ms,
    )
    assert ("trace", b"1") == record.headers[-1]
    assert (BASE_MS + 1_500, (item_of(only),)) == read_retry_headers(record.headers)


def test_a_thousand_recipients_of_one_second_share_a_record():
    """O-005: a body is copied once per hop, and not once per recipient."""
    everyone = triggers(*(f"t{n}" for n in range(1_000)))

    async def scenario(writer: RetryWriter) -> None:
        await asyncio.gather(
            *(
                writer.write(trigger, item_of(trigger), BASE_MS + 5_000 + n % 1_000)
                for n, trigger in enumerate(everyone)
            )
        )

    log = writing(scenario)

    assert 1 == len(log.records)
    assert {trigger.delivery_id for trigger in everyone} == {i.delivery_id for _, i in log.items()}


def test_each_second_of_due_times_has_one_record_at_most():
    """interface.md §3: whenever its deliveries fail, and however often."""
    everyone = triggers(*(f"t{n}" for n in range(200)))
    rng = Random(5)

    async def scenario(writer: RetryWriter) -> None:
        async def fail(trigger: Trigger) -> None:
            for attempt in range(3):
                await asyncio.sleep(rng.uniform(0, 4))
                due_ms = BASE_MS + int(asyncio.get_running_loop().time() * 1_000)
                await writer.write(
                    trigger, item_of(trigger, attempt), due_ms + rng.randint(500, 3_000)
                )

        await asyncio.gather(*map(fail, everyone))

    log = writing(scenario)
    seconds = Counter(read_retry_headers(record.headers)[0] // 1_000 for record in log.records)

    assert {1} == set(seconds.values())
    assert 600 == len(log.items())


def test_no_delivery_is_due_earlier_for_sharing_a_record():
    """D-018, O-040: a group is due when its last member is."""
    everyone = triggers(*(f"t{n}" for n in range(50)))
    asked = {trigger.delivery_id: BASE_MS + 2_000 + 37 * n for n, trigger in enumerate(everyone)}

    async def scenario(writer: RetryWriter) -> None:
        await asyncio.gather(*(writer.write(t, item_of(t), asked[t.delivery_id]) for t in everyone))

    log = writing(scenario)

    assert all(asked[item.delivery_id] <= due_ms for due_ms, item in log.items())
    assert all(due_ms < asked[item.delivery_id] + 2_000 for due_ms, item in log.items())


def test_a_record_wakes_no_later_than_it_is_due():
    """Its bucket is counted from its own timestamp, so gathering makes no retry late."""
    everyone = triggers(*(f"t{n}" for n in range(20)))

    async def scenario(writer: RetryWriter) -> None:
        await asyncio.gather(
            *(
                writer.write(trigger, item_of(trigger), BASE_MS + 1_000 * (n + 1))
                for n, trigger in enumerate(everyone)
            )
        )

    for record in writing(scenario).records:
        due_ms, _ = read_retry_headers(record.headers)
        assert record.timestamp_ms + LENGTHS_MS[record.bucket] <= due_ms


def test_a_retry_is_carried_by_the_record_that_owes_it():
    """
    D-007: an activity's further recipients came in a record of their own, whose value alone names them; in
    the other's it would be rejected, and the delivery lost (found by the simulation).
    """
    first, further = triggers("a", "b"), triggers("b", "c")

    async def scenario(writer: RetryWriter) -> None:
        await asyncio.gather(
            *(writer.write(t, item_of(t), BASE_MS + 1_500) for t in (*first, *further))
        )

    for record in writing(scenario).records:
        owed = read_activity(record.value, max_bytes=1 << 20, max_depth=8).recipients
        carried = read_retry_headers(record.headers)[1]
        assert {item.target for item in carried} <= {recipient.key for recipient in owed}


def test_whoever_waits_learns_that_the_append_failed():
    """Rule 12: nothing is acknowledged on a retry that was not written."""
    everyone = triggers("a", "b")
    log = Log()
    log.fails = True

    async def play() -> None:
        writer = RetryWriter(log, SimTime(asyncio.get_running_loop(), Random(1)))
        await asyncio.gather(*(writer.write(t, item_of(t), BASE_MS + 1_500) for t in everyone))

    with pytest.raises(OSError, match="the broker is gone"):
        run_virtual(play())


def test_an_activity_that_rests_is_forgotten():
    """What was gathered once must not stay in memory for ever."""
    everyone = triggers("a", "b")

    async def scenario(writer: RetryWriter) -> None:
        await asyncio.gather(*(writer.write(t, item_of(t), BASE_MS + 1_500) for t in everyone))
        assert 1 == len(writer._gatherings)
        await asyncio.sleep(10)
        assert 0 == len(writer._gatherings)

    writing(scenario)
