"""Any interleaving of two owners over the real `fold` and `decide`: one history, and its bounds hold.

The shell is reduced to what the rules of ledger.md say of it: append, wait for the own tail, repair what
is void, adopt what stands. What the whole engine makes of it is in tests/sim.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from streams.engine.rows import row_of
from streams.model.ledger import OWNER_KEY, FailurePhase, Kind, Phase, Row
from streams.model.policy import ACTIVITY
from streams.model.values import replace
from streams.model.verdict import Judgement, Verdict
from streams.rules.decide import (
    LOST,
    ClaimAsked,
    EffectMode,
    Event,
    Fresh,
    Judged,
    RedriveAsked,
    decide,
)
from streams.rules.fold import LedgerRecord, fold
from streams.wire.codec import decode_row, encode_row
from tests.sim.memory import MemoryStore, replay, without

KEY = b"urn:1\x00crm"
NOW = 1_767_225_600_000
POLICY = replace(ACTIVITY, max_attempts=3)
VERDICTS = {
    "sent": Judgement(verdict=Verdict.SENT, code="http_200", status=200),
    "busy": Judgement(
        verdict=Verdict.RETRY, code="http_503", phase=FailurePhase.REJECTED_TRANSIENT
    ),
    "refused": Judgement(
        verdict=Verdict.REFUSED, code="http_400", phase=FailurePhase.REJECTED_PERMANENT
    ),
    "unknown": Judgement(
        verdict=Verdict.AMBIGUOUS, code="read_reset", phase=FailurePhase.AMBIGUOUS_POST_CALL
    ),
}


@dataclass
class Worker:
    """One worker's view, what it appended and is not with the broker, and the claim that it holds."""

    name: str
    store: MemoryStore = field(default_factory=MemoryStore)
    pending: list[LedgerRecord] = field(default_factory=list)
    waits: set[tuple[bytes, int]] = field(default_factory=set)
    """Token and epoch of its own appends of the key that its tail has not folded: a claim's token alone
    is also another's report of it."""
    owner: bytes = b""
    epoch: int = -1
    calling: Row | None = None
    called_under: int = -1

    @property
    def leads(self) -> bool:
        return 0 <= self.epoch == self.store.epoch

    @property
    def row(self) -> Row | None:
        stored = self.store.get(KEY)
        return None if stored is None else row_of(stored)


class Ledger(RuleBasedStateMachine):
    """Two workers that believe what they have folded, and a broker that lands what it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[LedgerRecord] = []
        self.compacted = 0
        self.workers = {name: Worker(name) for name in "AB"}
        self.tokens = 0
        self.reference = MemoryStore()
        self.claims: dict[int, list[int]] = {}
        self.named: dict[bytes, int] = {}
        """Token of a REDRIVE to the budget whose dead letter its command named."""

    @initialize(idempotent=st.booleans())
    def choose(self, idempotent):
        self.idempotent = idempotent

    # -- the broker ---------------------------------------------------------------------------

    def token(self) -> bytes:
        self.tokens += 1
        return self.tokens.to_bytes(16, "big")

    def append(self, worker: Worker, kind: Kind, key: bytes, value: bytes | None, **head) -> None:
        worker.pending.append(LedgerRecord(offset=-1, kind=kind, key=key, value=value, **head))
        if key == KEY:
            worker.waits.add((head["token"], head["epoch"]))

    def land(self, record: LedgerRecord) -> None:
        landed = replace(record, offset=len(self.log))
        stored = self.reference.get(KEY)
        before = None if stored is None else row_of(stored)
        self.log.append(landed)
        valid = fold(self.reference, landed)
        if not valid or landed.kind is Kind.OWNER:
            return
        if landed.kind is Kind.CLAIM:
            row = decode_row(landed.value or b"")
            assert before is None or before.phase is not Phase.CLAIMED, "a claim over a claim"
            self.claims.setdefault(row.budget, []).append(row.attempts)
        elif landed.kind is Kind.REPORT and before is not None and before.token == landed.token:
            assert before.phase is Phase.CLAIMED, "a claim settled twice"
        elif landed.kind is Kind.REDRIVE:
            assert (Phase.DEAD, self.named[landed.token]) == (before.phase, before.budget)

    def readable(self) -> list[LedgerRecord]:
        return without(self.log, self.compacted)

    @rule(data=st.data())
    def happens(self, data):
        """One thing that can happen now."""
        name, move = data.draw(st.sampled_from(self.moves()))
        getattr(self, move)(self.workers[name], data)

    def moves(self) -> list[tuple[str, str]]:
        """Everything that can happen now: by whom, and what."""
        found = [("A", "compaction")]
        for name, worker in self.workers.items():
            row, free = worker.row, self.may_append(worker)
            is_open = row is None or row.phase in (Phase.QUEUED, Phase.WAITING)
            behind = worker.store.next < len(self.log)
            can = {
                "landing": 2 * bool(worker.pending),
                "tailing": 2 * behind,
                "catching_up": 5 * (behind or bool(worker.pending)),
                "owning": int(not worker.leads),
                "claiming": 6 * (free and is_open),
                "reporting": 6 * (worker.calling is not None and not worker.waits),
                "adopting": 3 * (free and row is not None and row.phase is Phase.CLAIMED),
                "redriving": 4 * (free and row is not None and row.phase is Phase.DEAD),
                "repairing": 3 * (free and KEY in worker.store.owed),
                "crashing": int(len(self.log) > 5),
            }
            found += [(name, move) for move, likely in can.items() for _ in range(likely)]
        return found

    def catching_up(self, worker, data):
        """What it appended lands, and its tail is at the end."""
        while worker.pending:
            self.land(worker.pending.pop(0))
        self.fold_on(worker, len(self.log))

    def landing(self, worker, data):
        """A worker's appends land in their order, whenever they do."""
        for _ in range(data.draw(st.integers(1, len(worker.pending)))):
            self.land(worker.pending.pop(0))

    def tailing(self, worker, data):
        """A worker folds on, from the log as compaction left it."""
        self.fold_on(worker, data.draw(st.integers(1, 3)))

    def fold_on(self, worker, number):
        readable = [r for r in self.readable() if r.offset >= worker.store.next]
        for record in readable[:number]:
            fold(worker.store, record)
            worker.waits.discard((record.token, record.epoch))
            if record.kind is Kind.OWNER and record.token == worker.owner:
                worker.epoch = record.offset
        worker.store.commit()

    def compaction(self, worker, data):
        """As far as the lag permits: it outlives every debt (rule 6)."""
        self.compacted = min([len(self.log), *self.reference.state.owed.values()])

    # -- a worker -----------------------------------------------------------------------------

    def may_append(self, worker: Worker) -> bool:
        """It leads, and none of its own appends of the key is outstanding (`serial`)."""
        return worker.leads and not worker.waits and worker.calling is None

    def decided(self, row: Row, event: Event) -> Row | None:
        return decide(row, event, now_ms=NOW, jitter=0.0, policy=POLICY, idempotent=self.idempotent)

    def settled(self, row: Row, judgement: Judgement) -> Row:
        made = self.decided(row, Judged(judgement))
        assert made is not None, "a claimed delivery can always be judged"
        return made

    def owning(self, worker, data):
        """It is assigned, or overrules a stray one (rule 2)."""
        worker.owner = self.token()
        self.append(worker, Kind.OWNER, OWNER_KEY, None, epoch=-1, token=worker.owner)

    def claiming(self, worker, data):
        """It finds the delivery open and asks for the next attempt (rule 3)."""
        fresh = Fresh(delivery_id="dlv_1", target="crm", admitted_ms=NOW).row()
        token = self.token()
        asked = self.decided(worker.row or fresh, ClaimAsked(token))
        assert asked is not None
        is_claim = asked.phase is Phase.CLAIMED
        kind = Kind.CLAIM if is_claim else Kind.REPORT
        self.append(worker, kind, KEY, encode_row(asked), epoch=worker.epoch, token=token)
        worker.calling, worker.called_under = (asked if is_claim else None), worker.epoch

    def reporting(self, worker, data):
        """Its claim was folded as valid and the call came back; or the claim was void (rule 4)."""
        (claim, worker.calling), row = (worker.calling, None), worker.row
        if row is None or row.token != claim.token or row.phase is not Phase.CLAIMED:
            return
        verdict = data.draw(st.sampled_from(["busy", "busy", *sorted(VERDICTS)]))
        settled = self.settled(row, VERDICTS[verdict])
        epoch, token = worker.called_under, claim.token
        self.append(worker, Kind.REPORT, KEY, encode_row(settled), epoch=epoch, token=token)

    def adopting(self, worker, data):
        """A foreign claim's lease ended, or its report came late (rule 5)."""
        late = data.draw(st.sampled_from([None, *sorted(VERDICTS)]))
        settled = self.settled(worker.row, LOST if late is None else VERDICTS[late])
        token = worker.row.token
        self.append(worker, Kind.REPORT, KEY, encode_row(settled), epoch=worker.epoch, token=token)

    def redriving(self, worker, data):
        """A command, in any number of copies, names a dead letter (rule 11)."""
        budget = data.draw(st.sampled_from([worker.row.budget, 1]))
        asked = RedriveAsked(f"dlv_1.{budget}", EffectMode.NEW_EXTERNAL_SEND)
        reopened = self.decided(worker.row, asked)
        if reopened is not None:
            value, token = encode_row(reopened), self.token()
            self.named[token] = budget
            self.append(worker, Kind.REDRIVE, KEY, value, epoch=worker.epoch, token=token)

    def repairing(self, worker, data):
        """What is void is written again, with nothing of our own outstanding (rule 6)."""
        value, token = (None if worker.row is None else encode_row(worker.row)), self.token()
        self.append(worker, Kind.REPAIR, KEY, value, epoch=worker.epoch, token=token)

    def crashing(self, worker, data):
        """The process is gone; some of its appends land, and its store is kept or lost."""
        for record in worker.pending[: data.draw(st.integers(0, 3))]:
            self.land(record)
        kept = worker.store.kept if data.draw(st.booleans()) else None
        self.workers[worker.name] = Worker(worker.name, store=MemoryStore(kept))

    # -- what must hold -----------------------------------------------------------------------

    @invariant()
    def no_budget_is_overdrawn(self):
        """O-001, O-002, C-12: each attempt once, and at most `max_attempts` of a budget."""
        for attempts in self.claims.values():
            assert list(range(1, len(attempts) + 1)) == attempts
            assert len(attempts) <= POLICY.max_attempts

    @invariant()
    def readers_at_one_place_agree(self):
        """Rule 1: live tail, recovery and read model are one function."""
        for worker in self.workers.values():
            if worker.store.next == self.reference.next:
                assert worker.store.state.facts() == self.reference.state.facts()

    @precondition(lambda self: self.log)
    @invariant()
    def a_new_reader_of_what_compaction_left_agrees(self):
        """Rules 4 and 6: whatever compaction took, from wherever the reader starts."""
        facts = self.reference.state.facts()
        assert replay(self.readable()).facts() == facts
        half = replay(self.log[: len(self.log) // 2])
        assert replay(self.readable(), half).facts() == facts


Ledger.TestCase.settings = settings(deadline=None, stateful_step_count=120, max_examples=60)
TestLedger = Ledger.TestCase
