"""The crash windows 1-14 of faust.md §12: a worker dies, freezes or fails at exactly that line.

What a target may see, and what never, stands in docs/guarantees.md with the name of each test. Beside
its own claim every test holds the whole history, of all tests so far, against the chaos checker.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from streams.edge.receiver import Receiver
from streams.model.receipt import Outcome
from tests.chaos.checker import check
from tests.chaos.folding import fold
from tests.chaos.history import History
from tests.chaos.recorder import Recorder
from tests.chaos.story import tell
from tests.integration.worker_process import WorkerProcess
from tests.integration.world import Produced, World

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

QUICK = {"partitions": 1, "session_timeout_ms": 3000} | {
    f"policy_{policy}_{name}": value
    for policy in ("activity", "notification")
    for name, value in (("timeout_ms", 1200), ("lease_ms", 3300))
}


class Windows:
    """One world for all windows; each test gives it a worker that ends or freezes at a line."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.history = History(max_attempts=3, strict=frozenset({"strict", "slow"}))
        self.recorder = Recorder(
            world.brokers, world.topics, 1, self.history, world.folder / "receiver.log"
        )
        self._count = 0

    def inbox(self, path: str = "/ok") -> Produced:
        """An activity for an inbox of its own: idempotent."""
        self._count += 1
        return self.world.activity(f"urn:w:{self._count}", f"{path}/w{self._count}")

    def named(self, target: str = "strict") -> Produced:
        """An activity for a target that is not idempotent."""
        self._count += 1
        return self.world.to_target(f"urn:w:{self._count}", target)

    async def armed(self, failpoint: str, name: str = "w1") -> WorkerProcess:
        """A worker that leads and has this failpoint."""
        return await self.world.work(name, failpoint=failpoint)

    async def dies(self, failpoint: str, *activities: Produced) -> None:
        """Produce under a worker that is killed at the line, then start it again without failpoint."""
        worker = await self.armed(f"{failpoint}:kill")
        await self.world.produce(*activities)
        assert -signal.SIGKILL == await worker.ended(), worker.tail()
        await self.world.work("w1")

    async def freezes(self, failpoint: str, *activities: Produced) -> WorkerProcess:
        """Produce under a worker that freezes at the line, and let a second one take over."""
        worker = await self.armed(f"{failpoint}:freeze")
        await self.world.produce(*activities)
        await self.world.until(lambda: _is_stopped(worker), f"a freeze at {failpoint}")
        await self.world.work("w2")
        return worker

    async def settled(self, *activities: Produced) -> None:
        """Wait for the receipts."""
        await self.world.until_settled(*activities)

    def calls(self, activity: Produced) -> list[int | None]:
        """The attempt numbers of an activity's calls, in order."""
        return [c.attempt for c in self.world.receiver.calls if c.body == activity.body]

    def outcome(self, activity: Produced) -> tuple[Outcome, int]:
        """The one verdict that its receipts agree on, and the claims spent."""
        (told,) = {(r.verdict, r.attempts) for r in self.world.receipts[activity.activity_id]}
        return told

    async def hold(self) -> None:
        """Every promise of the checker, over all that was written so far."""

        async def kept() -> bool:
            await self.recorder.look()
            return not check(self.history, at_rest=True)

        try:
            await self.world.until_true(kept, "every promise to be kept", within_s=30.0)
        except AssertionError:
            found = check(self.history, at_rest=True)
            stories = {v.activity.partition(" → ")[0] for v in found}
            told = "\n".join(tell(self.history, activity) for activity in sorted(stories)[:3])
            raise AssertionError("\n".join([*map(str, found), told, self.world.told()])) from None

    async def until_void(self, more_than: int) -> None:
        """Wait until a record of a superseded owner has landed."""
        await self.world.until(
            lambda: len(fold(self.history.ledger).void) > more_than, "a void record"
        )

    @property
    def voids(self) -> int:
        """How many void records there are."""
        return len(fold(self.history.ledger).void)


def _is_stopped(worker: WorkerProcess) -> bool:
    """Whether it stands still by a SIGSTOP (Linux: state T of its main thread)."""
    stat = Path(f"/proc/{worker.process.pid}/stat").read_text()
    return stat.rpartition(")")[2].split()[0] == "T"


def _thaw(worker: WorkerProcess) -> None:
    worker.process.send_signal(signal.SIGCONT)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def windows(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Windows]:
    folder = tmp_path_factory.mktemp("windows")
    receiver = Receiver(log=folder / "receiver.log")
    async with World(kafka, folder, dict(QUICK), receiver) as world:
        await world.register("strict", "/ok/strict")
        await world.register("slow", "/slow/500/strict")
        windows = Windows(world)
        await windows.recorder.start()
        yield windows
        await windows.recorder.stop()


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def _no_worker_is_left(windows: Windows) -> AsyncIterator[None]:
    yield
    for worker in windows.world.workers:
        await worker.end()
    windows.world.workers.clear()


async def test_window_1_a_death_before_the_claim_spends_nothing(windows: Windows) -> None:
    """
    Window 1, D-001: nothing was written; the record is not acknowledged and comes again.
    """
    inbox, named = windows.inbox(), windows.named()

    await windows.dies("before_claim", inbox, named)

    await windows.settled(inbox, named)
    assert ([1], [1]) == (windows.calls(inbox), windows.calls(named))
    assert (Outcome.SENT, 1) == windows.outcome(inbox) == windows.outcome(named)
    await windows.hold()


async def test_window_2_a_death_between_claim_and_call_spends_the_attempt(
    windows: Windows,
) -> None:
    """
    Window 2, C-01, C-07: nobody can tell that no call was made, so a target that is not idempotent
    gets none, ever; an idempotent one gets the next attempt.
    """
    inbox, named = windows.inbox(), windows.named()

    await windows.dies("before_call", inbox, named)

    await windows.settled(inbox, named)
    assert [2] == windows.calls(inbox)
    assert [] == windows.calls(named)
    assert (Outcome.SENT, 2) == windows.outcome(inbox)
    assert (Outcome.AMBIGUOUS, 1) == windows.outcome(named)
    await windows.hold()
    await windows.world.until(lambda: named.key.decode() in windows.world.letters, "the letter")
    assert windows.world.letter(named).reconciliation_required


@pytest.mark.parametrize("target", ["inbox", "named"])
async def test_window_3_a_death_after_the_answer_repeats_only_what_may_be_repeated(
    windows: Windows, target: str
) -> None:
    """
    Window 3, C-07, D-011: the answer is lost; an idempotent target is called again under the same id.
    """
    activity = windows.inbox() if target == "inbox" else windows.named()

    await windows.dies("called", activity)

    await windows.settled(activity)
    calls = [c for c in windows.world.receiver.calls if c.body == activity.body]
    expected = [1, 2] if target == "inbox" else [1]
    assert expected == [c.attempt for c in calls]
    assert len({c.id for c in calls}) == 1
    assert windows.outcome(activity)[0] is (
        Outcome.SENT if target == "inbox" else Outcome.AMBIGUOUS
    )
    await windows.hold()


async def test_window_4_a_death_before_the_report_is_folded_repeats_nothing(
    windows: Windows,
) -> None:
    """
    Window 4: the report is durable; the next owner folds it and drops the record.
    """
    named = windows.named()

    await windows.dies("report_unfolded", named)

    await windows.settled(named)
    assert [1] == windows.calls(named)
    assert (Outcome.SENT, 1) == windows.outcome(named)
    await windows.hold()


@pytest.mark.parametrize(("window", "failpoint"), [(5, "retry_unwritten"), (6, "retry_written")])
async def test_windows_5_and_6_a_death_around_the_retry_record_neither_loses_nor_doubles_it(
    windows: Windows, window: int, failpoint: str
) -> None:
    """
    Windows 5 and 6, rule 8: the redelivered record writes the retry again; a second copy is dropped.
    """
    inbox = windows.inbox("/flaky/1")

    await windows.dies(failpoint, inbox)

    await windows.settled(inbox)
    assert [1, 2] == windows.calls(inbox)
    assert (Outcome.SENT, 2) == windows.outcome(inbox)
    await windows.hold()


async def test_window_7_a_death_before_the_dead_letter_loses_no_dead_letter(
    windows: Windows,
) -> None:
    """
    Window 7, O-018, rule 8: the row is dead; the redelivered record writes the letter.
    """
    inbox = windows.inbox("/status/400")

    await windows.dies("letter_unwritten", inbox)

    await windows.settled(inbox)
    assert [1] == windows.calls(inbox)
    await windows.hold()
    await windows.world.until(lambda: inbox.key.decode() in windows.world.letters, "the letter")
    assert "http_400" == windows.world.letter(inbox).code


async def test_window_8_a_lost_commit_repeats_nothing(windows: Windows) -> None:
    """
    Window 8: all is done but the acknowledgement; the redelivered record finds a settled row.
    """
    inbox, named = windows.inbox(), windows.named()

    await windows.dies("before_commit", inbox, named)

    await windows.settled(inbox, named)
    await windows.hold()
    assert ([1], [1]) == (windows.calls(inbox), windows.calls(named))


@pytest.mark.parametrize("store", ["behind", "gone"])
async def test_window_9_a_store_that_is_behind_or_gone_is_made_up_from_the_log(
    windows: Windows, store: str
) -> None:
    """
    Window 9: the store is a copy; what it lacks is folded before anybody leads.
    """
    named, inbox = windows.named(), windows.inbox("/flaky/1")
    # The third fold after OWNER: past the claims, before the retry is known to the store.
    worker = await windows.armed("store_behind:kill:5")
    await windows.world.produce(named, inbox)
    assert -signal.SIGKILL == await worker.ended(), worker.tail()
    if store == "gone":
        shutil.rmtree(windows.world.folder / "w1")
    await windows.world.work("w1")

    await windows.settled(named, inbox)
    assert len(windows.calls(named)) <= 1
    assert len(windows.calls(inbox)) <= 3
    await windows.hold()


@pytest.mark.parametrize("target", ["inbox", "named"])
async def test_window_10_a_frozen_workers_call_in_flight_counts_once(
    windows: Windows, target: str
) -> None:
    """
    Window 10, D-004: the next owner waits for the lease, then settles the claim; the frozen worker's
    own report comes too late and changes nothing.
    """
    activity = windows.inbox() if target == "inbox" else windows.named()
    voids = windows.voids
    frozen = await windows.freezes("in_call", activity)
    await windows.settled(activity)
    told = windows.outcome(activity)

    _thaw(frozen)

    await windows.until_void(voids)
    await windows.hold()
    expected = ([1, 2], (Outcome.SENT, 2)) if target == "inbox" else ([1], (Outcome.AMBIGUOUS, 1))
    assert expected == (windows.calls(activity), told)
    assert told == windows.outcome(activity)


async def test_window_11_a_frozen_workers_later_claims_are_void_and_call_nobody(
    windows: Windows,
) -> None:
    """
    Window 11, D-004: the claim lands behind the next OWNER, folds void, is repaired; no call is made.
    """
    named = windows.named()
    voids = windows.voids
    frozen = await windows.freezes("before_claim", named)
    await windows.settled(named)

    _thaw(frozen)

    await windows.until_void(voids)
    await windows.hold()
    assert [1] == windows.calls(named)
    assert (Outcome.SENT, 1) == windows.outcome(named)


@pytest.mark.parametrize("target", ["inbox", "named"])
async def test_window_12_a_freeze_between_lease_check_and_call_gives_one_late_call_at_most(
    windows: Windows, target: str
) -> None:
    """
    Window 12: only the target could fence this call off. It is the attempt that the claim granted; a
    target that is not idempotent is called by nobody else.
    """
    activity = windows.inbox() if target == "inbox" else windows.named()
    frozen = await windows.freezes("before_call", activity)
    await windows.settled(activity)
    told = windows.outcome(activity)

    _thaw(frozen)

    await windows.world.until(lambda: 1 in windows.calls(activity), "the frozen worker's call")
    await windows.hold()
    expected = [2, 1] if target == "inbox" else [1]
    assert expected == windows.calls(activity)
    assert told == windows.outcome(activity)


async def test_window_13_a_debt_outlives_the_owner_that_saw_it(windows: Windows) -> None:
    """
    Window 13, rule 6: the owner dies before it repairs a void record; the next one pays.
    """
    named = windows.named()
    voids = windows.voids
    frozen = await windows.armed("before_claim:freeze")
    await windows.world.produce(named)
    await windows.world.until(lambda: _is_stopped(frozen), "a freeze before the claim")
    owner = await windows.armed("repair_unwritten:kill", "w2")
    await windows.settled(named)
    _thaw(frozen)
    assert -signal.SIGKILL == await owner.ended(), owner.tail()
    frozen.kill()

    await windows.world.work("w2")

    await windows.until_void(voids)
    await windows.hold()
    assert set() == fold(windows.history.ledger).owed
    assert [1] == windows.calls(named)


async def test_window_14_a_failed_append_ends_the_worker_and_loses_nothing(
    windows: Windows,
) -> None:
    """
    Window 14, rule 12: nothing more can be promised; the process ends with a reason.
    """
    named = windows.named()
    worker = await windows.armed("append:raise:4")
    await windows.world.produce(named)
    assert 1 == await worker.ended()
    (told,) = worker.events("worker.ended")
    assert "an append failed" in told["reason"]

    await windows.world.work("w1")

    await windows.settled(named)
    assert len(windows.calls(named)) <= 1
    await windows.hold()
