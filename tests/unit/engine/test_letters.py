"""Dead letters: one record per activity, derived from the rows, read back and corrected (rule 10)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

from streams.engine.letters import COMPLETE_MAX_S, Letters
from streams.model.ledger import Kind, Phase, Row
from streams.model.receipt import DeadLetter
from streams.rules.triggers import letters_of
from streams.wire.codec import decode_dead_letter, encode_dead_letter
from tests.sim.loop import run_virtual
from tests.unit.engine.protocol import ACTIVITY_KEY, Log, Member, activity_row, row


@dataclass
class World:
    """A worker that leads, its dead-letter topic, and whoever reads ERROR lines."""

    member: Member
    written: list[tuple[float, bytes, bytes | None, int]] = field(default_factory=list)
    told: list[DeadLetter] = field(default_factory=list)
    takes_s: float = 0.01
    fails: bool = False

    def __post_init__(self) -> None:
        self.letters = Letters(self, self.member.time, on_dead=self.told.append)

    def append_letter(
        self, partition: int, key: bytes, value: bytes | None, ledger_offset: int
    ) -> asyncio.Future[int]:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[int] = loop.create_future()
        self.written.append((loop.time(), key, value, ledger_offset))
        if self.fails:
            loop.call_later(self.takes_s, done.set_exception, OSError("the broker is gone"))
        else:
            loop.call_later(self.takes_s, done.set_result, len(self.written))
        return done

    @property
    def partition(self) -> Any:
        return self.member.partition

    async def has(self, *targets: str, phase: Phase = Phase.DEAD, **changes: Any) -> None:
        """Rows of one activity, written by us."""
        for target in targets:
            state = row(phase, delivery_id=f"dlv_{target}", target=target, **changes)
            key = ACTIVITY_KEY + b"\x00" + target.encode()
            writing = asyncio.create_task(self.partition.write(Kind.REPORT, key, state))
            await self.member.settle_down()
            assert await writing

    async def write(self) -> None:
        await self.letters.write(self.partition, ACTIVITY_KEY)

    def expected(self) -> bytes | None:
        rows: list[Row] = self.partition.deliveries(ACTIVITY_KEY)
        letter = letters_of(self.partition.activity(ACTIVITY_KEY), rows)
        return None if letter is None else encode_dead_letter(letter)

    def read_back(self, *values: bytes | None) -> None:
        self.letters.read_back(self.partition, [(ACTIVITY_KEY, value) for value in values])


def with_a_world(scenario: Callable[[World], Awaitable[None]], *targets: bytes) -> None:
    """Play a scenario with one activity admitted, in virtual time."""

    async def play() -> None:
        member = Member(Log())
        await member.lead()
        member.partition.admit(ACTIVITY_KEY, activity_row(*targets))
        await member.settle_down()
        await asyncio.sleep(10)
        await scenario(World(member))
        assert [] == member.faults

    run_virtual(play())


# ── Writing ──


def test_a_dead_letter_shows_what_the_rows_say():
    """C-16, rule 10: and its header says which state of the ledger that is."""

    async def scenario(world: World) -> None:
        await world.has("crm")
        await world.write()

        ((_, key, value, offset),) = world.written
        assert value is not None
        assert (ACTIVITY_KEY, world.expected(), 3) == (key, value, offset)
        assert ["dlv_crm.1"] == [e.dead_letter_id for e in decode_dead_letter(value).deliveries]

    with_a_world(scenario)


def test_writing_is_done_when_it_is_durable():
    """Rule 8: nothing is acknowledged before."""

    async def scenario(world: World) -> None:
        world.takes_s = 3
        await world.has("crm")
        writing = asyncio.create_task(world.write())
        await asyncio.sleep(2.9)
        assert not writing.done()
        await asyncio.sleep(0.2)
        assert writing.done()

    with_a_world(scenario)


def test_an_activity_is_rewritten_once_a_second_at_most():
    """interface.md §3: 1,000 deliveries that die one by one are not 1,000 records of up to 1 MiB."""

    async def scenario(world: World) -> None:
        await world.has("crm", "erp")
        tasks = []
        for _ in range(300):
            tasks.append(asyncio.create_task(world.write()))
            await asyncio.sleep(0.01)
        await asyncio.wait(tasks)

        at = [time for time, *_ in world.written]
        assert all(later - earlier > 0.999 for earlier, later in pairwise(at))
        assert 4 == len(at)

    with_a_world(scenario)


def test_the_last_resolution_writes_a_tombstone():
    """C-16: what is not given up any more is no dead letter."""

    async def scenario(world: World) -> None:
        await world.has("crm")
        await world.write()
        await world.has("crm", phase=Phase.QUEUED)
        await world.write()

        assert world.written[0][2] is not None
        assert world.written[1][2] is None

    with_a_world(scenario)


def test_whoever_waits_learns_that_the_append_failed():
    """Rule 12: and acknowledges nothing."""

    async def scenario(world: World) -> None:
        world.fails = True
        await world.has("crm")
        with pytest.raises(OSError, match="the broker is gone"):
            await world.write()

    with_a_world(scenario)


def test_a_dead_letter_waits_until_we_lead_again():
    """
    Rules 2 and 10, found by the simulation: a stray owner led when its turn came; who was let go then
    acknowledged a dead delivery without a dead letter.
    """

    async def scenario(world: World) -> None:
        await world.has("crm")
        stray = Member(world.member.log, "B")
        await stray.lead()
        world.member.read()
        assert not world.partition.leads
        writing = asyncio.create_task(world.write())
        await asyncio.sleep(0.2)
        assert not writing.done()
        await asyncio.sleep(0.1)
        await world.member.settle_down()
        await writing

        assert [world.expected()] == [value for _, _, value, _ in world.written]

    with_a_world(scenario)


def test_a_turn_that_comes_while_a_stray_owner_leads_is_taken_later():
    """The same, with the turn already waited for."""

    async def scenario(world: World) -> None:
        await world.has("crm")
        await world.write()
        await world.has("erp")
        writing = asyncio.create_task(world.write())
        await asyncio.sleep(0)
        stray = Member(world.member.log, "B")
        await stray.lead()
        world.member.read()
        await asyncio.sleep(1.2)
        assert not writing.done()
        await world.member.settle_down()
        await writing

        assert world.expected() == world.written[-1][2]

    with_a_world(scenario)


def test_an_assignment_that_is_over_writes_nothing_and_keeps_nobody():
    """The next owner derives it anew from the record that comes again."""

    async def scenario(world: World) -> None:
        await world.has("crm")
        await world.write()
        writing = asyncio.create_task(world.write())
        await asyncio.sleep(0.1)
        world.partition.revoke()
        await asyncio.sleep(1)

        assert writing.done()
        assert 1 == len(world.written)
        await world.write()
        assert 1 == len(world.written)

    with_a_world(scenario)


def test_an_activity_that_nobody_knows_is_owed_nothing():
    """A command may name one."""

    async def scenario(world: World) -> None:
        await world.letters.write(world.partition, b"urn:unknown")

        assert [] == world.written

    with_a_world(scenario)


# ── The ERROR line ──


def test_one_error_line_tells_of_an_activity():
    """O-020, O-005: with all its unreached targets, however often the record is rewritten."""

    async def scenario(world: World) -> None:
        await world.has("crm")
        await world.write()
        assert [] == world.told
        await world.has("erp")
        await world.write()
        await world.write()
        await asyncio.sleep(COMPLETE_MAX_S * 3)

        assert [["dlv_crm", "dlv_erp"]] == [
            [entry.delivery_id for entry in letter.deliveries] for letter in world.told
        ]

    with_a_world(scenario, b"11111111", b"22222222")


def test_the_error_line_does_not_wait_for_ever():
    """A delivery that is tried for a day must not keep the others' failure quiet."""

    async def scenario(world: World) -> None:
        await world.has("crm")
        await world.write()
        await asyncio.sleep(COMPLETE_MAX_S + 10)

        assert 1 == len(world.told)

    with_a_world(scenario, b"11111111", b"22222222")


def test_what_is_given_up_again_after_a_redrive_is_told_again():
    """O-020: it is another exhaustion, a minute later or a second later."""

    async def scenario(world: World) -> None:
        await world.has("crm")
        await world.write()
        await world.has("crm", phase=Phase.QUEUED)
        await world.write()
        await world.has("crm", budget=2)
        await world.write()

        assert ["dlv_crm.1", "dlv_crm.2"] == [
            letter.deliveries[0].dead_letter_id for letter in world.told
        ]

    with_a_world(scenario)


# ── Rule 10 ──


async def corrected(world: World, *values: bytes | None) -> list[bytes | None]:
    before = len(world.written)
    world.read_back(*values)
    await asyncio.sleep(5)
    return [value for _, _, value, _ in world.written[before:]]


def test_a_record_over_a_tombstone_is_overwritten():
    """Rule 10: a frozen worker's dead letter lands after the resolution."""

    async def scenario(world: World) -> None:
        await world.has("crm")
        stale = world.expected()
        await world.has("crm", phase=Phase.QUEUED)

        assert [None] == await corrected(world, stale)
        assert [None] == await corrected(world, None, stale)
        assert [] == await corrected(world, stale, None)

    with_a_world(scenario)


def test_a_tombstone_over_a_dead_letter_is_overwritten():
    """Rule 10: the other way round."""

    async def scenario(world: World) -> None:
        await world.has("crm")

        assert [world.expected()] == await corrected(world, None)

    with_a_world(scenario)


def test_an_older_dead_letter_is_overwritten():
    """Rule 10: it shows fewer deliveries than are given up."""

    async def scenario(world: World) -> None:
        await world.has("crm")
        older = world.expected()
        await world.has("erp")

        assert [world.expected()] == await corrected(world, older)

    with_a_world(scenario)


def test_what_is_as_the_ledger_says_is_left_alone():
    """Or two workers would write for ever."""

    async def scenario(world: World) -> None:
        await world.has("crm")

        assert [] == await corrected(world, world.expected())

    with_a_world(scenario)


def test_our_own_record_is_left_alone_while_we_lead():
    """Reading back what one wrote costs no look at the rows."""

    async def scenario(world: World) -> None:
        await world.has("crm")
        await world.write()

        assert [] == await corrected(world, world.written[0][2])

    with_a_world(scenario)


def test_our_own_record_of_an_earlier_time_is_looked_at_anew():
    """
    Rule 10: it is what we wrote last, but another has led since, and resolved it; our record landed over
    the tombstone.
    """

    async def scenario(world: World) -> None:
        await world.has("crm")
        await world.write()
        late = world.written[0][2]
        world.partition.revoke()
        other = Member(world.member.log, "B")
        await other.lead()
        queued = row(Phase.QUEUED, delivery_id="dlv_crm", target="crm", budget=2)
        writing = asyncio.create_task(
            other.partition.write(Kind.REDRIVE, ACTIVITY_KEY + b"\x00crm", queued)
        )
        await other.settle_down(world.member)
        await writing
        await world.member.lead(2)

        assert [None] == await corrected(world, late)

    with_a_world(scenario)


def test_a_record_that_may_have_landed_behind_ours_is_corrected():
    """Ours is on its way as far as we know; it may lie before the one that we read."""

    async def scenario(world: World) -> None:
        await world.has("crm")
        world.takes_s = 2
        writing = asyncio.create_task(world.write())
        await asyncio.sleep(0.1)

        assert [world.expected()] == await corrected(world, None)
        await writing


def test_a_record_before_one_that_is_yet_to_be_appended_is_left_alone():
    """What we write next lands after it, and says what the rows say then."""

    async def scenario(world: World) -> None:
        await world.has("crm")
        await world.write()
        writing = asyncio.create_task(world.write())
        await asyncio.sleep(0)
        before = len(world.written)
        world.read_back(None)
        await asyncio.sleep(5)
        await writing

        assert before + 1 == len(world.written)

    with_a_world(scenario)


def test_the_place_read_up_to_is_kept_when_nothing_is_on_its_way():
    """Rule 10: a correction that a crash takes must be found to be needed again."""

    async def scenario(world: World) -> None:
        world.takes_s = 0.5
        await world.has("crm")
        assert world.letters.has_written_all(world.partition)
        world.read_back(None)
        assert not world.letters.has_written_all(world.partition)
        await asyncio.sleep(0.1)
        assert not world.letters.has_written_all(world.partition)
        await asyncio.sleep(1)
        assert world.letters.has_written_all(world.partition)

    with_a_world(scenario)


def test_an_activity_that_rests_is_forgotten():
    """What was written once must not stay in memory for ever."""

    async def scenario(world: World) -> None:
        await world.has("crm")
        await world.write()
        await asyncio.sleep(COMPLETE_MAX_S * 4)

        assert {} == world.letters._writing

    with_a_world(scenario)
