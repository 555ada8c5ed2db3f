"""Watches everything that lands, is called and is committed, and says what must never happen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

from streams.engine.ledger_log import ledger_records
from streams.engine.rows import row_of
from streams.errors import RecordError
from streams.model.ledger import SEPARATOR, ActivityRow, Kind, Phase, Row
from streams.rules.decide import CODE_EXPIRED
from streams.rules.fold import LedgerRecord, fold
from streams.rules.identity import delivery_id, delivery_key
from streams.rules.triggers import letters_of, receipt_of
from streams.wire.activity import read_activity
from streams.wire.codec import (
    decode_activity_row,
    decode_dead_letter,
    decode_receipt,
    encode_dead_letter,
)
from streams.wire.records import read_retry_headers
from tests.sim.bounds import ENDLESS, Bounds, Owed
from tests.sim.broker import BASE_MS, Broker
from tests.sim.memory import MemoryStore, Record, name, replay, without
from tests.sim.target import LONGEST_WAIT_MS, Call, Script


@dataclass
class Oracle:
    """The reference reader of the ledger, and the promises of spec.md and ledger.md.

    Attributes:
        max_attempts: Of every target.
        wrong: What broke a promise, in words; a run with any has failed.
    """

    broker: Broker
    script: Script
    max_attempts: int
    bounds: Bounds = ENDLESS
    wrong: list[str] = field(default_factory=list)
    log: list[LedgerRecord] = field(default_factory=list)
    reader: MemoryStore = field(default_factory=MemoryStore)
    claims: dict[bytes, tuple[bytes, bool, int, int]] = field(default_factory=dict)
    """Token to the delivery, whether it is valid, its offset, and how often the delivery was forgotten."""
    forgotten: dict[bytes, int] = field(default_factory=dict)
    """Deliveries that nobody asked for again since they were forgotten, and when they were settled."""
    skew_ms: int = 0
    """How wrong a wall clock has ever been."""
    burials: int = 0
    expired: int = 0
    parked: int = 0
    owed: dict[bytes, Owed] = field(default_factory=dict)
    replayed: set[tuple[bytes, int]] = field(default_factory=set)
    """Deliveries whose trigger came again after a redrive, with the budget that it opened."""

    def __post_init__(self) -> None:
        self._claims_of: dict[tuple[bytes, int, int], set[int]] = {}
        self._lives: dict[bytes, list[int]] = {}
        self._buried: set[bytes] = set()
        self._commands: dict[bytes, int] = {}
        self._produced_ms: dict[bytes, int] = {}
        self._sources: dict[bytes, int] = {}
        self._carried: dict[str, dict[str, int]] = {}
        self._receipts: set[tuple[str, str, int]] = set()
        self._told: set[str] = set()
        self._letters: dict[bytes, bytes | None] = {}
        self._seen_rows: dict[tuple[bytes, int], Row] = {}
        self.broker.on_land.append(self.landed)
        self.broker.on_commit = self.committed

    def violated(self, promise: str) -> None:
        """Note a broken promise."""
        self.wrong.append(f"{self.broker.loop.time():9.3f}  {promise}")

    # -- rows ---------------------------------------------------------------------------------

    def row(self, key: bytes) -> Row | None:
        """A delivery's row as the whole log says."""
        stored = self.reader.get(key)
        return None if stored is None else row_of(stored)

    def rows(self, activity_key: bytes) -> list[Row]:
        """The rows of an activity's deliveries."""
        return [row_of(stored) for _, stored in self.reader.under(activity_key + SEPARATOR)]

    # -- what lands ---------------------------------------------------------------------------

    def landed(self, record: Record) -> None:
        """Take note of a record."""
        match record.topic:
            case "ledger":
                self._ledger(record)
            case "outbox":
                self._source(record)
            case "outbox.receipts":
                receipt = decode_receipt(record.value or b"")
                if receipt.delivery_id is not None:
                    self._receipts.add(
                        (receipt.delivery_id, receipt.verdict.value, receipt.settled_ms)
                    )
            case "outbox.dead-letters":
                self._letter(record)
            case "outbox.commands":
                self._commands[record.key or b""] = record.offset
            case "outbox.quarantine":
                self.violated(f"a good record was rejected: {record.key!r}")
            case topic if topic.startswith("outbox.retry."):
                for item in read_retry_headers(record.headers)[1]:
                    self._carried.setdefault(item.delivery_id, {})[topic] = record.offset
                    self.parked += bool(item.parked_since_ms)

    def _ledger(self, record: Record) -> None:
        (entry,) = ledger_records([record])
        self.log.append(entry)
        is_delivery = entry.kind is not Kind.OWNER and SEPARATOR in entry.key
        before = self.row(entry.key) if is_delivery else None
        valid = fold(self.reader, entry)
        if not is_delivery:
            if valid:
                is_burial = entry.kind is Kind.REPORT and entry.value is None
                (self._buried.add if is_burial else self._buried.discard)(entry.key)
            return
        row, life = self.row(entry.key), len(self._lives.get(entry.key, ()))
        if entry.kind is Kind.CLAIM:
            self.claims[entry.token] = (entry.key, valid, entry.offset, life)
        if valid and row is None and before is not None:
            self._forgets(entry, before)
        if not valid or row is None:
            return
        self.forgotten.pop(entry.key, None)
        self._check_age(entry, row)
        self._seen_rows[entry.key, row.budget] = row
        if entry.kind is Kind.CLAIM:
            if before is not None and before.phase.is_settled:
                self.violated(f"{name(entry.key)}: claimed what is {before.phase}")
            spent = self._claims_of.setdefault((entry.key, life, row.budget), set())
            if row.attempts in spent:
                self.violated(f"{name(entry.key)}: attempt {row.attempts} was claimed twice")
            spent.add(row.attempts)
            if len(spent) > self.max_attempts:
                self.violated(f"{name(entry.key)}: {len(spent)} claims in budget {row.budget}")

    def _forgets(self, entry: LedgerRecord, row: Row) -> None:
        """A tombstone over a row: only what is settled goes, and not before its window is over."""
        if row.phase not in (Phase.SENT, Phase.SKIPPED):
            self.violated(f"{name(entry.key)}: forgotten while it was {row.phase}")
        known_ms = self.now_ms - row.settled_ms
        if known_ms < self.bounds.window_ms - 2 * self.skew_ms:
            self.violated(f"{name(entry.key)}: forgotten after {known_ms} ms")
        self.burials += 1
        self._lives.setdefault(entry.key, []).append(row.settled_ms)
        self.forgotten[entry.key] = row.settled_ms

    def _check_age(self, entry: LedgerRecord, row: Row) -> None:
        """Nothing expires before its time, or before a retry would be past it (C-17)."""
        if entry.kind is Kind.REPORT and row.phase is Phase.DEAD and row.code == CODE_EXPIRED:
            self.expired += 1
            age_ms = self.now_ms - row.admitted_ms + (LONGEST_WAIT_MS if row.attempts else 0)
            is_old = self._produced_ms.get(entry.key.partition(SEPARATOR)[0], 0) < (
                self.now_ms - self.bounds.window_ms + self.skew_ms
            )
            if age_ms < self.bounds.max_age_ms - 2 * self.skew_ms and not is_old:
                self.violated(f"{name(entry.key)}: expired after {age_ms} ms")

    @property
    def now_ms(self) -> int:
        """The true time."""
        return BASE_MS + int(self.broker.loop.time() * 1000)

    def _source(self, record: Record) -> None:
        try:
            activity = read_activity(record.value, max_bytes=10_000, max_depth=8)
        except RecordError:
            self.violated("the simulation produced what cannot be read")
            return
        self._sources[activity.key] = record.offset
        self._produced_ms[activity.key] = record.timestamp
        if self.reader.get(activity.key) is None:
            for key in [k for k, o in self.owed.items() if o.activity.key == activity.key]:
                if key in self.forgotten:  # a new activity, whatever it was before
                    del self.forgotten[key], self.owed[key]
        first = next((o for o in self.owed.values() if o.activity.key == activity.key), None)
        if first is not None and first.activity.body != activity.body:
            return  # a conflict: nothing is owed for it
        for recipient in activity.recipients:
            key = delivery_key(activity, recipient)
            self.owed.setdefault(key, Owed(key, delivery_id(activity, recipient), activity))

    def _letter(self, record: Record) -> None:
        self._letters[record.key or b""] = record.value
        if record.value is not None:
            self._told |= {
                entry.dead_letter_id for entry in decode_dead_letter(record.value).deliveries
            }

    # -- what is called -----------------------------------------------------------------------

    def called(self, call: Call) -> None:
        """Check a call at the moment in which it leaves."""
        row, who = call.row, f"{name(call.key)} attempt {call.row.attempts}"
        claim = self.claims.get(row.token)
        call.life = 0 if claim is None else claim[3]
        if claim is None or not claim[1] or claim[2] != row.fence:
            self.violated(f"{who}: called without a valid claim in the log (D-001)")
        before = [
            c
            for c in self.script.calls
            if c is not call and (c.key, c.life, c.row.budget) == (call.key, call.life, row.budget)
        ]
        if call.life:
            settled_ms = self._lives[call.key][call.life - 1]
            produced_ms = self._produced_ms[call.key.partition(SEPARATOR)[0]]
            if produced_ms < settled_ms - 3 * self.skew_ms:
                self.violated(f"{who}: called again after it was settled and forgotten (D-006)")
        if any(c.row.attempts == row.attempts for c in before):
            self.violated(f"{who}: called twice")
        if len(before) >= self.max_attempts:
            self.violated(f"{who}: call {len(before) + 1} of its budget (O-001)")
        is_idempotent = row.target.startswith("idem")
        if not is_idempotent and any(c.may_have_happened for c in before):
            self.violated(f"{who}: a second effect is possible (D-010, D-011)")

    # -- what is committed --------------------------------------------------------------------

    def committed(self, who: str, offsets: Mapping[str, int]) -> None:
        """No acknowledged offset may pass what still needs its record (C-15, rule 9)."""
        for owed in self.owed.values():
            if not self.is_carried(owed) and (why := self._unfinished(owed)):
                self.violated(f"{name(owed.key)}: {who} acknowledged its last trigger: {why}")

    def is_carried(self, owed: Owed) -> bool:
        """Whether a record that will make it move is not acknowledged."""
        committed = self.broker.committed
        if self._unreplayed(owed):
            return True  # its caller knows that it was redriven, and has yet to replay it (D-075)
        if self._sources[owed.activity.key] >= committed.get("outbox", 0):
            return True
        if self._commands.get(owed.activity.key, -1) >= committed.get("outbox.commands", 0):
            return True  # a cancel tells its receipt before it is acknowledged
        carried = self._carried.get(owed.delivery_id, {})
        return any(offset >= committed.get(topic, 0) for topic, offset in carried.items())

    def _unfinished(self, owed: Owed) -> str:
        """Why a delivery cannot do without a trigger; empty when it can."""
        row = self.row(owed.key)
        if row is None:
            return "" if owed.key in self.forgotten else "it has no row"
        if row.phase is Phase.QUEUED:
            return "it was redriven and waits for its replay"
        if not row.phase.is_settled:
            return f"it is {row.phase}"
        if not self._has_receipt(owed, row):
            return f"it is {row.phase} and has no receipt"
        if row.phase is Phase.DEAD and row.letter_id not in self._told:
            return "it is dead and has no dead letter"
        return ""

    def _unreplayed(self, owed: Owed) -> str:
        row = self.row(owed.key)
        waits = row is not None and row.budget > 1 and (owed.key, row.budget) not in self.replayed
        waits = waits and not self.is_in(owed.key, Phase.SKIPPED)  # cancelled before
        return "its caller has not replayed it yet" if waits else ""

    def _has_receipt(self, owed: Owed, row: Row) -> bool:
        receipt = receipt_of(row, owed.activity.activity_id, owed.activity.tenant)
        assert receipt is not None
        found = (owed.delivery_id, receipt.verdict.value, receipt.settled_ms)
        return found in self._receipts

    # -- what is left in the end --------------------------------------------------------------

    def unsettled(self) -> list[str]:
        """What is not done yet; empty when the world is at rest."""
        left = [
            f"{name(owed.key)}: {why}"
            for owed in self.owed.values()
            if (why := self._unfinished(owed) or self._unreplayed(owed))
        ]
        left += [f"{name(key)}: owes a repair" for key in self.reader.owed]
        for topic, held in self.broker.topics.items():
            is_consumed = topic in ("outbox", "outbox.commands") or "retry" in topic
            if is_consumed and self.broker.committed.get(topic, 0) < held.end:
                left.append(f"{topic}: committed {self.broker.committed.get(topic)} of {held.end}")
        return left + self._wrong_letters()

    def _wrong_letters(self) -> list[str]:
        wrong = []
        for key in {owed.activity.key for owed in self.owed.values()}:
            stored = self.reader.get(key)
            activity = None if stored is None else decode_activity_row(stored.value)
            mine = [o.key for o in self.owed.values() if o.activity.key == key]
            # Of a burial that was cut short, rows of deliveries are left: settled ones.
            is_over = all(
                k in self.forgotten or self.is_in(k, Phase.SENT, Phase.SKIPPED) for k in mine
            )
            if activity is None and not (key in self._buried and is_over):
                wrong.append(f"{name(key)}: its activity has no row")
                continue
            letter = None if activity is None else letters_of(activity, self.rows(key))
            expected = None if letter is None else encode_dead_letter(letter)
            if self._letters.get(key) != expected:
                wrong.append(f"{name(key)}: the dead letter is not what the ledger says (rule 10)")
            if activity is not None and not any(k in self._lives for k in mine):
                wrong += self._wrong_admission(key, activity)
        return wrong

    def remembered(self) -> list[str]:
        """What is settled and still known, in a world that has grown old; dead letters stay."""
        rows = [key for key in self.reader.state.rows if SEPARATOR in key]
        stay = {key.partition(SEPARATOR)[0] for key in rows if self.is_in(key, Phase.DEAD)}
        left = [k for k in self.reader.state.rows if k.partition(SEPARATOR)[0] not in stay]
        return [f"{name(key)} is still known" for key in left]

    def is_in(self, key: bytes, *phases: Phase) -> bool:
        """Whether a delivery has a row, in one of these phases."""
        row = self.row(key)
        return row is not None and row.phase in phases

    def _wrong_admission(self, key: bytes, activity: ActivityRow) -> list[str]:
        owed = sum(1 for o in self.owed.values() if o.activity.key == key)
        if activity.deliveries != owed:
            return [f"{name(key)}: its row knows {activity.deliveries} of {owed} deliveries"]
        return []

    def check_readers(self, rng: Random, stores: dict[str, MemoryStore]) -> None:
        """Every reader agrees, whatever compaction took and wherever it started (rule 1)."""
        facts = self.reader.state.facts()
        for machine, store in stores.items():
            if store.next == self.reader.next and store.state.facts() != facts:
                self.violated(f"{machine}'s rows are not what the log says")
        boundary = self.boundary()
        kept = without(self.log, boundary)
        for start in {0, *(rng.randint(0, self.reader.next) for _ in range(2))}:
            before = replay([r for r in self.log if r.offset < start])
            rows, owed, epoch = replay(kept, before).facts()
            if (rows, owed, epoch) != facts:
                self.violated(
                    f"a reader from {start} of the log compacted to {boundary} sees other rows"
                )

    def boundary(self) -> int:
        """How far compaction may reach: up to the oldest debt, for the lag outlives it (rule 6)."""
        return min([self.reader.next, *self.reader.state.owed.values()])
