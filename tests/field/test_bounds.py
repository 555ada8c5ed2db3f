"""O-005: what one activity can cause at most is stated in docs/bounds.md, and is kept."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from streams.engine.letters import Letters
from streams.engine.telling import ID_BYTES, NAMED_TARGETS
from streams.model.activity import Recipient
from streams.model.faults import fault_of
from streams.model.ledger import Phase, Row
from streams.model.observation import Observation
from streams.model.policy import ACTIVITY, NOTIFICATION
from streams.model.receipt import DeadLetter
from streams.model.values import replace
from streams.rules.triggers import TARGET_BYTES
from streams.topics.catalogue import MAX_MESSAGE_BYTES
from streams.wire.codec import encode_dead_letter
from streams.wire.contract import MAX_RECIPIENTS
from tests.field.desk import Scripted, activity_for, desk_of, target_of
from tests.sim.loop import VirtualLoop, run_virtual

PAGE = (Path(__file__).parents[2] / "docs" / "bounds.md").read_text()


def stated(name: str) -> list[int]:
    """The numbers of the page's row of this name."""
    row = re.search(rf"^\| {re.escape(name)} \|(.*)\|$", PAGE, re.MULTILINE)
    assert row is not None
    return [int(n.replace(",", "")) for n in re.findall(r"[\d,]*\d", row[1])]


@pytest.mark.parametrize(("at", "policy"), [(0, ACTIVITY), (1, NOTIFICATION)])
def test_the_stated_bounds_follow_from_the_policies(at, policy):
    """O-005, O-001: recipients times attempts; nothing multiplies it."""
    calls = MAX_RECIPIENTS * policy.max_attempts

    assert calls == stated("calls")[at]
    assert calls + MAX_RECIPIENTS == stated("INFO and WARNING lines")[at]
    assert stated("ERROR lines")[at] == 1
    assert stated("exceptions")[at] == 0


@dataclass(frozen=True, kw_only=True)
class Failed:
    """What so many failing recipients left behind."""

    rows: list[Row]
    calls: int
    lines: list[tuple[str, str, dict[str, Any]]]
    letter: DeadLetter
    letters_written: int
    exceptions: list[str]


def failing(recipients: int, observation: Observation, *, idempotent: bool) -> Failed:
    """Deliver to so many targets that all fail, on a clock that nobody waits for."""

    async def scenario() -> Failed:
        loop = cast("VirtualLoop", asyncio.get_running_loop())
        caller = Scripted(anyone=[observation])
        target = target_of(idempotent=idempotent, policy=NOTIFICATION)
        activity = activity_for(*(Recipient(target=f"t{n}") for n in range(recipients)))
        with pytest.MonkeyPatch.context() as patch:
            async with desk_of(patch, caller, anyone=target) as desk:
                log = LetterLog()
                desk.paper.letters = Letters(log, desk.time, on_dead=desk.teller.exhausted)
                rows = await desk.deliver(activity)
                await asyncio.sleep(200)
                letter = desk.letter(activity)
                assert letter is not None
                return Failed(
                    rows=rows,
                    calls=len(caller.calls),
                    lines=desk.lines.seen,
                    letter=letter,
                    letters_written=len(log.written),
                    exceptions=loop.faults,
                )

    return run_virtual(scenario())


class LetterLog:
    """`letters.LetterLog` that takes everything at once."""

    def __init__(self) -> None:
        self.written: list[bytes | None] = []

    def append_letter(self, partition, key, value, ledger_offset):
        self.written.append(value)
        done = asyncio.get_running_loop().create_future()
        done.set_result(len(self.written))
        return done


@pytest.mark.parametrize(
    ("observation", "attempts"),
    [
        (Observation(status=500), 5),
        (Observation(fault=fault_of("connect_refused")), 5),
        (Observation(status=404), 1),
    ],
    ids=["500", "refused", "404"],
)
def test_a_thousand_failing_recipients_stay_within_the_bounds(observation, attempts):
    """
    O-005, O-020: calls, lines and exceptions of one activity whose every recipient fails; one ERROR
    line in all, of bounded length.
    """
    seen = failing(MAX_RECIPIENTS, observation, idempotent=True)

    told = [level for level, _, _ in seen.lines]
    errors = [line for line in seen.lines if line[0] == "error"]
    assert [] == seen.exceptions
    assert {Phase.DEAD} == {row.phase for row in seen.rows}
    assert MAX_RECIPIENTS * attempts == seen.calls == told.count("info")
    assert ["activity.dead_lettered"] == [event for _, event, _ in errors]
    [(_, _, fields)] = errors
    assert (MAX_RECIPIENTS, NAMED_TARGETS) == (
        fields["unreached_count"],
        len(fields["unreached"]),
    )
    assert len(repr(fields)) < ID_BYTES + NAMED_TARGETS * (TARGET_BYTES + 60) + 400


def test_a_thousand_retries_make_one_dead_letter_that_a_topic_takes():
    """
    O-005, E08: every string in it at its longest, it is under half of what the topic takes; it is
    written as often as its activity's deliveries die, and at most once a second.
    """
    seen = failing(MAX_RECIPIENTS, Observation(status=404), idempotent=False)
    longest = replace(
        seen.letter,
        activity_id="i" * 1_024,
        deliveries=tuple(
            replace(each, target="t" * TARGET_BYTES, summary="s" * TARGET_BYTES)
            for each in seen.letter.deliveries
        ),
    )

    assert MAX_RECIPIENTS == len(seen.letter.deliveries)
    assert len(encode_dead_letter(longest)) < MAX_MESSAGE_BYTES / 2
    assert seen.letters_written <= 3
