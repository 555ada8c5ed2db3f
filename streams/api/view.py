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

from streams.api.database import Database, Writes
from streams.api.folding import LedgerFolds
from streams.api.kept_rows import HASH_BYTES
from streams.api.shapes import (
    UNREADABLE,
    SeenActivity,
    SeenAudit,
    SeenDelivery,
    SeenJob,
    SeenLetter,
    job_told,
    letter_of,
    letter_of_audit,
    short_hash,
)
from streams.api.tokens import AUDIT, TARGETS, Positions, ledger_name, letters_name
from streams.errors import RecordError
from streams.model.target import TargetRecord, TargetState
from streams.rules.fold import LedgerRecord
from streams.wire.audit import AuditRecord, decode_audit
from streams.wire.codec import decode_dead_letter
from streams.wire.targets import decode_target, decode_target_state

log = structlog.get_logger(__name__)

Record: TypeAlias = ConsumerRecord[bytes, bytes]
STATE_SUFFIX: Final = "/state"


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
        self.ledger = LedgerFolds(self.db, self.partitions)
        # The registry is small, compacted and kept in memory: it is read whole at each start.
        self._next = {TARGETS: 0, AUDIT: self.db.position(AUDIT)[1]}
        self._next |= {
            letters_name(p): self.db.position(letters_name(p))[1] for p in range(self.partitions)
        }

    def begin_build(self) -> None:
        """Drop everything, and take the ledger in bulk until `Database.end_build`."""
        self.db.begin_build()
        self.targets.clear()
        self.states.clear()
        self._load()

    def positions(self) -> Positions:
        """From where each topic partition is to be read on."""
        ledger = {ledger_name(p): self.ledger.next(p) for p in range(self.partitions)}
        return Positions(self._next | ledger)

    def position(self, name: str) -> int:
        """From where one topic partition is to be read on."""
        return self.ledger.next(int(name[1:])) if name[0] == "l" else self._next.get(name, 0)

    def covers(self, wanted: Positions) -> bool:
        """Whether all that `wanted` names was taken; what it names and we do not have, is not."""
        return self.positions().covers(wanted)

    # -- taking ---------------------------------------------------------------------------------

    def take_ledger(self, partition: int, records: Sequence[Record]) -> None:
        """Fold records of a ledger partition, in order, and commit what they make of the rows.

        Raises:
            RecordError: a record that no worker of ours wrote; going on would be guessing.
        """
        self.ledger.take(partition, records)
        self.ledger.commit(partition)
        self.wake()

    def fold(self, partition: int, records: Sequence[LedgerRecord]) -> None:
        """Fold records and commit what they make of the rows, in one atomic batch."""
        self.ledger.fold(partition, records)
        self.ledger.commit(partition)
        self.wake()

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
        jobs: dict[str, SeenJob] = {}
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
            if audit.job_id:
                job = jobs.get(audit.job_id) or self.db.job(audit.job_id)
                told = job_told(job, audit)
                if told is not None:
                    jobs[audit.job_id] = told
                    writes.job(told)
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

    async def until_always(self, holds: Callable[[], bool]) -> None:
        """Wait until the view has taken what makes `holds` true, however long that takes."""
        while not holds():
            await self._changed.wait()

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
