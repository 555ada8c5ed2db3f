"""Looks at each partition every few seconds, and ends a worker that cannot make progress.

What a standstill is says `rules.vitals`; here is only looked, counted and told. A restart is cheap and
safe, and the next owner may do better; a worker that stands still for a reason that another would share
(no broker answers, a target is slow, a retry waits) is left alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Protocol

import structlog
from aiokafka.errors import KafkaError
from faust.types import TP

from streams.edge.log import Tail
from streams.edge.telemetry import Metrics
from streams.engine.lanes import Lane
from streams.engine.ports import Time
from streams.engine.worker import Worker
from streams.errors import FatalError
from streams.rules.vitals import (
    Finding,
    LaneSample,
    LaneVital,
    Sample,
    Standstill,
    Vital,
    findings,
    observe,
)

log = structlog.get_logger(__name__)

LOOKS: Final = 12
"""How often is looked within the bound."""

LOOK_MAX_S: Final = 5.0
ANSWER_S: Final = 10.0
"""How long the brokers have to say where the logs end."""

LEASES: Final = 4
"""A delivery waits for the lock of another's call, for a foreign claim, for its place and for its own
call: each takes a lease at most."""


class Consuming(Protocol):
    """What is looked at of faust's consumer."""

    def ailment(self) -> str | None:
        """Why it can never go on; None while it can."""

    def doubts(self) -> list[str]:
        """What would be an ailment if it lasted."""

    def fetched_to(self, tp: TP) -> int | None:
        """Offset that is fetched next; None where it is not known."""


class Watch:
    """Looks after one worker.

    Args:
        waits: Whether a lane's record at an offset waits for a time that has not come.
        longest_lease_ms: The longest lease that any target has.
        bound_s: How long anything that waits for nobody may stand still.
    """

    def __init__(
        self,
        *,
        worker: Worker,
        consuming: Consuming,
        tail: Tail,
        ledger: str,
        waits: Callable[[str, Lane, int], bool],
        longest_lease_ms: Callable[[], int],
        time: Time,
        metrics: Metrics,
        fatal: Callable[[BaseException], None],
        bound_s: float,
    ) -> None:
        self._worker = worker
        self._consuming = consuming
        self._tail = tail
        self._ledger = ledger
        self._waits = waits
        self._longest_lease_ms = longest_lease_ms
        self._time = time
        self._metrics = metrics
        self._fatal = fatal
        self._bound_s = bound_s
        self._vitals: dict[int, Vital] = {}
        self._found: list[Finding] = []
        self._doubts: dict[str, float] = {}
        self._looked_s: float | None = None
        self._answered_s: float | None = None

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(min(LOOK_MAX_S, self._bound_s / LOOKS))
            await self.look()

    async def look(self) -> None:
        """Take one sample of everything; end the worker where it cannot go on."""
        assignment = self._worker.assignment
        ends, folded = await self._ask()
        if self._worker.assignment != assignment:
            return  # answers about partitions that were lost meanwhile
        self._vitals = {
            sample.partition: observe(self._vitals.get(sample.partition), sample)
            for sample in self._samples(ends, folded)
        }
        found = [
            finding
            for vital in self._vitals.values()
            for finding in findings(vital, bound_s=self._bound_s)
        ]
        self._found = sorted(found, key=lambda finding: -finding.share)
        self._count_doubts(self._time.monotonic())
        self._measure()
        for reason in self.reasons():
            self._fatal(FatalError(f"{reason}: the worker cannot go on"))
            return

    # -- looking --------------------------------------------------------------------------------

    async def _ask(self) -> tuple[dict[TP, int], dict[int, int]]:
        """Where the logs end, and how far ledgers were read of which compaction took the last records.

        Nothing where the brokers do not answer: then nobody is behind, as far as we know.
        """
        tps = [TP(self._ledger, index) for index in self._worker.taking]
        tps += self._worker.feeder.lanes
        if not tps:
            return {}, {}
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._check_incarnation()
                ends = await self._tail.ends(tps)
                # One that came to lead since was not asked for.
                folded = {
                    index: await self._tail.read_position(self._ledger, index)
                    for index, partition in self._worker.partitions.items()
                    if partition.leads
                    and partition.store.next < ends.get(TP(self._ledger, index), 0)
                }
        except (KafkaError, TimeoutError) as error:
            log.warning("brokers.silent", error=type(error).__name__)
            return {}, {}
        self._answered_s = self._time.monotonic()
        return ends, folded

    async def _check_incarnation(self) -> None:
        known = self._worker.restorer.incarnation
        if known and await self._tail.incarnation(self._ledger) != known:
            self._fatal(
                FatalError(
                    f"the topic {self._ledger} was made anew while it was in use: what was folded is"
                    " another log's; the next start rebuilds it"
                )
            )

    def _samples(self, ends: dict[TP, int], folded: dict[int, int]) -> Iterator[Sample]:
        worker, now_s = self._worker, self._time.monotonic()
        lanes: dict[int, list[tuple[TP, Lane]]] = {index: [] for index in worker.taking}
        for tp, lane in worker.feeder.lanes.items():
            lanes[tp.partition].append((tp, lane))
        for index, own in lanes.items():
            partition = worker.partitions.get(index)
            lease_ms = self._longest_lease_ms()
            if partition is not None:
                lease_ms = max(lease_ms, partition.foreign.longest_lease_ms)
            yield Sample(
                at_s=now_s,
                partition=index,
                assignment=worker.assignment,
                leads=partition is not None and partition.leads,
                restored=worker.restorer.rows,
                folded=max(folded.get(index, 0), partition.store.next if partition else 0),
                end=ends.get(TP(self._ledger, index)),
                lanes=tuple(
                    self._sample_lane(tp, lane, ends.get(tp), LEASES * lease_ms / 1000)
                    for tp, lane in own
                ),
            )

    def _sample_lane(self, tp: TP, lane: Lane, end: int | None, patience_s: float) -> LaneSample:
        oldest = lane.acks.oldest
        return LaneSample(
            topic=tp.topic,
            position=self._consuming.fetched_to(tp),
            end=end,
            has_room=tp in self._worker.feeder.wanted,
            oldest=oldest,
            may_wait=oldest is not None and self._waits(tp.topic, lane, oldest),
            committed=lane.acks.committed,
            is_due=lane.acks.committable() is not None,
            patience_s=patience_s,
        )

    def _count_doubts(self, now_s: float) -> None:
        """Since when each doubt lasts; time in which we were frozen does not count."""
        step_s = 0.0
        if self._looked_s is not None:
            step_s = min(now_s - self._looked_s, 2 * LOOK_MAX_S)
        self._looked_s = now_s
        known = self._doubts
        self._doubts = {
            doubt: known[doubt] + step_s if doubt in known else 0.0
            for doubt in self._consuming.doubts()
        }

    def _measure(self) -> None:
        lags = [
            vital.last.end - vital.last.folded
            for vital in self._vitals.values()
            if vital.last.end is not None
        ]
        self._metrics.ledger_lag.set(max([0, *lags]))
        self._metrics.oldest.set(max([0.0, *(lane.oldest_s for lane in self._lanes())]))
        standing = [finding.what for finding in self._found]
        for what in Standstill:
            self._metrics.standing.labels(what=what.value).set(standing.count(what))

    def _lanes(self) -> Iterable[LaneVital]:
        return (lane for vital in self._vitals.values() for lane in vital.lanes.values())

    # -- judging --------------------------------------------------------------------------------

    def reasons(self) -> list[str]:
        """Why the worker cannot go on; empty while it can."""
        ailment = self._consuming.ailment()
        told = [] if ailment is None else [ailment]
        told += [
            f"{doubt} for {seconds:.0f} s"
            for doubt, seconds in self._doubts.items()
            if seconds >= self._bound_s
        ]
        return told + [str(finding) for finding in self._found if finding.share >= 1.0]

    def unready(self) -> list[str]:
        """Why the worker is not ready: one line per reason, empty when it is."""
        worker = self._worker
        if not worker.taking:
            return ["no partition is assigned yet"]
        led = {p.index for p in worker.partitions.values() if p.leads}
        told = [f"partition {index} is not led yet" for index in sorted(worker.taking - led)]
        told += [str(f) for f in self._found if f.what is not Standstill.NOT_LED]
        silent_s = self._time.monotonic() - (self._answered_s or self._time.monotonic())
        if silent_s >= self._bound_s / 2:
            told.append(f"the brokers did not say where the logs end for {silent_s:.0f} s")
        return told

    def partitions(self) -> list[dict[str, Any]]:
        """Each assigned partition, for people: numbers only."""
        return [
            _shown(vital, self._worker.feeder.gaps[index])
            for index, vital in sorted(self._vitals.items())
            if index in self._worker.taking
        ]


def _shown(vital: Vital, gaps: int) -> dict[str, Any]:
    last = vital.last
    lanes = vital.lanes.values()
    return {
        "partition": last.partition,
        "led": last.leads,
        "not_led_s": round(vital.not_led_s, 1),
        "ledger_lag": None if last.end is None else max(0, last.end - last.folded),
        "tail_stands_s": round(vital.tail_s, 1),
        "oldest_unsettled_s": round(max((lane.oldest_s for lane in lanes), default=0.0), 1),
        "fetch_stands_s": round(max((lane.fetch_s for lane in lanes), default=0.0), 1),
        "commit_stands_s": round(max((lane.commit_s for lane in lanes), default=0.0), 1),
        "gaps": gaps,
    }
