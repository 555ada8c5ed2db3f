"""Whether a partition goes on, and since when it does not (faust.md §8, a-e).

Pure: samples in, seconds without progress out. Only time that was seen counts: a process that was
frozen between two samples is not blamed for what lay between them, and while the brokers say nothing
nobody is: another worker would find them as silent. What waits for a reason (a delay
topic's turn, a held retry, a lease) is no standstill; how long it may take comes with the sample.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

STEP_MAX_S: Final = 10.0
"""What one step between two samples counts for, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSample:
    """One topic partition that is consumed by group.

    Attributes:
        topic: Its full name.
        position: What is fetched next; None where nobody knows.
        end: Where the log ends; None where nobody could say.
        has_room: Whether records are asked for.
        oldest: Offset of the oldest record in hand that is not settled; None where all are.
        may_wait: Whether that one waits for a time that has not come.
        committed: What was last committed.
        is_due: Whether there is something to commit.
        patience_s: How long a delivery may take without being stuck: its leases and calls.
    """

    topic: str
    position: int | None = None
    end: int | None = None
    has_room: bool = True
    oldest: int | None = None
    may_wait: bool = False
    committed: int | None = None
    is_due: bool = False
    patience_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One assigned partition at one moment.

    Attributes:
        at_s: Monotonic seconds.
        assignment: In which assignment; another one starts every count anew.
        leads: Whether its ledger is led.
        restored: Rows that the worker's restore has folded so far: progress before anything is led.
        folded: How far its ledger was read.
        end: Where its ledger ends; None where nobody could say.
    """

    at_s: float
    partition: int
    assignment: int = 1
    leads: bool = True
    restored: int = 0
    folded: int = 0
    end: int | None = None
    lanes: tuple[LaneSample, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneVital:
    """Seconds for which one lane has not moved though it should have."""

    fetch_s: float = 0.0
    oldest_s: float = 0.0
    commit_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Vital:
    """What was seen of one partition, up to the last sample."""

    last: Sample
    not_led_s: float = 0.0
    tail_s: float = 0.0
    lanes: Mapping[str, LaneVital] = field(default_factory=dict)


class Standstill(StrEnum):
    """What does not go on. The closed set of reasons, for metrics and logs."""

    NOT_LED = "not_led"
    TAIL = "tail"
    FETCH = "fetch"
    OLDEST = "oldest"
    COMMIT = "commit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One partition that stands still.

    Attributes:
        share: Which part of the bound has passed; from 1 on the worker cannot go on.
    """

    partition: int
    what: Standstill
    seconds: float
    share: float
    topic: str = ""

    def __str__(self) -> str:
        where = f"{self.topic}/{self.partition}" if self.topic else f"partition {self.partition}"
        return f"{where} {_TOLD[self.what]} for {self.seconds:.0f} s"


_TOLD: Final = {
    Standstill.NOT_LED: "was assigned and not led",
    Standstill.TAIL: "was not folded on though its ledger grew",
    Standstill.FETCH: "had room and records and was handed none",
    Standstill.OLDEST: "had the same oldest record unsettled, with nothing that it waits for,",
    Standstill.COMMIT: "had settled records that were not committed",
}


def observe(before: Vital | None, sample: Sample) -> Vital:
    """Add a sample to what was seen of its partition."""
    if before is None or before.last.assignment != sample.assignment:
        return Vital(last=sample, lanes={lane.topic: LaneVital() for lane in sample.lanes})
    last = before.last
    step_s = min(max(0.0, sample.at_s - last.at_s), STEP_MAX_S)
    if sample.end is None:
        step_s = 0.0
    # Before it is led nobody folds it on.
    is_behind = sample.leads and (sample.end is None or sample.folded < sample.end)
    is_unled = not sample.leads and sample.restored == last.restored
    lasts = {lane.topic: lane for lane in last.lanes}
    return Vital(
        last=sample,
        not_led_s=_longer(before.not_led_s, step_s, is_unled),
        tail_s=_longer(before.tail_s, step_s, is_behind and sample.folded == last.folded),
        lanes={
            lane.topic: _observe_lane(
                before.lanes.get(lane.topic, LaneVital()), lasts[lane.topic], lane, step_s
            )
            if lane.topic in lasts
            else LaneVital()
            for lane in sample.lanes
        },
    )


def _observe_lane(
    before: LaneVital, last: LaneSample, lane: LaneSample, step_s: float
) -> LaneVital:
    if lane.end is None:
        step_s = 0.0
    has_more = lane.position is not None and (lane.end is None or lane.position < lane.end)
    is_same = lane.oldest is not None and lane.oldest == last.oldest and not lane.may_wait
    return LaneVital(
        fetch_s=_longer(
            before.fetch_s, step_s, has_more and lane.has_room and lane.position == last.position
        ),
        oldest_s=_longer(before.oldest_s, step_s, is_same),
        commit_s=_longer(
            before.commit_s,
            step_s,
            lane.is_due and last.is_due and lane.committed == last.committed,
        ),
    )


def _longer(seconds: float, step_s: float, stands: bool) -> float:
    return seconds + step_s if stands else 0.0


def findings(vital: Vital, *, bound_s: float) -> list[Finding]:
    """What has not moved for at least half its bound, worst first.

    Args:
        bound_s: How long anything that waits for nobody may stand still.
    """
    stood = [
        (Standstill.NOT_LED, vital.not_led_s, bound_s, ""),
        (Standstill.TAIL, vital.tail_s, bound_s, ""),
    ]
    for lane in vital.last.lanes:
        seen = vital.lanes[lane.topic]
        stood += [
            (Standstill.FETCH, seen.fetch_s, bound_s, lane.topic),
            (Standstill.OLDEST, seen.oldest_s, bound_s + lane.patience_s, lane.topic),
            (Standstill.COMMIT, seen.commit_s, bound_s, lane.topic),
        ]
    found = [
        Finding(
            partition=vital.last.partition,
            what=what,
            seconds=seconds,
            share=seconds / within_s,
            topic=topic,
        )
        for what, seconds, within_s, topic in stood
        if seconds >= within_s / 2
    ]
    return sorted(found, key=lambda finding: -finding.share)


EVICTIONS_MAX: Final = 3


def is_evicted_by_a_namesake(evictions: Iterable[float], *, now_s: float, session_s: float) -> bool:
    """Whether another process uses this worker's id (design §4).

    A member that fell silent is given up once a session time-out; only a namesake, which takes the
    name back each time, evicts it more often.

    Args:
        evictions: When the group did not know this member any more, monotonic seconds.
    """
    return sum(1 for at_s in evictions if now_s - at_s <= session_s) >= EVICTIONS_MAX
