"""The read model: what the ledger, the dead letters, the audit and the registry say, as operators see it.

Rows come from the same `fold` that workers run, so the two cannot disagree (ledger.md, rule 1).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import msgspec
import structlog
from aiokafka import ConsumerRecord

from streams.api.database import HASH_BYTES, Database, Writes
from streams.api.shapes import (
    UNREADABLE,
    SeenActivity,
    SeenAudit,
    SeenDelivery,
    SeenLetter,
    letter_of,
    letter_of_audit,
    letter_of_row,
    owner_of,
    seen_activity,
    seen_delivery,
    short_hash,
)
from streams.api.tokens import AUDIT, TARGETS, Positions, ledger_name, letters_name
from streams.engine.ledger_log import ledger_records
from streams.errors import RecordError
from streams.model.ledger import SEPARATOR, Row
from streams.model.target import TargetRecord, TargetState
from streams.rules.fold import LedgerRecord, fold
from streams.rules.identity import activity_key_of
from streams.wire.audit import AuditRecord, decode_audit
from streams.wire.codec import decode_activity_row, decode_dead_letter, decode_row
from streams.wire.targets import decode_target, decode_target_state

log = structlog.get_logger(__name__)

Record: TypeAlias = ConsumerRecord[bytes, bytes]
STATE_SUFFIX: Final = "/state"


class _Folding:
    """One ledger partition as `fold` writes to it: what changed since the last commit."""

    def __init__(self, epoch: int, next_offset: int) -> None:
        self.epoch = epoch
        self.next = next_offset
        self.changed: dict[bytes, bytes | None] = {}

    def put(self, key: bytes, fence: int | None, value: bytes) -> None:
        self.changed[key] = value

    def delete(self, key: bytes) -> None:
        self.changed[key] = None

    def owe(self, key: bytes) -> None:
        """Repairs are the owner's."""

    def pay(self, key: bytes) -> None:
        """Repairs are the owner's."""


class View:
    """Everything that the API knows. Reads see what was committed; nothing here waits for Kafka.

    Args:
        partitions: Of the ledger.
    """

    def __init__(self, database: Database, partitions: int) -> None:
        self.db = database
        self.partitions = partitions
        self.targets: dict[str, TargetRecord] = {}
        self.states: dict[str, TargetState] = {}
        self._changed = asyncio.Event()
        self._load()

    def _load(self) -> None:
        self._folding = {
            p: _Folding(*self.db.position(ledger_name(p))) for p in range(self.partitions)
        }
        # The registry is small, compacted and kept in memory: it is read whole at each start.
        self._next = {TARGETS: 0, AUDIT: self.db.position(AUDIT)[1]}
        self._next |= {
            letters_name(p): self.db.position(letters_name(p))[1] for p in range(self.partitions)
        }

    def forget(self) -> None:
        """Drop everything: the log is another one, or tombstones were missed."""
        self.db.clear()
        self.targets.clear()
        self.states.clear()
        self._load()

    def positions(self) -> Positions:
        """From where each topic partition is to be read on."""
        ledger = {ledger_name(p): each.next for p, each in self._folding.items()}
        return Positions(self._next | ledger)

    def position(self, name: str) -> int:
        """From where one topic partition is to be read on."""
        return self._folding[int(name[1:])].next if name[0] == "l" else self._next.get(name, 0)

    def covers(self, wanted: Positions) -> bool:
        """Whether all that `wanted` names was taken; what it names and we do not have, is not."""
        return self.positions().covers(wanted)

    # -- taking ---------------------------------------------------------------------------------

    def take_ledger(self, partition: int, records: Sequence[Record]) -> None:
        """Fold records of a ledger partition, in order.

        Raises:
            RecordError: a record that no worker of ours wrote; going on would be guessing.
        """
        self.fold(partition, ledger_records(records))

    def fold(self, partition: int, records: Sequence[LedgerRecord]) -> None:
        """Fold records and commit what they make of the rows, in one atomic batch."""
        state = self._folding[partition]
        for record in records:
            fold(state, record)
        changed, state.changed = state.changed, {}
        writes = Writes()
        activities = self._put_activities(writes, changed)
        self._put_deliveries(writes, partition, changed, activities)
        writes.position(ledger_name(partition), state.epoch, state.next)
        self._commit(writes)

    def _put_activities(
        self, writes: Writes, changed: dict[bytes, bytes | None]
    ) -> dict[bytes, SeenActivity | None]:
        """Put the activities' own rows; give them by activity key."""
        found: dict[bytes, SeenActivity | None] = {}
        for key, value in changed.items():
            if SEPARATOR in key:
                continue
            seen = None if value is None else seen_activity(decode_activity_row(value))
            found[key] = seen
            own = short_hash(key, HASH_BYTES)
            writes.activity(own, seen)
            if seen is not None and owner_of(key) != (seen.tenant, seen.activity_id):
                self._reassign(writes, own, seen, changed)
        return found

    def _reassign(
        self,
        writes: Writes,
        activity_hash: bytes,
        owner: SeenActivity,
        changed: dict[bytes, bytes | None],
    ) -> None:
        """Correct deliveries that were read before their activity, whose key misled."""
        rewritten = {short_hash(key, HASH_BYTES) for key in changed if SEPARATOR in key}
        for row_hash, before in self.db.deliveries_of(activity_hash):
            if before.tenant == owner.tenant or row_hash in rewritten:
                continue
            right = {"tenant": owner.tenant, "activity_id": owner.activity_id}
            after = msgspec.structs.replace(before, **right)
            writes.delivery(row_hash, before, after)
            letter = self.db.letters([before.letter_id])[0]
            if letter is not None:
                writes.letter(letter, msgspec.structs.replace(letter, **right))

    def _put_deliveries(
        self,
        writes: Writes,
        partition: int,
        changed: dict[bytes, bytes | None],
        activities: dict[bytes, SeenActivity | None],
    ) -> None:
        keys = [key for key in changed if SEPARATOR in key]
        hashes = [short_hash(key, HASH_BYTES) for key in keys]
        befores = self.db.deliveries(hashes)
        for key, row_hash, before in zip(keys, hashes, befores, strict=True):
            value = changed[key]
            if value is None:
                writes.delivery(row_hash, before, None)
                continue
            own = activity_key_of(key)
            activity_hash = short_hash(own, HASH_BYTES)
            if own not in activities:
                activities[own] = self.db.activity(activity_hash)
            known = activities[own]
            owner = owner_of(own) if known is None else (known.tenant, known.activity_id)
            row = decode_row(value)
            after = seen_delivery(row, owner, activity_hash, partition)
            writes.delivery(row_hash, before, after)
            self._put_letters(writes, before, row, after)

    def _put_letters(
        self, writes: Writes, before: SeenDelivery | None, row: Row, after: SeenDelivery
    ) -> None:
        """The letter that the row opens, and the one that its redrive resolves."""
        if before is not None and before.is_dead and before.budget != after.budget:
            known = self.db.letters([before.letter_id])[0]
            if known is not None:
                raised = after.generation > before.generation
                writes.letter(
                    known,
                    msgspec.structs.replace(known, resolved_ms=after.admitted_ms, raised=raised),
                )
        if after.is_dead:
            known = self.db.letters([after.letter_id])[0]
            letter = letter_of_row(row, (after.tenant, after.activity_id))
            if known is not None:
                letter = msgspec.structs.replace(letter, audits=known.audits)
            writes.letter(known, letter)

    def take_letters(self, partition: int, records: Sequence[Record]) -> None:
        """Take dead letters of records that could not be read; all others are derived from the ledger."""
        writes = Writes()
        for record in records:
            if record.value is None or UNREADABLE.encode() not in record.value:
                continue
            try:
                dead = decode_dead_letter(record.value)
            except RecordError as error:
                _passed_over(record, error)
                continue
            for each in dead.deliveries:
                if each.dead_letter_id.startswith(UNREADABLE):
                    known = self.db.letters([each.dead_letter_id])[0]
                    writes.letter(known, letter_of(dead, each))
        self._read(writes, letters_name(partition), records)

    def take_audit(self, records: Sequence[Record]) -> None:
        """Take audit records: what was asked for, and what the letter said."""
        writes = Writes()
        letters: dict[str, SeenLetter] = {}
        for record in records:
            try:
                audit = decode_audit(record.value or b"")
            except RecordError as error:
                _passed_over(record, error)
                continue
            if audit.dead_letter_id:
                known = letters.get(audit.dead_letter_id)
                before = self.db.letters([audit.dead_letter_id])[0] if known is None else known
                letters[audit.dead_letter_id] = after = _with_audit(before, audit)
                writes.letter(before, after)
        self._read(writes, AUDIT, records)

    def take_targets(self, records: Sequence[Record]) -> None:
        """Take registry records."""
        for record in records:
            key = (record.key or b"").decode(errors="replace")
            # Neither tenant nor name has a slash: a state's key is the one with two.
            is_state = key.count("/") == 2
            own = key.removesuffix(STATE_SUFFIX)
            try:
                if record.value is None:
                    (self.states if is_state else self.targets).pop(own, None)
                elif is_state:
                    self.states[own] = decode_target_state(record.value)
                else:
                    self.targets[own] = decode_target(record.value)
            except RecordError as error:
                _passed_over(record, error)
        self._read(None, TARGETS, records)

    def _read(self, writes: Writes | None, name: str, records: Sequence[Record]) -> None:
        self._next[name] = records[-1].offset + 1
        if writes is not None:
            writes.position(name, -1, self._next[name])
            self.db.commit(writes)
        self.wake()

    def _commit(self, writes: Writes) -> None:
        self.db.commit(writes)
        self.wake()

    def wake(self) -> None:
        """Let those who wait look again."""
        woken, self._changed = self._changed, asyncio.Event()
        woken.set()

    # -- waiting --------------------------------------------------------------------------------

    async def until(self, holds: Callable[[], bool], within_s: float) -> bool:
        """Wait until the view has taken what makes `holds` true; False when it has not in time."""
        try:
            async with asyncio.timeout(within_s):
                while not holds():
                    await self._changed.wait()
        except TimeoutError:
            return holds()
        return True

    # -- what is known --------------------------------------------------------------------------

    def activity(self, key: bytes) -> tuple[SeenActivity | None, list[SeenDelivery]]:
        """An activity and its deliveries, by activity key."""
        own = short_hash(key, HASH_BYTES)
        return self.db.activity(own), [seen for _, seen in self.db.deliveries_of(own)]

    def letter(self, letter_id: str) -> SeenLetter | None:
        """A dead letter, open or resolved."""
        return self.db.letters([letter_id])[0]

    def is_open(self, letter: SeenLetter) -> bool:
        """Whether a dead letter waits to be resolved: the ledger decides, whoever asked for what."""
        if letter.dead_letter_id.startswith(UNREADABLE):
            return True
        seen = self.db.delivery(letter.delivery_id)
        return seen is not None and seen.is_dead and seen.letter_id == letter.dead_letter_id


def _with_audit(before: SeenLetter | None, record: AuditRecord) -> SeenLetter:
    letter = letter_of_audit(record) if before is None else before
    if any(each.audit_id == record.audit_id for each in letter.audits):
        return letter
    asked = SeenAudit(audit_id=record.audit_id, effect_mode=record.effect_mode, at_ms=record.at_ms)
    return msgspec.structs.replace(letter, audits=(*letter.audits, asked))


def _passed_over(record: Record, error: RecordError) -> None:
    log.error(
        "view.unreadable",
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        code=error.code,
    )
