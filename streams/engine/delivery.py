"""One delivery's way from trigger to follow-up: ledger.md's `on_trigger`, step for step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Protocol

import structlog
from msgspec.structs import replace

from streams.edge.failpoint import failpoint
from streams.engine.claim import Claim
from streams.engine.gate import Gate, Slot, StepAside
from streams.engine.ports import Time
from streams.engine.trigger import Trigger
from streams.model.activity import Activity, Recipient
from streams.model.ledger import FailurePhase, Kind, Phase, Row
from streams.model.policy import MARGIN_MS, Policy
from streams.model.target import Target
from streams.model.verdict import Judgement, Verdict
from streams.rules.decide import (
    CODE_EXPIRED,
    NOT_CALLED,
    ClaimAsked,
    Fresh,
    Judged,
    Turned,
    decide,
)
from streams.rules.pacing import PARK_MS, Aside, asks_to_wait, counted_from, is_there

log = structlog.get_logger(__name__)


PARKED: Final = "target_disabled"
"""Why a delivery of a disabled target stays away."""


class Caller(Protocol):
    """Makes one call and judges it."""

    async def call(self, target: Target, activity: Activity, row: Row) -> Judgement:
        """Call `target` once; never raises for what the world does."""


class Targets(Protocol):
    """Knows the targets."""

    async def find(self, tenant: str, recipient: Recipient) -> Target | Turned | Aside:
        """The target, or why there is none to call, or why it cannot be called now."""

    def policy_of(self, tenant: str, recipient: Recipient) -> Policy:
        """The bounds of deliveries to it, known or not."""


class Outputs(Protocol):
    """What a row owes the world outside the ledger."""

    async def follow_up(self, trigger: Trigger, row: Row | None) -> None:
        """Write the row's current follow-up: retry, dead letter, receipt; done when durable."""

    async def put_aside(self, trigger: Trigger, row: Row, wait_ms: int) -> None:
        """Write a retry record that changes nothing but the time (C-08); done when durable."""

    async def park(self, trigger: Trigger, row: Row, wait_ms: int) -> None:
        """As `put_aside`; the time from now on is no part of its age (C-17)."""


class Telling(Protocol):
    """Learns what happened, for logs and metrics."""

    def attempted(self, trigger: Trigger, row: Row, judgement: Judgement, settled: Row) -> None:
        """An attempt was made and reported."""

    def put_aside(self, trigger: Trigger, reason: str, wait_ms: int) -> None:
        """A delivery stepped aside."""

    def adopted(self, trigger: Trigger, judgement: Judgement) -> None:
        """A foreign claim was settled."""


class _Step(Enum):
    SETTLED = auto()
    """The row says what comes next: write its follow-up."""
    ASIDE = auto()
    """A retry record carries the delivery on; nothing else is owed."""
    AGAIN = auto()
    """Something changed: look anew."""


_SETTLED: Final = _Step.SETTLED
_ASIDE: Final = _Step.ASIDE
_AGAIN: Final = _Step.AGAIN
_CLAIMED: Final = Phase.CLAIMED
_DEAD: Final = Phase.DEAD


def _tell_nobody() -> None:
    """Nobody waits for a place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliverer:
    """Moves deliveries. Knows no Kafka and no HTTP: the simulation drives this very code."""

    targets: Targets
    gate: Gate
    caller: Caller
    outputs: Outputs
    telling: Telling
    time: Time

    async def on_trigger(
        self, trigger: Trigger, on_settled: Callable[[], None] = _tell_nobody
    ) -> bool:
        """Do what the trigger asks for.

        Args:
            on_settled: Called once the ledger holds what became of it, before its follow-up is written:
                nothing is called any more.

        Returns:
            True when its record needs nothing more of this delivery; False when it must not be
            acknowledged: the assignment is over and the record comes again to the next owner.
        """
        partition = trigger.partition
        while partition.assignment == trigger.assignment and not partition.closing:
            if not partition.leads:
                await partition.until_led(trigger.assignment)
                continue
            if not partition.locks.take(trigger.key):
                await partition.locks.acquire(trigger.key)
            try:
                step = await self._step(trigger)
                if step is _SETTLED:
                    on_settled()
                    await self.outputs.follow_up(trigger, partition.row(trigger.key))
            finally:
                partition.locks.release(trigger.key)
            if step is not _AGAIN:
                return partition.assignment == trigger.assignment
        return False

    async def _step(self, trigger: Trigger) -> _Step:
        """Under the delivery's lock, take the one step that its row calls for."""
        partition = trigger.partition
        row = partition.row(trigger.key)
        if row is not None and row.phase is _CLAIMED:
            return await self._adopt(trigger, row)
        if self._may_claim(trigger, row):
            return await self._attempt(trigger, row)
        # Stale or a duplicate: only on a fresh view may it be dropped (rule 7).
        is_fresh = await partition.barrier() and partition.row(trigger.key) == row
        if is_fresh and not self._may_claim(trigger, row):
            return _SETTLED
        return _AGAIN

    @staticmethod
    def _may_claim(trigger: Trigger, row: Row | None) -> bool:
        """Whether the trigger asks for an attempt, given the row.

        Without a row a delivery was never claimed, or it was settled and forgotten since its record was
        read: then its activity is not known either, and it must not be sent again (D-006).
        """
        if not trigger.wants(row):
            return False
        return row is not None or trigger.partition.knows(trigger.carried.activity.key)

    async def _adopt(self, trigger: Trigger, row: Row) -> _Step:
        """Settle a claim that no task of ours holds, then look anew."""
        judgement = await trigger.partition.adopt(
            trigger.key, row, lambda seen: self._judge(row, seen, trigger, row.idempotent)
        )
        if judgement is not None:
            self.telling.adopted(trigger, judgement)
        return _AGAIN

    async def _attempt(self, trigger: Trigger, row: Row | None) -> _Step:
        """Claim, call, report; or turn away; or step aside."""
        partition = trigger.partition
        base = (
            row
            or Fresh(
                delivery_id=trigger.delivery_id,
                target=trigger.recipient.key,
                admitted_ms=trigger.admitted_ms,
            ).row()
        )
        activity = trigger.carried.activity
        target = trigger.turned or await self.targets.find(activity.tenant, trigger.recipient)
        if not self._still_stands(trigger, row):
            return _AGAIN
        if isinstance(target, Turned):
            return await self._turn_away(trigger, base, target)
        if trigger.parked_ms:
            base = replace(base, admitted_ms=counted_from(base.admitted_ms, trigger.parked_ms))
        policy = self._policy_for(trigger, target)
        if self.time.now_ms() > base.admitted_ms + policy.max_age_ms:
            return await self._turn_away(trigger, base, Turned(FailurePhase.CLAIM, CODE_EXPIRED))
        slot = await self._come_to(trigger, target, policy)
        if isinstance(slot, StepAside):
            return await self._stay_away(trigger, base, slot, policy)
        assert isinstance(target, Target), "nothing else gives a slot"
        if not self._still_stands(trigger, row):
            slot.leave(answered=None)
            return _AGAIN
        claim, judgement = await self._claim_and_call(trigger, base, target, slot)
        if claim is None:
            return _AGAIN
        settled = self._judge(claim.row, judgement, trigger, target.idempotent, target.policy)
        if not await partition.settle(claim, settled, judgement):
            return _AGAIN
        self.telling.attempted(trigger, claim.row, judgement, settled)
        return _SETTLED

    async def _come_to(
        self, trigger: Trigger, target: Target | Aside, policy: Policy
    ) -> Slot | StepAside:
        """A slot of the target, or how long to stay away from it, and why."""
        if isinstance(target, Aside):
            door = f"{trigger.carried.activity.tenant}\x00{trigger.recipient.key}"
            return self.gate.keep_away(door, policy.max_connections, target.reason)
        if not target.enabled:
            return StepAside(PARK_MS, PARKED)
        door = f"{target.tenant}\x00{target.key}"
        return await self.gate.enter(door, policy.max_connections, target.rate_per_s)

    async def _stay_away(
        self, trigger: Trigger, base: Row, away: StepAside, policy: Policy
    ) -> _Step:
        """Carry the delivery on in a retry record, without a claim and without spending an attempt."""
        if away.reason == PARKED:
            self.telling.put_aside(trigger, away.reason, away.wait_ms)
            await self.outputs.park(trigger, base, away.wait_ms)
        else:
            # No longer than it may be unsettled: staying away must not put its end off (C-17).
            left_ms = base.admitted_ms + policy.max_age_ms + 1 - self.time.now_ms()
            wait_ms = max(0, min(away.wait_ms, left_ms))
            self.telling.put_aside(trigger, away.reason, wait_ms)
            await self.outputs.put_aside(trigger, base, wait_ms)
        await trigger.partition.until_admitted(trigger.carried.activity.key)
        return _ASIDE

    def _policy_for(self, trigger: Trigger, target: Target | Aside) -> Policy:
        if isinstance(target, Target):
            return target.policy
        return self.targets.policy_of(trigger.carried.activity.tenant, trigger.recipient)

    @staticmethod
    def _still_stands(trigger: Trigger, row: Row | None) -> bool:
        """Whether what was decided on still is so, after a wait.

        A stray OWNER may have led meanwhile, and its claims and reports are in the rows by now: a claim
        made on the old row would be valid, and a second call of what was already sent (rule 3).
        """
        partition = trigger.partition
        return partition.holds(trigger.assignment) and partition.row(trigger.key) == row

    async def _claim_and_call(
        self, trigger: Trigger, base: Row, target: Target, slot: Slot
    ) -> tuple[Claim | None, Judgement]:
        """Hold the slot over claim and call: a claim made before the slot would age while it waits."""
        answered: bool | None = None
        asked_ms: int | None = None
        try:
            asked = decide(
                base,
                ClaimAsked(self.time.token()),
                now_ms=self.time.now_ms(),
                jitter=0.0,
                policy=target.policy,
                idempotent=target.idempotent,
            )
            if asked is None:
                return None, NOT_CALLED
            if asked.phase is _DEAD:
                await trigger.partition.write(Kind.REPORT, trigger.key, asked)
                return None, NOT_CALLED
            claim = await trigger.partition.claim(trigger.key, asked)
            if claim is None or self._is_too_late(claim, target.policy):
                return claim, NOT_CALLED
            slot.call_starts()
            failpoint("before_call")
            judgement = await self.caller.call(target, trigger.carried.activity, claim.row)
            failpoint("called")
            answered = is_there(judgement)
            asked_ms = asks_to_wait(judgement, self.time.now_ms())
            return claim, judgement
        finally:
            slot.leave(answered=answered, asked_ms=asked_ms)

    def _is_too_late(self, claim: Claim, policy: Policy) -> bool:
        """Rule 3: a call started now could outlive the lease."""
        spare_ms = policy.lease_ms - policy.timeout_ms - MARGIN_MS
        waited_ms = (self.time.monotonic() - claim.started) * 1000
        return waited_ms > spare_ms + MARGIN_MS / 2

    async def _turn_away(self, trigger: Trigger, base: Row, why: Turned) -> _Step:
        dead = decide(
            base,
            why,
            now_ms=self.time.now_ms(),
            jitter=0.0,
            policy=self.targets.policy_of(trigger.carried.activity.tenant, trigger.recipient),
            idempotent=False,
        )
        assert dead is not None, "a delivery that may claim may also be turned away"
        if not await trigger.partition.write(Kind.REPORT, trigger.key, dead):
            return _AGAIN
        refused = Judgement(verdict=Verdict.REFUSED, code=why.code, phase=why.phase)
        self.telling.attempted(trigger, base, refused, dead)
        return _SETTLED

    def _judge(
        self,
        row: Row,
        judgement: Judgement,
        trigger: Trigger,
        idempotent: bool,
        policy: Policy | None = None,
    ) -> Row:
        settled = decide(
            row,
            Judged(judgement),
            now_ms=self.time.now_ms(),
            jitter=self.time.jitter(),
            policy=policy
            or self.targets.policy_of(trigger.carried.activity.tenant, trigger.recipient),
            idempotent=idempotent,
        )
        assert settled is not None, "a claimed delivery can always be judged"
        return settled
