"""What a partition's rows say of an activity at each moment of its life."""

from __future__ import annotations

import pytest

from streams.engine.rows import HOT_ROWS
from streams.model.ledger import Kind
from streams.rules.fold import LedgerRecord
from streams.wire.codec import encode_activity_row
from tests.unit.engine.protocol import ACTIVITY_KEY, Log, Member, activity_row, play

UNREAD = "a row that was folded a moment ago is looked for in the store"


async def admitted(log: Log) -> Member:
    """A worker that leads, and has folded an activity's row."""
    member = Member(log)
    await member.lead()
    member.partition.admit(ACTIVITY_KEY, activity_row())
    await member.settle_down()
    return member


def test_an_activity_is_known_from_its_append_on() -> None:
    """D-006: what was admitted is known before the log says so, and after."""

    async def scenario(log: Log) -> None:
        member = Member(log)
        await member.lead()
        assert not member.partition.knows(ACTIVITY_KEY)
        member.partition.admit(ACTIVITY_KEY, activity_row())
        assert member.partition.knows(ACTIVITY_KEY)
        await member.settle_down()
        assert member.partition.knows(ACTIVITY_KEY)

    play(scenario)


def test_an_activity_that_was_folded_lately_is_known_without_a_look_at_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(log: Log) -> None:
        member = await admitted(log)
        monkeypatch.setattr(member.store, "get", lambda key: pytest.fail(UNREAD))
        assert member.partition.knows(ACTIVITY_KEY)

    play(scenario)


def test_an_activity_that_was_taken_away_is_not_known_any_more() -> None:
    """D-006: a delivery of a forgotten activity must not be sent for its record's sake."""

    async def scenario(log: Log) -> None:
        member = await admitted(log)
        assert member.partition.bury(ACTIVITY_KEY)
        await member.settle_down()
        assert not member.partition.knows(ACTIVITY_KEY)

    play(scenario)


def test_a_void_admission_makes_nothing_known() -> None:
    """Rule 1: what a superseded owner appended does not count."""

    async def scenario(log: Log) -> None:
        old, new = Member(log), Member(log, "B")
        await old.lead()
        old.partition.admit(ACTIVITY_KEY, activity_row())
        await new.lead()
        old.land()
        new.read()
        assert not new.partition.knows(ACTIVITY_KEY)

    play(scenario)


def test_what_a_restore_takes_away_is_not_known_any_more() -> None:
    """While a partition is another worker's, that one may have forgotten the activity."""

    async def scenario(log: Log) -> None:
        member = await admitted(log)
        member.partition.revoke()
        member.store.delete(ACTIVITY_KEY)
        member.partition.restore([])
        assert not member.partition.knows(ACTIVITY_KEY)

    play(scenario)


def test_many_activities_are_all_known() -> None:
    """What is kept in memory is bounded; the store knows the rest."""

    async def scenario(log: Log) -> None:
        member = Member(log)
        await member.lead()
        keys = [b"urn:%d" % number for number in range(HOT_ROWS + 10)]
        value = encode_activity_row(activity_row())
        for key in keys:
            record = LedgerRecord(
                offset=-1, key=key, kind=Kind.ADMIT, epoch=0, token=b"t" * 16, value=value
            )
            log.land(record)
        member.read()
        assert all(map(member.partition.knows, keys))

    play(scenario)
