"""Any interleaving of two owners over the real `fold` and `decide`: one history, and its bounds hold.

The shell is reduced to what the rules of ledger.md say of it: append, wait for the own tail, repair what
is void, adopt what stands. What the whole engine makes of it is in tests/sim.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from streams.engine.partition import _row
from streams.model.ledger import OWNER_KEY, FailurePhase, Kind, Phase, Row
from streams.model.policy import ACTIVITY
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
WORKERS = st.sampled_from("AB")


@dataclass
class Worker:
    """One worker's view, what it appended and is not with the broker, and the claim that it holds."""

    name: str
    store: MemoryStore = field(default_factory=MemoryStore)
    pending: list[LedgerRecord] = field(default_factory=list)
    waits: set[bytes] = field(default_factory=set)
    """Tokens of its own appends of the key that its tail has not folded."""
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
        return None if stored is None else _row(stored)


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

    @initialize(idempotent=st.booleans())
    def choose(self, idempotent):
        self.idempotent = idempotent

    # -- the broker ---------------------------------------------------------------------------

    def token(self) -> bytes:
        self.tokens += 1
        return self.tokens.to_bytes(16, "big")

    def append(self, worker: Worker, kind: Kind, key: bytes, value: bytes | None, **head) -> None:
        worker.pending.append(
            LedgerRecord(offset=-1, kind=kind, key=key, value=value, **head)
        )
        if key == KEY:
            worker.waits.add(head["token"])

    def land(self, record: LedgerRecord) -> None:
        landed = replace(record, offset=len(self.log))
        stored = self.reference.get(KEY)
        before = None if stored is None else _row(stored)
        self.log.append(landed)
        valid = fold(self.reference, landed)
        if landed.kind is Kind.CLAIM and valid:
            row = decode_row(landed.value or b"")
            assert before is None or before.phase is not Phase.CLAIMED, "a claim over a claim"
            self.claims.setdefault(row.budget, []).append(row.attempts)

    @rule(name=WORKERS, number=st.integers(1, 4))
    def some_land(self, name, number):
        """A worker's appends land in their order, whenever they do."""
        worker = self.workers[name]
        for _ in range(min(number, len(worker.pending))):
            self.land(worker.pending.pop(0))

    @rule(name=WORKERS, number=st.integers(1, 6))
    def tail(self, name, number):
        """A worker folds on, from the log as compaction left it."""
        worker = self.workers[name]
        readable = [r for r in self.readable() if r.offset >= worker.store.next]
        for record in readable[:number]:
            fold(worker.store, record)
            worker.waits.discard(record.token)
            if record.kind is Kind.OWNER and record.token == worker.owner:
                worker.epoch = record.offset
        worker.store.commit()

    def readable(self) -> list[LedgerRecord]:
        return without(self.log, self.compacted)

    @rule()
    def compact(self):
        """As far as the lag permits: it outlives every debt (rule 6)."""
        self.compacted = min([len(self.log), *self.reference.state.owed.values()])

    # -- a worker -----------------------------------------------------------------------------

    @rule(name=WORKERS)
    def own(self, name):
        """It is assigned, or overrules a stray one (rule 2)."""
        worker = self.workers[name]
        worker.owner = self.token()
        self.append(worker, Kind.OWNER, OWNER_KEY, None, epoch=-1, token=worker.owner)

    def decided(self, row: Row, event: Event) -> Row | None:
        return decide(
            row, event, now_ms=NOW, jitter=0.0, policy=POLICY, idempotent=self.idempotent
        )

    def may_append(self, worker: Worker) -> bool:
        """It leads, and none of its own appends of the key is outstanding (`serial`)."""
        return worker.leads and not worker.waits and worker.calling is None

    @rule(name=WORKERS)
    def claim(self, name):
        """It finds the delivery open and asks for the next attempt (rule 3)."""
        worker = self.workers[name]
        if not self.may_append(worker):
            return
        fresh = Fresh(delivery_id="dlv_1", target="crm", admitted_ms=NOW).row()
        token = self.token()
        asked = self.decided(worker.row or fresh, ClaimAsked(token))
        if asked is not None:
            kind = Kind.CLAIM if asked.phase is Phase.CLAIMED else Kind.REPORT
            self.append(
                worker, kind, KEY, encode_row(asked), epoch=worker.epoch, token=token
            )
            worker.called_under = worker.epoch
            worker.calling = asked if kind is Kind.CLAIM else None

    @rule(name=WORKERS, verdict=st.sampled_from(sorted(VERDICTS)))
    def report(self, name, verdict):
        """Its claim was folded as valid and the call came back; or the claim was void (rule 4)."""
        worker = self.workers[name]
        if worker.calling is None or worker.waits:
            return
        claim, worker.calling = worker.calling, None
        row = worker.row
        if row is None or row.token != claim.token or row.phase is not Phase.CLAIMED:
            return
        settled = self.decided(row, Judged(VERDICTS[verdict]))
        self.append(
            worker,
            Kind.REPORT,
            KEY,
            encode_row(settled),
            epoch=worker.called_under,
            token=claim.token,
        )

    @rule(name=WORKERS, late=st.sampled_from([None, *sorted(VERDICTS)]))
    def adopt(self, name, late):
        """A foreign claim's lease ended, or its report came late (rule 5)."""
        worker = self.workers[name]
        row = worker.row
        if not self.may_append(worker) or row is None or row.phase is not Phase.CLAIMED:
            return
        settled = self.decided(row, Judged(LOST if late is None else VERDICTS[late]))
        self.append(
            worker, Kind.REPORT, KEY, encode_row(settled), epoch=worker.epoch, token=row.token
        )

    @rule(name=WORKERS, budget=st.integers(1, 3))
    def redrive(self, name, budget):
        """A command, in any number of copies, names a dead letter (rule 11)."""
        worker = self.workers[name]
        if not self.may_append(worker) or worker.row is None:
            return
        asked = RedriveAsked(f"dlv_1.{budget}", EffectMode.NEW_EXTERNAL_SEND)
        reopened = self.decided(worker.row, asked)
        if reopened is not None:
            self.append(
                worker,
                Kind.REDRIVE,
                KEY,
                encode_row(reopened),
                epoch=worker.epoch,
                token=self.token(),
            )

    @rule(name=WORKERS)
    def repair(self, name):
        """What is void is written again, with nothing of our own outstanding (rule 6)."""
        worker = self.workers[name]
        if self.may_append(worker) and KEY in worker.store.owed:
            row = worker.row
            value = None if row is None else encode_row(row)
            self.append(
                worker, Kind.REPAIR, KEY, value, epoch=worker.epoch, token=self.token()
            )

    @rule(name=WORKERS, lands=st.integers(0, 3), keeps=st.booleans())
    def crash(self, name, lands, keeps):
        """The process is gone; some of its appends land, and its store is kept or lost."""
        worker = self.workers[name]
        for record in worker.pending[:lands]:
            self.land(record)
        kept = worker.store.kept if keeps else None
        self.workers[name] = Worker(name, store=MemoryStore(kept))

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


Ledger.TestCase.settings = settings(deadline=None, stateful_step_count=60, max_examples=150)
TestLedger = Ledger.TestCase
