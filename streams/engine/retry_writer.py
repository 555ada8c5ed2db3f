"""Writes waiting retries: those of one activity that are due in the same second share a record.

An activity with 1,000 failing recipients would else be copied 1,000 times a hop. So retries of an
activity with several recipients are gathered for a moment, and each second of due times gets one
record, at most: what would come to a second that was already written moves to the next.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final, Protocol

from streams.engine.ports import Time
from streams.engine.trigger import Carried, Trigger
from streams.rules.buckets import bucket_for
from streams.wire.records import RetryItem, retry_headers

GATHER_S: Final = 0.4
"""How long retries of one activity are gathered. Shorter than the shortest bucket, and the record's
timestamp is the first one's, so gathering makes no retry late that has jitter or more to wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryRecord:
    """One record of a delay topic, `outbox.retry.<bucket>`.

    Attributes:
        timestamp_ms: From when the bucket's length counts.
    """

    bucket: str
    partition: int
    key: bytes
    value: bytes
    headers: list[tuple[str, bytes]]
    timestamp_ms: int


class RetryLog(Protocol):
    """Appends retry records."""

    def append_retry(self, record: RetryRecord) -> asyncio.Future[int]:
        """Append one; done when durable."""


@dataclass(slots=True)
class _Gathering:
    """The retries of one activity on one partition that wait to be written."""

    carried: Carried
    since_ms: int
    items: list[tuple[int, RetryItem]] = field(default_factory=list)
    written: asyncio.Future[None] | None = None
    last_second: int = 0


class RetryWriter:
    """One per worker."""

    def __init__(self, log: RetryLog, time: Time) -> None:
        self._log = log
        self._time = time
        # By value: an activity whose recipients came in several records has one gathering for each,
        # for a retry record may only name deliveries that its own value owes.
        self._gatherings: dict[tuple[int, bytes], _Gathering] = {}

    async def write(self, trigger: Trigger, item: RetryItem, due_ms: int) -> None:
        """Write a retry of `trigger`'s delivery, due at `due_ms`; done when durable."""
        if len(trigger.carried.activity.recipients) == 1:
            await self._append(
                trigger.partition.index, trigger.carried, due_ms, [item], self._time.now_ms()
            )
            return
        key = (trigger.partition.index, trigger.carried.value)
        gathering = self._gatherings.get(key)
        if gathering is None:
            gathering = _Gathering(trigger.carried, self._time.now_ms())
            self._gatherings[key] = gathering
        if gathering.written is None:
            loop = asyncio.get_running_loop()
            gathering.written = loop.create_future()
            gathering.since_ms = self._time.now_ms()
            loop.call_later(GATHER_S, self._flush, key)
        gathering.items.append((due_ms, item))
        await asyncio.shield(gathering.written)

    def _flush(self, key: tuple[int, bytes]) -> None:
        gathering = self._gatherings[key]
        items, gathering.items = gathering.items, []
        written, gathering.written = gathering.written, None
        assert written is not None, "a flush is only scheduled with somebody waiting"
        appended = [
            self._append(key[0], gathering.carried, due_ms, group, gathering.since_ms)
            for due_ms, group in self._by_second(gathering, items)
        ]
        asyncio.gather(*appended).add_done_callback(lambda done: _pass_on(done, written))
        lasts_s = gathering.last_second - self._time.now_ms() // 1000 + 1
        asyncio.get_running_loop().call_later(max(1, lasts_s), self._forget, key, gathering)

    @staticmethod
    def _by_second(
        gathering: _Gathering, items: list[tuple[int, RetryItem]]
    ) -> list[tuple[int, list[RetryItem]]]:
        """One group per second of due times, each in a second that has no record yet.

        A group is due when its last member is: jitter and delays may grow, never shrink.
        """
        groups: list[tuple[int, list[RetryItem]]] = []
        waiting = sorted(items, key=lambda entry: entry[0])
        while waiting:
            due_ms = max(waiting[0][0], (gathering.last_second + 1) * 1000)
            second = due_ms // 1000
            group = [entry for entry in waiting if entry[0] // 1000 <= second]
            waiting = waiting[len(group) :]
            groups.append((max(due_ms, group[-1][0]), [item for _, item in group]))
            gathering.last_second = second
        return groups

    def _forget(self, key: tuple[int, bytes], gathering: _Gathering) -> None:
        is_idle = gathering.written is None and self._gatherings.get(key) is gathering
        # An earlier flush's call may come within the last second: it is still written to until its end.
        if is_idle and (gathering.last_second + 1) * 1000 <= self._time.now_ms():
            del self._gatherings[key]

    def _append(
        self, partition: int, carried: Carried, due_ms: int, items: list[RetryItem], at_ms: int
    ) -> asyncio.Future[int]:
        return self._log.append_retry(
            RetryRecord(
                bucket=bucket_for(due_ms - at_ms),
                partition=partition,
                key=carried.activity.key,
                value=carried.value,
                headers=retry_headers(due_ms, items, carried.headers),
                timestamp_ms=at_ms,
            )
        )


def _pass_on(done: asyncio.Future[list[int]], written: asyncio.Future[None]) -> None:
    if written.done():
        return
    error = done.exception()
    if error is not None:
        written.set_exception(error)
    else:
        written.set_result(None)
