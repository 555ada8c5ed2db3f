"""One delivery's way from trigger to follow-up, with fakes at the ports (ledger.md, `on_trigger`)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from streams.engine.delivery import Deliverer
from streams.engine.gate import Gate
from streams.engine.trigger import Carried, Trigger
from streams.model.activity import Activity, Recipient
from streams.model.ledger import FailurePhase, Kind, Phase, Row
from streams.model.target import Target
from streams.model.values import replace
from streams.model.verdict import Judgement, Verdict
from streams.rules.decide import Turned
from streams.wire.commands import LateReport
from tests.sim.broker import BASE_MS
from tests.sim.loop import run_virtual
from tests.sim.machine import Quiet
from tests.sim.target import POLICY
from tests.unit.engine.protocol import ACTIVITY_KEY, KEY, Log, Member, activity_row, row

SENT = Judgement(verdict=Verdict.SENT, code="http_200", status=200)
BUSY = Judgement(
    verdict=Verdict.RETRY, code="http_503", status=503, phase=FailurePhase.REJECTED_TRANSIENT
)
RESET = Judgement(
    verdict=Verdict.AMBIGUOUS, code="read_reset", phase=FailurePhase.AMBIGUOUS_POST_CALL
)


@dataclass
class World:
    """Everything around one deliverer: what it calls, finds, and writes."""

    member: Member
    answer: Judgement = SENT
    lasts_s: float = 0.0
    target: Target | Turned = field(
        default_factory=lambda: Target(
            key="crm", tenant="default", url="https://crm/", idempotent=False, policy=POLICY
        )
    )
    calls: list[Row] = field(default_factory=list)
    wrote: list[tuple[str, Any]] = field(default_factory=list)
    on_call: Callable[[], Awaitable[None]] | None = None

    def __post_init__(self) -> None:
        quiet: Any = Quiet()
        self.gate = Gate(self.member.time)
        self.deliverer = Deliverer(
            targets=self,
            gate=self.gate,
            caller=self,
            outputs=self,
            telling=quiet,
            time=self.member.time,
        )

    async def find(self, tenant: str, recipient: Recipient) -> Target | Turned:
        return self.target

    def policy_of(self, tenant: str, recipient: Recipient):
        return POLICY

    async def call(self, target: Target, activity: Activity, claimed: Row) -> Judgement:
        self.calls.append(claimed)
        if self.on_call is not None:
            await self.on_call()
        await asyncio.sleep(self.lasts_s)
        return self.answer

    async def follow_up(self, trigger: Trigger, settled: Row | None) -> None:
        self.wrote.append(("follow-up", settled))

    async def put_aside(self, trigger: Trigger, base: Row, wait_ms: int) -> None:
        self.wrote.append(("aside", base))

    async def park(self, trigger: Trigger, base: Row, wait_ms: int) -> None:
        self.wrote.append(("parked", base))

    def trigger(self, **changes: Any) -> Trigger:
        activity = Activity(
            activity_id="urn:1",
            tenant="default",
            actor="",
            recipients=(Recipient(target="crm"),),
            body=b"{}",
            content_type="application/json",
        )
        made = Trigger(
            partition=self.member.partition,
            assignment=1,
            key=KEY,
            delivery_id="dlv_1",
            carried=Carried(activity=activity, value=b"{}", headers=()),
            recipient=activity.recipients[0],
            admitted_ms=BASE_MS,
        )
        return replace(made, **changes)

    async def handle(self, **changes: Any) -> bool:
        """Hand the deliverer a trigger, and let the log and the tail do their work beside it."""
        return await self.finish(self.deliverer.on_trigger(self.trigger(**changes)))

    async def finish(self, handling: Coroutine[Any, Any, bool]) -> bool:
        """Let the log and the tail do their work until the deliverer is done."""
        running = asyncio.create_task(handling)
        for _ in range(8_000):
            if running.done():
                break
            self.member.land()
            self.member.read()
            await asyncio.sleep(0.001)
        return await running

    async def has(self, kind: Kind, state: Row) -> None:
        """The row as it stands, written by us."""
        writing = asyncio.create_task(self.member.partition.write(kind, KEY, state))
        await self.member.settle_down()
        assert await writing


def with_a_world(scenario: Callable[[World], Awaitable[None]]) -> None:
    """Play a scenario with a worker that leads and knows the activity, in virtual time."""

    async def play() -> None:
        member = Member(Log())
        await member.lead()
        member.partition.admit(ACTIVITY_KEY, activity_row())
        await member.settle_down()
        await scenario(World(member))
        assert [] == member.faults
        assert 0 == len(member.partition.locks)

    run_virtual(play())


def kinds(world: World) -> list[Kind]:
    """What was appended since it leads and the activity is admitted."""
    return [record.kind for record in world.member.log.records[2:]]


# ── An attempt ──


def test_a_new_delivery_is_claimed_called_reported_and_followed_up():
    """D-001..003: in this order, each step durable before the next."""

    async def scenario(world: World) -> None:
        assert await world.handle()

        assert [Kind.CLAIM, Kind.REPORT] == kinds(world)
        assert [(1, 2)] == [(called.attempts, called.fence) for called in world.calls]
        (what, settled) = world.wrote[0]
        assert ("follow-up", Phase.SENT) == (what, settled.phase)
        assert world.member.partition.row(KEY) == settled

    with_a_world(scenario)


def test_it_is_told_that_it_is_settled_once_it_is_reported_and_before_its_follow_up():
    """O-034: its place is the next one's from then on, and not while a call could still be made."""

    async def scenario(world: World) -> None:
        told: list[tuple[list[Kind], int]] = []

        def on_settled() -> None:
            told.append((kinds(world), len(world.wrote)))

        assert await world.finish(world.deliverer.on_trigger(world.trigger(), on_settled))
        assert [([Kind.CLAIM, Kind.REPORT], 0)] == told

    with_a_world(scenario)


def test_it_is_told_nothing_while_the_delivery_goes_on_elsewhere():
    """C-08: what steps aside is not settled."""

    async def scenario(world: World) -> None:
        world.target = replace(world.target, enabled=False)
        told: list[bool] = []
        handling = world.deliverer.on_trigger(world.trigger(), lambda: told.append(True))
        assert await world.finish(handling)
        assert [] == told
        assert ["parked"] == [what for what, _ in world.wrote]

    with_a_world(scenario)


def test_no_call_is_made_before_the_claim_is_folded():
    """D-001: a provider call is a side effect."""

    async def scenario(world: World) -> None:
        running = asyncio.create_task(world.deliverer.on_trigger(world.trigger()))
        await asyncio.sleep(1)
        world.member.land()
        await asyncio.sleep(1)
        assert [] == world.calls

        world.member.read()
        await asyncio.sleep(0)
        await world.handle()
        await running

    with_a_world(scenario)


def test_a_retry_goes_on_where_its_fence_says():
    """Rule 8: the row's own retry claims the next attempt."""

    async def scenario(world: World) -> None:
        await world.has(Kind.REPORT, row(Phase.WAITING, fence=7, admitted_ms=BASE_MS))
        assert await world.handle(fence=7, attempts=1)

        assert [2] == [called.attempts for called in world.calls]

    with_a_world(scenario)


def test_an_answer_that_asks_for_another_try_leaves_it_waiting():
    """O-014: the retry is the row's follow-up, not a loop of ours (O-001)."""

    async def scenario(world: World) -> None:
        world.answer = BUSY
        assert await world.handle()

        assert [Phase.WAITING] == [settled.phase for _, settled in world.wrote]
        assert 1 == len(world.calls)

    with_a_world(scenario)


def test_a_claim_that_came_back_too_late_is_not_called():
    """Rule 3, C-07: a call that began now could outlive the lease; the attempt is spent."""

    async def scenario(world: World) -> None:
        running = asyncio.create_task(world.deliverer.on_trigger(world.trigger()))
        await asyncio.sleep(POLICY.lease_ms / 1000 - POLICY.timeout_ms / 1000)
        assert not running.done()
        assert await world.handle(fence=0)  # lands, reads, and waits behind the lock
        assert await running

        assert [] == world.calls
        settled = world.member.partition.row(KEY)
        assert (Phase.WAITING, "not_called", 1) == (settled.phase, settled.code, settled.attempts)

    with_a_world(scenario)


def test_a_claim_that_came_back_in_time_is_called():
    """The other side of the limit."""

    async def scenario(world: World) -> None:
        running = asyncio.create_task(world.deliverer.on_trigger(world.trigger()))
        await asyncio.sleep(1.5)
        world.member.land()
        world.member.read()
        await asyncio.sleep(0)
        await world.handle()

        assert await running
        assert 1 == len(world.calls)

    with_a_world(scenario)


# ── Not called at all ──


def test_an_unknown_target_is_dead_lettered_without_an_attempt():
    """D-009: with the phase and code that say why."""

    async def scenario(world: World) -> None:
        world.target = Turned(FailurePhase.HYDRATE, "target_unknown")
        assert await world.handle()

        ((_, settled),) = world.wrote
        assert (Phase.DEAD, "target_unknown", 0) == (settled.phase, settled.code, settled.attempts)
        assert [] == world.calls

    with_a_world(scenario)


def test_a_delivery_past_its_maximum_age_is_dead_lettered():
    """C-17: phase `claim`, code `expired`; no slot is waited for."""

    async def scenario(world: World) -> None:
        world.member.time.skew_ms = POLICY.max_age_ms + 10_000
        assert await world.handle()

        ((_, settled),) = world.wrote
        assert (Phase.DEAD, "expired", FailurePhase.CLAIM) == (
            settled.phase,
            settled.code,
            settled.failure_phase,
        )

    with_a_world(scenario)


def test_a_delivery_whose_target_is_down_steps_aside_without_a_claim():
    """C-08, O-033, O-034: no attempt is spent, no row is written, and a retry record carries it on."""

    async def scenario(world: World) -> None:
        for _ in range(10):
            slot = await world.gate.enter("default\x00crm", 1)
            slot.call_starts()
            slot.leave(answered=False)
        assert await world.handle()

        ((what, base),) = world.wrote
        assert ("aside", 0, -1) == (what, base.attempts, base.fence)
        assert [] == kinds(world)

    with_a_world(scenario)


def test_a_delivery_of_a_disabled_target_is_parked():
    """spec §3, 410: other deliveries to it are parked, not lost."""

    async def scenario(world: World) -> None:
        world.target = replace(world.target, enabled=False)
        assert await world.handle()

        assert ["parked"] == [what for what, _ in world.wrote]
        assert [] == world.calls

    with_a_world(scenario)


# ── Stale triggers ──


def test_a_stale_trigger_writes_the_rows_follow_up_again():
    """Rule 8: the crash may have come between the report and its follow-up."""

    async def scenario(world: World) -> None:
        await world.has(Kind.REPORT, row(Phase.DEAD))
        assert await world.handle(fence=0, attempts=0)

        assert [("follow-up", world.member.partition.row(KEY))] == world.wrote
        assert [] == world.calls

    with_a_world(scenario)


def test_a_stale_trigger_is_dropped_on_a_fresh_view_only():
    """Rule 7: the end of the log is asked for after the trigger was fetched."""

    async def scenario(world: World) -> None:
        await world.has(Kind.REPORT, row(Phase.SENT))
        asked = world.member.ledger.end_asked
        assert await world.handle()

        assert asked + 1 == world.member.ledger.end_asked

    with_a_world(scenario)


def test_a_stale_trigger_that_is_not_stale_on_a_fresh_view_is_delivered():
    """Rule 7: B has written the retry and we are behind."""

    async def scenario(world: World) -> None:
        member = world.member
        await world.has(Kind.REPORT, row(Phase.DEAD, fence=1))
        asyncio.create_task(  # noqa: RUF006
            member.partition.write(
                Kind.REDRIVE,
                KEY,
                row(Phase.QUEUED, attempts=0, budget=2, fence=1, admitted_ms=BASE_MS),
            )
        )
        await asyncio.sleep(0)
        member.land()  # in the log, and not yet read
        assert await world.handle()

        assert [2] == [called.budget for called in world.calls]

    with_a_world(scenario)


# ── Foreign claims ──


def test_a_foreign_claim_whose_lease_ends_is_ambiguous_and_never_called_over():
    """Rule 5, C-07, D-011: a target that is not idempotent is not called again."""

    async def scenario(world: World) -> None:
        await world.has(Kind.CLAIM, row(Phase.CLAIMED))
        assert await world.handle()

        ((_, settled),) = world.wrote
        assert (Phase.DEAD, "lease_lost", True) == (
            settled.phase,
            settled.code,
            settled.reconciliation_required,
        )
        assert [] == world.calls

    with_a_world(scenario)


def test_a_foreign_claim_on_an_idempotent_target_is_tried_again_by_its_retry():
    """C-03: by what the claim was made under; settled first, then claimed anew (rule 5)."""

    async def scenario(world: World) -> None:
        claimed = row(idempotent=True, admitted_ms=BASE_MS, first_claim_ms=BASE_MS)
        await world.has(Kind.CLAIM, claimed)
        assert await world.handle()

        ((_, settled),) = world.wrote
        assert (Phase.WAITING, 1) == (settled.phase, settled.attempts)

    with_a_world(scenario)


def test_a_foreign_claim_that_is_reported_late_is_settled_by_that():
    """Rule 4: without waiting the lease out."""

    async def scenario(world: World) -> None:
        await world.has(Kind.CLAIM, row(Phase.CLAIMED))
        report = LateReport(delivery_key=KEY, token=b"0" * 16, judgement=SENT)
        world.member.partition.foreign.heard(report)
        assert await world.handle()

        ((_, settled),) = world.wrote
        assert Phase.SENT is settled.phase
        assert {} == world.member.partition.foreign.late_reports
        assert world.member.time.monotonic() < 1

    with_a_world(scenario)


# ── Lost partitions ──


def test_a_trigger_of_an_assignment_that_is_over_is_not_acknowledged():
    """Rule 9: it comes again to the next owner."""

    async def scenario(world: World) -> None:
        assert not await world.handle(assignment=2)
        assert ([], []) == (world.calls, world.wrote)

    with_a_world(scenario)


def test_a_partition_lost_in_the_call_is_not_acknowledged_and_its_verdict_goes_to_the_owner():
    """Rules 4 and 9: what was called still counts, and the record comes again."""

    async def scenario(world: World) -> None:
        async def lose() -> None:
            world.member.partition.revoke()

        world.on_call = lose
        assert not await world.handle()

        assert [SENT] == [report.judgement for report in world.member.ledger.late]
        assert [] == world.wrote

    with_a_world(scenario)


def test_a_partition_that_came_back_in_the_follow_up_is_not_acknowledged():
    """Rule 9: the acknowledgement belongs to the assignment in which the record was fetched."""

    async def scenario(world: World) -> None:
        async def lose_and_regain(trigger: Trigger, settled: Row | None) -> None:
            world.member.partition.revoke()
            world.member.partition.assign(2)

        object.__setattr__(world, "follow_up", lose_and_regain)
        assert not await world.handle()

    with_a_world(scenario)


def test_a_worker_that_stops_starts_nothing():
    """interface.md §1: what is not claimed yet comes again after the restart."""

    async def scenario(world: World) -> None:
        world.member.partition.close()

        assert not await world.handle()
        assert [] == world.calls

    with_a_world(scenario)


def test_two_triggers_of_one_delivery_make_one_call():
    """O-001: a record that comes twice, both at once: the lock makes the second one stale."""

    async def scenario(world: World) -> None:
        world.lasts_s = 0.1
        first = asyncio.create_task(world.handle())
        await asyncio.sleep(0)
        assert await world.handle()
        assert await first

        assert 1 == len(world.calls)

    with_a_world(scenario)


def test_a_row_that_moved_while_its_slot_was_waited_for_is_looked_at_anew():
    """Rule 3, found by the simulation: a stray owner has sent it meanwhile."""

    async def scenario(world: World) -> None:
        slot = await world.gate.enter("default\x00crm", 1)
        running = asyncio.create_task(world.deliverer.on_trigger(world.trigger()))
        await asyncio.sleep(0.01)
        await world.has(Kind.REPORT, row(Phase.SENT))
        slot.leave(answered=None)
        await world.handle()

        assert await running
        assert [] == world.calls

    with_a_world(scenario)
