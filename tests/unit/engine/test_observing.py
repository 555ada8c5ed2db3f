"""The worker's history: one entry for each attempt, durable before its record is acknowledged."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from streams.engine.observing import History, KafkaHistory, ObservingOutputs, ObservingTeller
from streams.model.activity import Recipient
from streams.model.ledger import FailurePhase, Phase
from streams.model.observation import Stage
from streams.model.verdict import Judgement, Verdict
from streams.wire.observations import decode_observation
from tests.unit.engine.fakes import Time, activity, claimed, until

SENT = Judgement(
    verdict=Verdict.SENT, code="http_202", status=202, provider_message_id="m1", duration_ms=7
)
RESET = Judgement(
    verdict=Verdict.AMBIGUOUS, code="read_reset", phase=FailurePhase.AMBIGUOUS_POST_CALL
)


@dataclass
class Log:
    """`Appender` that is done when it is told to be."""

    appended: list[tuple[str, int, Any]] = field(default_factory=list)
    headers: list[Any] = field(default_factory=list)
    futures: list[asyncio.Future[int]] = field(default_factory=list)

    def append(self, topic, partition, *, key, value, headers):
        self.appended.append((topic, partition, decode_observation(value)))
        self.headers.append((key, headers))
        self.futures.append(asyncio.get_running_loop().create_future())
        return self.futures[-1]


@dataclass
class Plain:
    """`delivery.Telling` and `delivery.Outputs` as they are without a history."""

    told: list[str] = field(default_factory=list)

    def attempted(self, *_):
        self.told.append("attempted")

    def adopted(self, *_):
        self.told.append("adopted")

    def put_aside(self, *_):
        self.told.append("put_aside")

    async def follow_up(self, *_):
        self.told.append("follow_up")

    async def park(self, *_):
        self.told.append("park")


class Desk:
    def __init__(self, recipient: Recipient) -> None:
        self.log, self.plain = Log(), Plain()
        topic = KafkaHistory(cast("Any", self.log), "outbox.observations")
        history = History(topic, worker="w1", time=Time())
        self.teller = ObservingTeller(self.plain, history)
        self.outputs = ObservingOutputs(self.plain, history)
        self.row = claimed(attempts=2)
        self.trigger: Any = SimpleNamespace(
            partition=SimpleNamespace(index=5, row=lambda _: self.settled),
            key=b"key",
            delivery_id="dlv_1",
            recipient=recipient,
            carried=SimpleNamespace(activity=activity()),
        )

    @property
    def settled(self):
        return replace(self.row, phase=Phase.SENT)

    @property
    def seen(self):
        return [seen for _, _, seen in self.log.appended]


@pytest.fixture
def desk():
    return Desk(Recipient(target="crm"))


async def test_an_attempt_is_written_with_what_it_saw(desk):
    """
    D-054: to the partition of its activity, under its delivery's id.
    """
    desk.teller.attempted(desk.trigger, desk.row, SENT, desk.settled)

    [(topic, partition, seen)] = desk.log.appended
    assert ("outbox.observations", 5, ["attempted"]) == (topic, partition, desk.plain.told)
    assert [(b"dlv_1", [("message-id", b"m1")])] == desk.log.headers
    assert ("urn:1", "default", "dlv_1", "crm", 1, 2, "attempt", 202, 7, "sent", "w1", "m1") == (
        seen.activity_id,
        seen.tenant,
        seen.delivery_id,
        seen.target,
        seen.generation,
        seen.attempt,
        seen.source,
        seen.status,
        seen.duration_ms,
        seen.phase,
        seen.worker,
        seen.provider_message_id,
    )


async def test_a_fault_is_written_with_its_stage(desk):
    """
    D-009: a reader need not know our table of codes.
    """
    desk.teller.attempted(desk.trigger, desk.row, RESET, replace(desk.row, phase=Phase.WAITING))

    [seen] = desk.seen
    assert (Stage.READ, FailurePhase.AMBIGUOUS_POST_CALL, "waiting", None) == (
        seen.stage,
        seen.failure_phase,
        seen.phase,
        seen.provider_message_id,
    )
    assert [(b"dlv_1", [])] == desk.log.headers


async def test_an_end_without_a_call_is_no_attempt():
    """
    C-17: `expired` and `unknown_target` come from a decision.
    """
    desk = Desk(Recipient(target="crm"))
    fresh = replace(desk.row, phase=Phase.QUEUED)
    desk.teller.attempted(desk.trigger, fresh, RESET, replace(desk.row, phase=Phase.DEAD))

    assert ["decision"] == [seen.source for seen in desk.seen]


async def test_an_attempt_of_a_worker_that_is_gone_is_written_by_who_settles_it(desk):
    """
    C-07: it died before it could; the history has no gap.
    """
    desk.teller.adopted(desk.trigger, RESET)

    assert [("adopted", 2)] == [(seen.source, seen.attempt) for seen in desk.seen]
    assert ["adopted"] == desk.plain.told


async def test_of_an_inbox_no_url_is_written():
    """
    F07, D-043: it can itself be the credential, and the history needs it for nothing.
    """
    desk = Desk(Recipient(inbox="https://b.example/hooks/FAKEEX0001"))
    desk.teller.attempted(desk.trigger, desk.row, SENT, desk.settled)

    assert "FAKEEX" not in repr(desk.seen)


async def test_a_follow_up_is_done_when_the_history_is_durable(desk):
    """
    A record is acknowledged after it: a history that is lost with every crash would be none.
    """
    desk.teller.attempted(desk.trigger, desk.row, SENT, desk.settled)
    following = asyncio.ensure_future(desk.outputs.follow_up(desk.trigger, desk.settled))
    await until(lambda: "follow_up" in desk.plain.told)
    await asyncio.sleep(0)
    waits = not following.done()
    desk.log.futures[0].set_result(0)
    await following

    assert waits


async def test_a_follow_up_without_an_attempt_waits_for_nothing(desk):
    """
    A stale trigger writes its row's follow-up again (rule 8) and adds nothing to the history.
    """
    await desk.outputs.follow_up(desk.trigger, desk.settled)

    assert [] == desk.log.appended


async def test_what_steps_aside_is_told_and_not_written(desk):
    """
    C-08: no attempt, no observation: a target that is down would fill the topic.
    """
    desk.teller.put_aside(desk.trigger, "target_down", 1)
    await desk.outputs.park(desk.trigger, desk.row, 1)

    assert (["put_aside", "park"], []) == (desk.plain.told, desk.log.appended)
