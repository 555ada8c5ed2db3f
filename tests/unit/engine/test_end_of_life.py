"""What is over is forgotten together, and nothing that is still at work (design §3)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from streams.edge.store import Store
from streams.engine import end_of_life
from streams.engine.end_of_life import EndOfLife
from streams.model.ledger import Kind, Phase
from streams.wire.codec import encode_activity_row, encode_row
from tests.unit.engine.protocol import ACTIVITY_KEY, KEY, Log, Member, activity_row, play, row

DAY_MS = 86_400_000
WEEK_MS = 7 * DAY_MS


def given(member: Member, phase: Phase, settled_ms: int) -> EndOfLife:
    """An activity of one delivery that came to `phase`, known to the log and folded."""
    partition = member.partition
    settled = row(phase, settled_ms=settled_ms)
    partition.admit(ACTIVITY_KEY, activity_row(b"t" * 8))
    epoch = partition.store.epoch
    member.ledger.append(Kind.REPORT, KEY, encode_row(settled), epoch, b"1" * 16)
    member.land()
    member.read()
    return EndOfLife({0: partition}, member.time, dedupe_window_ms=WEEK_MS)


def test_an_activity_is_buried_with_its_deliveries_after_the_window(tmp_path: Path):
    """
    D-006: rows of one activity become tombstones together, the activity's own first: none must lie of a
    delivery whose activity is still known, or an old trigger would send it again.
    """

    async def scenario(log: Log) -> None:
        member = Member(log, store=cast("Any", Store(tmp_path).partition(0)))
        await member.lead()
        ends = given(member, Phase.SENT, settled_ms=member.time.now_ms())
        assert 0 == ends.sweep(member.partition), "the window has only begun"
        member.time.skew_ms += WEEK_MS + 1

        assert 1 == ends.sweep(member.partition)
        assert [(ACTIVITY_KEY, None), (KEY, None)] == [
            (r.key, r.value) for r in member.ledger.pending
        ]
        member.land()
        member.read()
        assert member.partition.row(KEY) is None
        assert member.partition.activity(ACTIVITY_KEY) is None
        assert 0 == ends.sweep(member.partition), "nothing is left to look at"

    play(scenario)


@pytest.mark.parametrize("landing", [0, 1])
def test_what_a_crash_left_of_a_burial_is_buried_in_the_next_sweep(tmp_path: Path, landing: int):
    """Rows that nobody looked at again would stay in the ledger for ever."""

    async def scenario(log: Log) -> None:
        member = Member(log, store=cast("Any", Store(tmp_path).partition(0)))
        await member.lead()
        ends = given(member, Phase.SENT, settled_ms=member.time.now_ms())
        member.time.skew_ms += WEEK_MS + 1
        ends.sweep(member.partition)
        member.land(landing)
        member.ledger.pending.clear()
        member.read()
        member.time.skew_ms += 1

        assert 1 == ends.sweep(member.partition)
        member.land()
        member.read()
        assert [None, None] == [member.partition.store.get(k) for k in (KEY, ACTIVITY_KEY)]

    play(scenario)


async def due(log: Log, folder: Path, activities: int) -> tuple[Member, EndOfLife]:
    """A leader of so many activities, the window of each of which is over."""
    member = Member(log, store=cast("Any", Store(folder).partition(0)))
    await member.lead()
    for number in range(activities):
        member.partition.admit(b"urn:%d" % number, activity_row(admissions=()))
    member.land()
    member.read()
    member.time.skew_ms += WEEK_MS + 1
    return member, EndOfLife({0: member.partition}, member.time, dedupe_window_ms=WEEK_MS)


def test_a_sweep_looks_at_all_that_is_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """
    Found by a soak: of more than 16 activities a second and partition the rest was never forgotten, and
    the ledger grew for ever.
    """
    monkeypatch.setattr(end_of_life, "READ_MAX", 7)
    monkeypatch.setattr(end_of_life, "SLICE", 3)

    async def scenario(log: Log) -> None:
        member, ends = await due(log, tmp_path, 50)

        assert 50 == ends.sweep(member.partition)
        member.land()
        member.read()
        member.time.skew_ms += 1
        assert 0 == ends.sweep(member.partition), "what is gone is looked at once more"
        assert [] == member.partition.store.aged(2**62, 100)

    play(scenario)


async def test_a_sweep_gives_others_their_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A partition with a backlog of an hour must not stop deliveries while it is swept."""
    monkeypatch.setattr(end_of_life, "SLICE", 1)
    monkeypatch.setattr(end_of_life, "SWEEP_S", 0.0)
    monkeypatch.setattr(end_of_life, "PAUSE_S", 0.0)
    member, ends = await due(Log(), tmp_path, 9)
    sweeping = asyncio.create_task(ends.run())
    seen: set[int] = set()

    while len(member.ledger.pending) < 9:
        seen.add(len(member.ledger.pending))
        await asyncio.sleep(0)

    sweeping.cancel()
    assert set(range(9)) <= seen


def test_a_dead_letter_is_kept_and_looked_at_again(tmp_path: Path):
    """C-16: it stands until somebody resolves it."""

    async def scenario(log: Log) -> None:
        member = Member(log, store=cast("Any", Store(tmp_path).partition(0)))
        await member.lead()
        ends = given(member, Phase.DEAD, settled_ms=member.time.now_ms())
        member.time.skew_ms += WEEK_MS + 1

        assert 0 == ends.sweep(member.partition)
        assert [] == member.ledger.pending
        assert [] == member.partition.store.aged(member.time.now_ms() - WEEK_MS, 10)
        assert 1 == len(member.partition.store.aged(member.time.now_ms() + DAY_MS + 1, 10))

    play(scenario)


def test_what_somebody_works_at_is_left_alone(tmp_path: Path):
    """A trigger that holds the delivery's lock goes by the row; it must not vanish under it."""

    async def scenario(log: Log) -> None:
        member = Member(log, store=cast("Any", Store(tmp_path).partition(0)))
        await member.lead()
        ends = given(member, Phase.SENT, settled_ms=member.time.now_ms())
        member.time.skew_ms += WEEK_MS + 1
        await member.partition.locks.acquire(KEY)

        assert 0 == ends.sweep(member.partition)
        member.partition.locks.release(KEY)
        member.time.skew_ms += 1
        assert 1 == ends.sweep(member.partition), "and buried in the next sweep"

    play(scenario)


def test_the_index_survives_a_restart(tmp_path: Path):
    """A worker that is restarted every day would else never forget anything."""
    first = Store(tmp_path)
    first.partition(3).age(ACTIVITY_KEY, 5)
    first.partition(3).put(ACTIVITY_KEY, None, encode_activity_row(activity_row(b"t" * 8)))
    first.partition(3).commit()
    first.close()

    assert [(5, ACTIVITY_KEY)] == Store(tmp_path).partition(3).aged(6, 10)
