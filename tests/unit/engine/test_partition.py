"""The ledger protocol for one partition: who leads, what a claim and a report are (ledger.md)."""

from __future__ import annotations

import asyncio

from streams.engine.leading import REOWN_DELAY_S
from streams.model.ledger import Kind, Phase
from streams.model.verdict import Judgement, Verdict
from streams.wire.commands import LateReport
from tests.sim.memory import replay
from tests.unit.engine.protocol import (
    KEY,
    Log,
    Member,
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


# ── Rule 1 ──


def test_what_a_partition_says_of_its_rows_is_the_fold_of_its_log():
    """Rule 1: whatever it keeps decoded, for itself or others, is what the log says."""

    async def scenario(log: Log) -> None:
        a, b = Member(log, "A"), Member(log, "B")
        await a.lead()
        claim = await claimed(a)
        settling = asyncio.create_task(a.partition.settle(claim, row(Phase.SENT, fence=1), SENT))
        await a.settle_down(b)
        assert await settling

        assert a.partition.row(KEY) == b.partition.row(KEY)
        assert Phase.SENT is a.partition.row(KEY).phase
        assert replay(log.records).facts() == a.store.state.facts() == b.store.state.facts()

    play(scenario)


def test_a_claims_fence_is_its_offset():
    """The fence is not the writer's to choose."""

    async def scenario(log: Log) -> None:
        a = Member(log)
        await a.lead()
        claim = await claimed(a)

        assert 1 == claim.row.fence == a.partition.row(KEY).fence

    play(scenario)


def test_a_batch_is_in_the_store_before_anybody_is_told():
    """faust.md §12: who is told goes on to call, and a crash then must find the claim."""

    async def scenario(log: Log) -> None:
        a = Member(log)
        await a.lead()
        asking = asyncio.create_task(a.partition.claim(KEY, row()))
        await turns()
        a.land()
        kept_when_told = []
        asking.add_done_callback(lambda _: kept_when_told.append(KEY in a.store.kept.rows))
        a.read()
        await asking
        await turns()

        assert [True] == kept_when_told

    play(scenario)


# ── Rule 2 ──


def test_a_worker_leads_once_its_own_owner_record_is_folded():
    """Rule 2: not when it is assigned, and not when the record is with the broker."""

    async def scenario(log: Log) -> None:
        a = Member(log)
        leads = []
        for step in (lambda: a.partition.assign(1), a.land, a.read):
            step()
            leads.append(a.partition.leads)

        assert [False, False, True] == leads
        assert (True, False) == (a.partition.holds(1), a.partition.holds(2))

    play(scenario)


def test_an_assigned_worker_overrules_a_stray_owner():
    """Rule 2: without it, B's delayed OWNER makes all of A's claims void for ever."""

    async def scenario(log: Log) -> None:
        a, b = Member(log, "A"), Member(log, "B")
        b.partition.assign(1)
        await a.lead()
        b.land()
        a.read()
        assert not a.partition.leads

        waiting = asyncio.create_task(a.partition.until_led(1))
        await asyncio.sleep(REOWN_DELAY_S * 1.1)
        await a.settle_down()

        assert await waiting
        assert a.partition.leads

    play(scenario)


def test_two_that_believe_to_own_do_not_trade_owner_records_at_full_speed():
    """A frozen worker that wakes believes so until its next heartbeat: four a second, not thousands."""

    async def scenario(log: Log) -> None:
        a, b = Member(log, "A"), Member(log, "B")
        await a.lead()
        await b.lead()
        for _ in range(400):
            await a.settle_down(b)
            await asyncio.sleep(0.005)

        assert len(log.records) <= 2 + 2 * 2 / REOWN_DELAY_S

    play(scenario)


def test_an_owner_that_lands_before_ours_is_overruled_by_ours():
    """Rule 2: with a broker slower than the pause, owning again for it would never end."""

    async def scenario(log: Log) -> None:
        a, b = Member(log, "A"), Member(log, "B")
        b.partition.assign(1)
        a.partition.assign(1)
        b.land()
        a.read()
        await asyncio.sleep(5 * REOWN_DELAY_S)

        assert 1 == len(a.ledger.pending)
        a.land()
        a.read()
        assert a.partition.leads

    play(scenario)


def test_a_partition_that_is_lost_is_not_owned_again():
    """The pause may end after the assignment did."""

    async def scenario(log: Log) -> None:
        a, b = Member(log, "A"), Member(log, "B")
        await a.lead()
        await b.lead()
        a.read()
        a.partition.revoke()
        await asyncio.sleep(2 * REOWN_DELAY_S)

        assert [] == a.ledger.pending
        assert not await a.partition.until_led(1)

    play(scenario)


# ── Rule 3 ──


def test_a_claim_counts_when_the_own_tail_has_folded_it():
    """D-001, read-back: durable on the broker and valid in the log, before any call."""

    async def scenario(log: Log) -> None:
        a = Member(log)
        await a.lead()
        asking = asyncio.create_task(a.partition.claim(KEY, row()))
        await turns()
        assert not asking.done()
        a.land()
        await turns()
        assert not asking.done()
        a.read()

        assert 1 == (await asking).row.fence

    play(scenario)


def test_a_claim_behind_a_foreign_owner_is_none():
    """D-004: a frozen worker's claim comes back void, and no call is made."""

    async def scenario(log: Log) -> None:
        a, b = Member(log, "A"), Member(log, "B")
        await a.lead()
        asking = asyncio.create_task(a.partition.claim(KEY, row()))
        await turns()
        await b.lead()
        a.land()
        a.read()

        assert await asking is None
        assert a.partition.row(KEY) is None

    play(scenario)


def test_a_claim_that_was_settled_in_the_same_batch_is_none():
    """A was slow: B owned, waited the lease out and settled A's claim, all before A read it back."""

    async def scenario(log: Log) -> None:
        a, b = Member(log, "A"), Member(log, "B")
        await a.lead()
        asking = asyncio.create_task(a.partition.claim(KEY, row()))
        await turns()
        a.land()
        await b.lead()
        lost = row(Phase.DEAD, token=TOKEN)
        settling = asyncio.create_task(
            b.partition.settle(b.partition.adopted(KEY, b.row), lost, SENT)
        )
        await turns()
        b.land()
        b.read()
        assert await settling
        a.read()

        assert await asking is None

    play(scenario)


def test_who_does_not_lead_appends_no_claim():
    """Rule 3: not assigned, not folded yet, or overruled."""

    async def scenario(log: Log) -> None:
        a = Member(log)
        assert await a.partition.claim(KEY, row()) is None
        a.partition.assign(1)
        assert await a.partition.claim(KEY, row()) is None

        assert [Kind.OWNER] == [record.kind for record in a.ledger.pending]

    play(scenario)


def test_a_worker_that_stops_claims_nothing_more():
    """interface.md §1: SIGTERM stops claiming, and waits for the calls in flight."""

    async def scenario(log: Log) -> None:
        a = Member(log)
        await a.lead()
        a.partition.close()

        assert await a.partition.claim(KEY, row()) is None

    play(scenario)


# ── Rule 4 ──


def test_a_report_that_folds_void_goes_to_the_owner():
    """Rule 4: a call that outlives a rebalance still counts."""

    async def scenario(log: Log) -> None:
        a, b = Member(log, "A"), Member(log, "B")
        await a.lead()
        claim = await claimed(a)
        await b.lead()
        settling = asyncio.create_task(a.partition.settle(claim, row(Phase.SENT), SENT))
        await turns()
        a.land()
        a.read()

        assert not await settling
        assert [LateReport(delivery_key=KEY, token=TOKEN, judgement=SENT)] == a.ledger.late

    play(scenario)


def test_a_report_of_a_worker_that_lost_the_partition_goes_to_the_owner():
    """It appends nothing more; what it learned is not lost."""

    async def scenario(log: Log) -> None:
        a = Member(log)
        await a.lead()
        claim = await claimed(a)
        a.partition.revoke()

        assert not await a.partition.settle(claim, row(Phase.SENT), SENT)
        assert [TOKEN] == [report.token for report in a.ledger.late]
        assert [] == a.ledger.pending

    play(scenario)


def test_whoever_waits_for_a_fold_learns_that_the_partition_is_lost():
    """The record may land; no tail of ours will tell."""

    async def scenario(log: Log) -> None:
        a = Member(log)
        await a.lead()
        asking = asyncio.create_task(a.partition.claim(KEY, row()))
        await turns()
        a.partition.revoke()

        assert await asking is None

    play(scenario)


def test_an_adopted_claims_report_is_nobodys_to_send_on():
    """Its verdict is the owner's guess, and the next owner makes its own."""

    async def scenario(log: Log) -> None:
        a, b = Member(log, "A"), Member(log, "B")
        await a.lead()
        await claimed(a)
        await b.lead()
        adopted = b.partition.adopted(KEY, b.row)
        settling = asyncio.create_task(b.partition.settle(adopted, row(Phase.DEAD), SENT))
        await turns()
        b.partition.revoke()

        assert not await settling
        assert [] == b.ledger.late

    play(scenario)


def test_a_log_that_is_another_one_is_forgotten_with_what_was_decoded_of_it():
    """I16: a row kept in memory would outlive the store that it was read from."""

    async def scenario(log: Log) -> None:
        a = Member(log)
        await a.lead()
        await claimed(a)
        assert a.partition.row(KEY) is not None
        a.partition.revoke()
        a.partition.forget()

        assert a.partition.row(KEY) is None
        assert 0 == a.store.next

    play(scenario)
