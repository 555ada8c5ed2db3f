"""One activity with 1,000 recipients of which 999 fail, and what is produced under its ID afterwards."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import pairwise

import pytest
import pytest_asyncio

from streams.model.receipt import Outcome
from tests.integration.world import PATIENT, Produced, World

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]

RECIPIENTS = 1_000
MAX_ATTEMPTS = 3
FANOUT_ID = "https://a.example/fanout/1"
PATHS = ("/ok/f0", *(f"/status/503/f{n}" for n in range(1, RECIPIENTS)))


class FanOut:
    """The world after the 1,000 deliveries of one activity were settled."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.activity = world.activity(FANOUT_ID, *PATHS, note="1,000 to tell")

    def again(self, *paths: str, **content: str) -> Produced:
        """The same activity for these recipients, or with other content."""
        return self.world.activity(FANOUT_ID, *paths, **({"note": "1,000 to tell"} | content))

    async def produce_again(self, activity: Produced, verdict: Outcome) -> int:
        """Produce it and wait for its one receipt of this verdict; give how many calls that took."""
        world = self.world
        calls, before = len(world.receiver.calls), self.count(verdict)
        await world.produce(activity)
        await world.until(lambda: self.count(verdict) == before + 1, f"a receipt `{verdict}`")
        return len(world.receiver.calls) - calls

    def count(self, verdict: Outcome) -> int:
        """Receipts of this verdict for the activity."""
        return sum(r.verdict is verdict for r in self.world.receipts[FANOUT_ID])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fanout(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FanOut]:
    async with World(kafka, tmp_path_factory.mktemp("fanout"), PATIENT) as world:
        await world.work()
        fanout = FanOut(world)
        await world.produce(fanout.activity)
        await world.until_settled(fanout.activity)
        await world.until(
            lambda: len(world.letters[FANOUT_ID].deliveries) == RECIPIENTS - 1,
            "a dead letter with all that failed",
        )
        yield fanout


async def test_every_recipient_is_called_as_often_as_it_may_be(fanout: FanOut) -> None:
    """O-005, C-08: a bounded number of calls, and the one that answers is called once."""
    counts = fanout.world.calls_by_path()

    assert dict.fromkeys(PATHS, MAX_ATTEMPTS) | {"/ok/f0": 1} == counts


async def test_retries_that_are_due_in_the_same_second_share_a_record(fanout: FanOut) -> None:
    """interface.md §3: one record per second of due times, so that a body is not copied 999 times."""
    retries = fanout.world.retries
    seconds = Counter(retry.due_ms // 1000 for retry in retries)
    claims = Counter(
        item.attempt for retry in retries for item in retry.items if item.attempt in (1, 2)
    )

    assert {1} == set(seconds.values())
    assert {1: RECIPIENTS - 1, 2: RECIPIENTS - 1} == claims


async def test_there_is_one_dead_letter_of_bounded_size(fanout: FanOut) -> None:
    """interface.md §3: under its activity ID, its last record holding all that was given up."""
    records = fanout.world.letter_records
    letter = fanout.world.letters[FANOUT_ID]

    assert {FANOUT_ID.encode()} == {record.key for record in records}
    assert RECIPIENTS - 1 == len({each.delivery_id for each in letter.deliveries})
    assert {("attempts_exhausted", MAX_ATTEMPTS)} == {
        (each.code, each.attempts) for each in letter.deliveries
    }
    assert max(len(record.value) for record in records) < 1024 * 1024
    assert max(len(each.target.encode()) for each in letter.deliveries) <= 200
    assert max(len(each.summary.encode()) for each in letter.deliveries) <= 200


async def test_a_dead_letter_is_rewritten_at_most_once_a_second(fanout: FanOut) -> None:
    """interface.md §3: 999 that fail together must not write the record 999 times."""
    at_ms = [record.timestamp for record in fanout.world.letter_records]

    # Timestamps are those of the batches; the clock may be read a moment before the append.
    assert [] == [b - a for a, b in pairwise(at_ms) if b - a < 900]


async def test_there_is_one_error_line_and_a_line_per_attempt(fanout: FanOut) -> None:
    """O-005, O-020: the bound on log lines is the attempts, and one ERROR line for the activity."""
    (worker,) = fanout.world.workers
    lines = [json.loads(x) for x in worker.output.splitlines() if x.startswith("{")]
    levels = Counter(line["level"] for line in lines)
    (error,) = [line for line in lines if line["level"] == "error"]

    assert FANOUT_ID == error["activity_id"]
    assert RECIPIENTS - 1 == error["unreached_count"]
    assert max(map(len, worker.output.splitlines())) < 4_096
    attempts = MAX_ATTEMPTS * (RECIPIENTS - 1) + 1
    assert attempts == len(worker.events("delivery.attempted"))
    assert levels["info"] + levels["warning"] < attempts + 50


async def test_the_same_activity_again_is_a_duplicate(fanout: FanOut) -> None:
    """D-006: one receipt says so, nothing is sent."""
    calls = await fanout.produce_again(fanout.activity, Outcome.DUPLICATE)

    assert 0 == calls


async def test_the_same_content_written_otherwise_is_a_duplicate(fanout: FanOut) -> None:
    """D-006: the canonical form counts, not white space, key order or escapes."""
    whole = json.loads(fanout.activity.value)
    whole["activity"] = dict(reversed(whole["activity"].items()))
    respelt = replace(fanout.activity, value=json.dumps(whole, indent=3).encode())

    calls = await fanout.produce_again(respelt, Outcome.DUPLICATE)

    assert 0 == calls


async def test_other_content_under_the_same_id_is_a_conflict(fanout: FanOut) -> None:
    """D-007: visible to the producer, nothing is sent."""
    calls = await fanout.produce_again(
        fanout.again("/ok/f0", "/ok/new", note="other"), Outcome.CONFLICT
    )

    assert 0 == calls
    assert [] == fanout.world.calls("/ok/new")


async def test_further_recipients_of_the_same_activity_are_told_and_nobody_else(
    fanout: FanOut,
) -> None:
    """D-007: recipients are not part of the content; one that is named twice is one."""
    world = fanout.world
    before = len(world.receiver.calls)
    more = fanout.again("/ok/f0", "/status/503/f1", "/ok/more", "/ok/further", "/ok/more")

    await world.produce(more)
    await world.until(
        lambda: (
            {world.url("/ok/more"), world.url("/ok/further")}
            <= {r.target for r in world.receipts[FANOUT_ID] if r.verdict is Outcome.SENT}
        ),
        "receipts of the new recipients",
        about=lambda: [FANOUT_ID],
    )
    # A marker after it on the same partition shows that nothing more of it was to come.
    marker = await fanout.produce_again(fanout.activity, Outcome.DUPLICATE)

    assert 0 == marker
    assert ["/ok/further", "/ok/more"] == sorted(c.path for c in world.receiver.calls[before:])
