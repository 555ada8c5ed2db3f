"""The ledger protocol for one partition: foreign claims, debts, fresh views, activities (ledger.md)."""

from __future__ import annotations

import asyncio

from streams.engine.leading import REOWN_DELAY_S
from streams.model.ledger import Kind, Phase
from streams.model.verdict import Judgement, Verdict
from streams.wire.codec import encode_row
from streams.wire.commands import LateReport
from tests.sim.memory import MemoryStore, replay
from tests.unit.engine.protocol import (
    ACTIVITY_KEY,
    KEY,
    Log,
    Member,
    activity_row,
    play,
    row,
    turns,
)

SENT = Judgement(verdict=Verdict.SENT, code="http_200", status=200)
TOKEN = b"0" * 16


async def claimed(a: Member, **changes):
    """A claim of A's, folded as valid."""
    asking = asyncio.create_task(a.partition.claim(KEY, row(**changes)))
    await turns()
    a.land()
    a.read()
    return await asking


# ── Rule 5 ──


async def foreign_claim(log: Log) -> Member:
    """B leads; A's claim stands."""
    a, b = Member(log, "A"), Member(log, "B")
    await a.lead()
    await claimed(a)
    await b.lead()
    return b


def test_a_foreign_claim_stands_until_its_lease_ends():
    """Rule 5, C-07: on our own monotonic clock, from first sight; no clock of others is trusted."""

    async def scenario(log: Log) -> None:
        b = await foreign_claim(log)
        b.time.skew_ms = 3_600_000
        seen = b.time.monotonic()

        assert await b.partition.foreign.outcome(KEY, b.row) is None
        assert 4.0 <= b.time.monotonic() - seen < 4.1

    play(scenario)


def test_a_lease_that_was_watched_before_is_not_waited_for_twice():
    """First sight counts: a record that comes again does not begin anew."""

    async def scenario(log: Log) -> None:
        b = await foreign_claim(log)
        waiting = asyncio.create_task(b.partition.foreign.outcome(KEY, b.row))
        await asyncio.sleep(3)
        waiting.cancel()
        seen = b.time.monotonic()

        assert await b.partition.foreign.outcome(KEY, b.row) is None
        assert b.time.monotonic() - seen <= 1.1

    play(scenario)


def test_a_late_report_ends_the_wait_with_what_the_call_came_to():
    """Rule 4: at once, and whether it came before the wait or in it."""

    async def scenario(log: Log) -> None:
        b = await foreign_claim(log)
        waiting = asyncio.create_task(b.partition.foreign.outcome(KEY, b.row))
        await asyncio.sleep(1)
        b.partition.foreign.heard(LateReport(delivery_key=KEY, token=TOKEN, judgement=SENT))

        assert SENT == await waiting
        assert SENT == await b.partition.foreign.outcome(KEY, b.row)
        assert b.time.monotonic() < 1.1

    play(scenario)


def test_a_late_report_of_another_claim_ends_nothing():
    """Only the token says which attempt it speaks of."""

    async def scenario(log: Log) -> None:
        b = await foreign_claim(log)
        b.partition.foreign.heard(LateReport(delivery_key=KEY, token=b"1" * 16, judgement=SENT))

        assert await b.partition.foreign.outcome(KEY, b.row) is None

    play(scenario)


def test_a_row_that_moves_on_by_itself_ends_the_wait():
    """Another task of ours settled it: there is nothing to adopt."""

    async def scenario(log: Log) -> None:
        b = await foreign_claim(log)
        waiting = asyncio.create_task(b.partition.foreign.outcome(KEY, b.row))
        await turns()
        asyncio.create_task(b.partition.write(Kind.REPORT, KEY, row(Phase.DEAD)))  # noqa: RUF006
        await b.settle_down()

        assert await waiting is True

    play(scenario)


def test_losing_the_partition_ends_the_wait():
    """And so does the end of the worker: the next owner adopts."""

    async def scenario(log: Log) -> None:
        b = await foreign_claim(log)
        for end in (b.partition.close, b.partition.revoke):
            waiting = asyncio.create_task(b.partition.foreign.outcome(KEY, b.row))
            await turns()
            end()
            assert await waiting is False
            assert b.time.monotonic() < 0.1

    play(scenario)


def test_what_was_remembered_of_a_settled_claim_is_forgotten():
    """A worker lives for months."""

    async def scenario(log: Log) -> None:
        b = await foreign_claim(log)
        b.partition.foreign.heard(LateReport(delivery_key=KEY, token=TOKEN, judgement=SENT))
        await b.partition.foreign.outcome(KEY, b.row)
        b.partition.foreign.forget(TOKEN)

        assert ({}, {}) == (b.partition.foreign.late_reports, b.partition.foreign._first_seen)

    play(scenario)


# ── Rule 6 ──


async def indebted(log: Log, *, keep_claim: bool = True) -> Member:
    """B leads, and a void record of A's is the last of its key."""
    a, b = Member(log, "A"), Member(log, "B")
    await a.lead()
    if keep_claim:
        await claimed(a)
    asyncio.create_task(a.partition.write(Kind.REPORT, KEY, row(Phase.SENT)))  # noqa: RUF006
    await turns()
    await b.lead()
    a.land()
    return b


def test_a_void_record_is_repaired_with_the_row_that_stands():
    """Rule 6: before compaction can keep the void one; its fence is the one that the fold gave."""

    async def scenario(log: Log) -> None:
        b = await indebted(log)
        b.read()
        assert {KEY} == b.store.owed
        await b.settle_down()

        assert (Kind.REPAIR, encode_row(row(fence=1))) == (
            log.records[-1].kind,
            log.records[-1].value,
        )
        assert frozenset() == b.store.owed
        assert replay(log.records[-1:]).facts()[0].keys() == b.store.state.rows.keys()

    play(scenario)


def test_a_void_record_of_a_key_without_a_row_is_repaired_with_a_tombstone():
    """Rule 6: or compaction would bring a row to life that never counted."""

    async def scenario(log: Log) -> None:
        b = await indebted(log, keep_claim=False)
        b.read()
        await b.settle_down()

        assert (Kind.REPAIR, None) == (log.records[-1].kind, log.records[-1].value)

    play(scenario)


def test_a_repair_waits_for_the_lock_of_its_delivery():
    """Rule 6, lock: void@2, the owner's claim @3, its older repair lands @4 and erases the claim."""

    async def scenario(log: Log) -> None:
        b = await indebted(log, keep_claim=False)
        async with b.partition.locks.hold(KEY):
            asking = asyncio.create_task(b.partition.claim(KEY, row()))
            await turns()
            b.read()
            await turns()
            assert [Kind.CLAIM] == [record.kind for record in b.ledger.pending]
            b.land()
            b.read()
            assert await asking is not None
        await b.settle_down()

        assert Kind.CLAIM is log.records[-1].kind
        assert Phase.CLAIMED is b.partition.row(KEY).phase

    play(scenario)


def test_a_repair_does_not_follow_an_activitys_row_that_is_on_its_way():
    """Rule 6: it is appended without a lock; the repair behind it would be a tombstone."""

    async def scenario(log: Log) -> None:
        a, b = Member(log, "A"), Member(log, "B")
        await a.lead()
        a.partition.admit(ACTIVITY_KEY, activity_row())
        await b.lead()
        b.partition.admit(ACTIVITY_KEY, activity_row())
        a.land()
        b.read()
        assert {ACTIVITY_KEY} == b.store.owed
        await b.settle_down()

        assert frozenset() == b.store.owed
        assert activity_row() == b.partition.activity(ACTIVITY_KEY)

    play(scenario)


def test_a_new_leader_pays_the_debts_that_its_store_kept():
    """Rule 6, kept: void folded, crash, store kept: recovery starts behind it."""

    async def scenario(log: Log) -> None:
        b = await indebted(log)
        b.read()
        again = Member(log, "B again", store=MemoryStore(b.store.kept))
        assert {KEY} == again.store.owed
        await again.lead()
        await again.settle_down()

        assert frozenset() == again.store.owed
        assert Kind.REPAIR is log.records[-1].kind

    play(scenario)


def test_who_does_not_lead_repairs_nothing():
    """Rule 6: its repair would be void, and owe another."""

    async def scenario(log: Log) -> None:
        b = await indebted(log)
        b.partition.revoke()
        b.read()
        await b.settle_down()

        assert {KEY} == b.store.owed
        assert Kind.REPORT is log.records[-1].kind

    play(scenario)


# ── Rule 7 ──


def test_a_barrier_sees_what_was_in_the_log_when_it_was_asked_for():
    """Rule 7: a partition that came back must not acknowledge on what it knew before it left."""

    async def scenario(log: Log) -> None:
        a = Member(log)
        await a.lead()
        asyncio.create_task(a.partition.write(Kind.REPORT, KEY, row(Phase.SENT)))  # noqa: RUF006
        await turns()
        a.land()
        asking = asyncio.create_task(a.partition.barrier())
        await asyncio.sleep(0.1)
        assert not asking.done()
        a.read()

        assert await asking
        assert Phase.SENT is a.partition.row(KEY).phase

    play(scenario)


def test_a_barrier_fails_when_it_shows_that_another_leads():
    """Rule 7: then nothing may be dropped, whatever the rows said."""

    async def scenario(log: Log) -> None:
        a, b = Member(log, "A"), Member(log, "B")
        await a.lead()
        await b.lead()
        asking = asyncio.create_task(a.partition.barrier())
        await asyncio.sleep(0.1)
        a.read()

        assert not await asking

    play(scenario)


def test_a_barrier_fails_when_the_partition_is_lost_meanwhile():
    """And does not wait for a tail that is not followed any more."""

    async def scenario(log: Log) -> None:
        a = Member(log)
        await a.lead()
        log.land(log.records[0])
        asking = asyncio.create_task(a.partition.barrier())
        await asyncio.sleep(0.1)
        a.partition.revoke()

        assert not await asking

    play(scenario)


def test_those_who_ask_while_the_end_is_asked_for_share_the_next_question():
    """A thousand stale retries cost a few round trips; each answer is younger than its question."""

    async def scenario(log: Log) -> None:
        a = Member(log)
        await a.lead()
        first = asyncio.create_task(a.partition.barrier())
        await turns()
        later = [asyncio.create_task(a.partition.barrier()) for _ in range(1_000)]

        assert [True] * 1_001 == [await asked for asked in (first, *later)]
        assert 2 == a.ledger.end_asked

    play(scenario)


def test_a_barrier_does_not_wait_for_records_that_compaction_took():
    """The end of the log may lie behind records that nobody will ever read."""

    async def scenario(log: Log) -> None:
        a = Member(log)
        await a.lead()
        log.records.append(log.records[0])
        a.ledger.position = lambda: len(log.records)

        assert await a.partition.barrier()

    play(scenario)


# ── Activities ──


def test_an_activity_is_known_as_soon_as_its_row_is_appended():
    """Or the next record of the same activity, read a moment later, would be new as well."""

    async def scenario(log: Log) -> None:
        a = Member(log)
        await a.lead()
        a.partition.admit(ACTIVITY_KEY, activity_row())
        assert activity_row() == a.partition.activity(ACTIVITY_KEY)
        await a.settle_down()

        assert activity_row() == a.partition.activity(ACTIVITY_KEY)
        assert {} == a.partition._admitting

    play(scenario)


def test_an_activitys_row_that_a_stray_owner_made_void_is_appended_again():
    """Rule 2: no claim may come before it, for without it a dead delivery has no dead letter."""

    async def scenario(log: Log) -> None:
        a, b = Member(log, "A"), Member(log, "B")
        b.partition.assign(1)
        await a.lead()
        a.partition.admit(ACTIVITY_KEY, activity_row())
        b.land()
        a.land()
        a.read()
        waiting = asyncio.create_task(a.partition.until_admitted(ACTIVITY_KEY))
        await asyncio.sleep(REOWN_DELAY_S * 1.1)
        assert not waiting.done()
        await a.settle_down()
        await waiting

        assert a.store.get(ACTIVITY_KEY) is not None

    play(scenario)


def test_a_lost_partition_forgets_what_it_was_admitting():
    """Its record comes again to the next owner, and that may be us."""

    async def scenario(log: Log) -> None:
        a = Member(log)
        await a.lead()
        a.partition.admit(ACTIVITY_KEY, activity_row())
        a.partition.revoke()

        assert a.partition.activity(ACTIVITY_KEY) is None

    play(scenario)


def test_the_deliveries_of_an_activity_are_found_under_its_key():
    """And none of an activity whose id begins alike."""

    async def scenario(log: Log) -> None:
        a = Member(log)
        await a.lead()
        for key, phase in (
            (KEY, Phase.DEAD),
            (b"urn:1\x00erp", Phase.SENT),
            (b"urn:11\x00crm", Phase.DEAD),
        ):
            target = key.split(b"\x00")[1].decode()
            asyncio.create_task(  # noqa: RUF006
                a.partition.write(Kind.REPORT, key, row(phase, target=target))
            )
        await a.settle_down()

        found = a.partition.deliveries(ACTIVITY_KEY)
        assert [("crm", Phase.DEAD), ("erp", Phase.SENT)] == [(r.target, r.phase) for r in found]
        assert KEY == a.partition.letter(ACTIVITY_KEY, "dlv_1.1")
        assert a.partition.letter(ACTIVITY_KEY, "dlv_1.2") is None

    play(scenario)
