"""A delivery whose target is disabled, or cannot be signed for: stays away, and ends in time all the same."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from streams.engine.claim import Claim
from streams.engine.delivery import Deliverer
from streams.engine.gate import Gate
from streams.engine.locks import KeyedLocks
from streams.engine.trigger import Carried, Trigger
from streams.model.activity import Recipient
from streams.model.ledger import Phase, Row
from streams.model.policy import NOTIFICATION
from streams.model.target import Target
from streams.model.verdict import Judgement, Verdict
from streams.rules.pacing import PARK_MS, PARKED_MAX_MS, Aside
from tests.unit.engine.fakes import Time, activity

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
TARGET = Target(
    key="crm",
    tenant="default",
    url="https://crm.example/",
    idempotent=False,
    policy=NOTIFICATION,
)
SENT = Judgement(verdict=Verdict.SENT, code="http_200", status=200)


@dataclass
class World:
    """Everything around one delivery: its partition, its target, what is written and called."""

    found: Any
    index: int = 0
    assignment: int = 1
    leads: bool = True
    closing: bool = False
    locks: KeyedLocks = field(default_factory=KeyedLocks)
    stored: Row | None = None
    called: list[Row] = field(default_factory=list)
    aside: list[tuple[str, int]] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    # Partition
    def row(self, key):
        return self.stored

    def holds(self, assignment):
        return True

    def knows(self, activity_key):
        return True

    async def until_admitted(self, key):
        """It was long ago."""

    async def claim(self, key, row):
        self.stored = row
        return Claim(key, row, 1, 1_000.0)

    async def settle(self, claim, row, judgement):
        self.stored = row
        return True

    async def write(self, kind, key, row):
        self.stored = row
        return True

    # Targets
    async def find(self, tenant, recipient):
        return self.found

    def policy_of(self, tenant, recipient):
        return NOTIFICATION

    # Caller
    async def call(self, target, activity, row):
        self.called.append(row)
        return SENT

    # Outputs
    async def follow_up(self, trigger, row):
        """The row says it."""

    async def put_aside(self, trigger, row, wait_ms=None):
        self.aside.append(("aside", wait_ms))

    async def park(self, trigger, row, wait_ms):
        self.aside.append(("parked", wait_ms))


class Telling:
    def __init__(self, told):
        self.told = told

    def put_aside(self, trigger, reason, wait_ms):
        self.told.append(reason)

    def attempted(self, *_):
        """Noted by the caller."""


async def deliver(world, *, age_ms, parked_ms=0):
    """Let a retry of an activity of this age come up; give the row after it."""
    time = Time()
    any_ = cast("Any", world)
    deliverer = Deliverer(
        targets=any_,
        gate=Gate(time),
        caller=any_,
        outputs=any_,
        telling=cast("Any", Telling(world.told)),
        time=time,
    )
    owed = activity()
    trigger = Trigger(
        partition=any_,
        assignment=1,
        key=b"k",
        delivery_id="dlv_1",
        carried=Carried(activity=owed, value=b"", headers=()),
        recipient=Recipient(target="crm"),
        fence=-1,
        admitted_ms=time.now_ms() - age_ms,
        parked_ms=parked_ms,
    )
    assert await deliverer.on_trigger(trigger)
    return world.stored


def disabled():
    return World(Target(**{f: getattr(TARGET, f) for f in Target.__slots__} | {"enabled": False}))


async def test_a_delivery_of_a_disabled_target_is_parked_without_a_claim():
    """
    Spec §3: parked, not lost, and no attempt is spent.
    """
    world = disabled()

    assert await deliver(world, age_ms=1_000) is None
    assert [("parked", PARK_MS)] == world.aside
    assert ["target_disabled"] == world.told
    assert [] == world.called


@pytest.mark.parametrize(
    ("age_ms", "parked_ms", "is_called"),
    [
        (30 * 60_000, 0, True),
        (2 * HOUR_MS, 0, False),
        (2 * DAY_MS, 2 * DAY_MS - 1_000, True),
        (2 * DAY_MS, DAY_MS, False),
        (8 * DAY_MS, 8 * DAY_MS, False),
        (7 * DAY_MS + 1_000, 7 * DAY_MS, True),
    ],
)
async def test_parked_time_of_at_most_seven_days_is_no_age(age_ms, parked_ms, is_called):
    """
    C-17: what was parked is called once its target is back; what waited otherwise is expired.
    """
    world = World(TARGET)

    row = await deliver(world, age_ms=age_ms, parked_ms=parked_ms)

    assert is_called == bool(world.called)
    expected = (Phase.SENT, "http_200") if is_called else (Phase.DEAD, "expired")
    assert expected == (row.phase, row.code)


async def test_a_claim_remembers_the_parked_time():
    """
    C-17: the retries after it count from there, with no header to say so.
    """
    world = World(TARGET)
    row = await deliver(world, age_ms=2 * DAY_MS, parked_ms=2 * DAY_MS - 1_000)

    assert Time().now_ms() - 1_000 == row.admitted_ms


async def test_a_parked_delivery_ends_when_seven_days_and_its_age_are_over():
    """
    C-17: parking cannot go on for ever.
    """
    world = disabled()
    over_ms = PARKED_MAX_MS + NOTIFICATION.max_age_ms + 1
    row = await deliver(world, age_ms=over_ms, parked_ms=over_ms)

    assert (Phase.DEAD, "expired", 0) == (row.phase, row.code, row.attempts)
    assert [] == world.aside


async def test_what_cannot_be_signed_steps_aside_and_ages():
    """
    Issue 5, C-09: never unsigned; C-17: deferred time counts.
    """
    world = World(Aside("secret_unavailable"))

    assert await deliver(world, age_ms=1_000) is None
    assert [("aside", 5_000)] == world.aside
    assert ["secret_unavailable"] == world.told

    row = await deliver(world, age_ms=2 * HOUR_MS)
    assert (Phase.DEAD, "expired") == (row.phase, row.code)
    assert [] == world.called
