"""Targets in memory: what they answer is drawn once for each attempt, whoever makes it and when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from streams.model.activity import Activity, Recipient
from streams.model.ledger import FailurePhase, Row
from streams.model.observation import Fault, Observation, Stage
from streams.model.policy import Policy
from streams.model.target import Target
from streams.model.verdict import Judgement, Verdict
from streams.rules.decide import Turned
from streams.rules.verdict import judge

if TYPE_CHECKING:
    from tests.sim.machine import Machine

POLICY = Policy(
    name="simulated",
    max_attempts=3,
    first_delay_ms=500,
    max_delay_ms=2_000,
    max_elapsed_ms=120_000,
    timeout_ms=1_000,
    lease_ms=4_000,
    max_age_ms=600_000,
    jitter_ms=200,
    max_connections=1,
    max_idle=1,
)

LONGEST_WAIT_MS = 2_000 + 200 + 1_000
"""Between two attempts: the longest delay, all of the jitter, what an answer may ask for."""

ANSWERS: dict[str, Observation] = {
    "200": Observation(status=200),
    "400": Observation(status=400),
    "429": Observation(status=429, retry_after=("1",)),
    "500": Observation(status=500),
    "503": Observation(status=503, retry_after=("1",)),
    "refused": Observation(fault=Fault(stage=Stage.CONNECT, code="connect_refused")),
    "reset": Observation(fault=Fault(stage=Stage.READ, code="read_reset")),
    "hang": Observation(fault=Fault(stage=Stage.READ, code="read_timeout")),
}


@dataclass(slots=True)
class Call:
    """One call as its target saw it."""

    at: float
    machine: str
    key: bytes
    row: Row
    answer: str
    life: int = 0
    """How often its delivery had been forgotten when it was claimed."""
    is_over: bool = False
    verdict: Verdict | None = None

    @property
    def may_have_happened(self) -> bool:
        """Whether the target may have acted on it."""
        return self.verdict in (None, Verdict.SENT, Verdict.AMBIGUOUS)


@dataclass
class SimTargets:
    """`delivery.Targets`: a name that starts with `idem` recognises a repeated id."""

    rng: Random
    policy: Policy = POLICY
    slow_look_ups: float = 0.0
    """How many of the look-ups take a while."""
    disabled: set[str] = field(default_factory=set)
    """Targets whose deliveries are parked (C-17)."""
    unknown: set[str] = field(default_factory=set)
    """Targets that nobody has registered, or not any more."""

    async def find(self, tenant: str, recipient: Recipient) -> Target | Turned:
        if self.slow_look_ups and self.rng.random() < self.slow_look_ups:
            await asyncio.sleep(self.rng.uniform(0.1, 3.0))
        key = recipient.key
        if key in self.unknown:
            return Turned(FailurePhase.ADMISSION, "unknown_target")
        return Target(
            key=key,
            tenant=tenant,
            url=f"https://{key}.example/",
            idempotent=key.startswith("idem"),
            policy=self.policy,
            enabled=key not in self.disabled,
        )

    def policy_of(self, tenant: str, recipient: Recipient) -> Policy:
        return self.policy


@dataclass
class Script:
    """What targets answer."""

    draw: Callable[[str, Row], tuple[str, float]]
    """Target and claimed row to answer and duration in seconds."""
    on_call: Callable[[Call], None]
    calls: list[Call] = field(default_factory=list)


class SimCaller:
    """`delivery.Caller` of one machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    async def call(self, target: Target, activity: Activity, row: Row) -> Judgement:
        script: Script = self._machine.script
        answer, lasts_s = script.draw(target.key, row)
        call = Call(
            self._machine.broker.loop.time(),
            self._machine.name,
            activity.key + b"\x00" + target.key.encode(),
            row,
            answer,
        )
        script.calls.append(call)
        script.on_call(call)
        await asyncio.sleep(lasts_s)
        judgement = judge(ANSWERS[answer], target)
        call.is_over, call.verdict = True, judgement.verdict
        return judgement
