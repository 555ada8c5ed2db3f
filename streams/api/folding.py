"""Ledger partitions folded into the read model: a little at a time as records come, or one in bulk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, TypeAlias

import msgspec

from streams.api.database import Database, Writes
from streams.api.kept_rows import HASH_BYTES, Owner, kept, owner, reassigned, rest_hash, seen
from streams.api.shapes import (
    SeenDelivery,
    letter_of_row,
    owner_of,
    short_hash,
)
from streams.api.tokens import ledger_name
from streams.model.ledger import SEPARATOR, Phase
from streams.rules.fold import LedgerRecord, fold
from streams.rules.identity import activity_key_of
from streams.wire.codec import decode_row
from streams.wire.ledger_batch import Appended, fold_batch
from streams.wire.row_sketch import named_by

Item: TypeAlias = tuple[bytes, bytes | None]
Delivery: TypeAlias = tuple[bytes, bytes, bytes | None]
"""Key of its activity, what follows that in its own key, and its row."""

WRITTEN_AT_ONCE: Final = 4_000
"""Rows of a batch while a partition is built: some 30 ms, so that `/healthz` is answered between."""


class _Folding:
    """One ledger partition as `fold` writes to it: what changed since the last commit."""

    def __init__(self, epoch: int, next_offset: int) -> None:
        self.epoch = epoch
        self.next = next_offset
        self.is_fresh = next_offset == 0
        self.changed: dict[bytes, bytes | None] = {}
        self.size = 0

    def put(self, key: bytes, fence: int | None, value: bytes) -> None:
        self.changed[key] = value
        self.size += len(value)

    def delete(self, key: bytes) -> None:
        self.changed[key] = None

    def owe(self, key: bytes) -> None:
        """Repairs are the owner's."""

    def pay(self, key: bytes) -> None:
        """Repairs are the owner's."""


class LedgerFolds:
    """Every partition of the ledger: folded by the workers' `fold`, written in atomic batches.

    Args:
        partitions: Of the ledger.
    """

    def __init__(self, database: Database, partitions: int) -> None:
        self._db = database
        self._states = {p: _Folding(*database.position(ledger_name(p))) for p in range(partitions)}

    def next(self, partition: int) -> int:
        """From where a partition is to be read on."""
        return self._states[partition].next

    def size(self, partition: int) -> int:
        """About how many bytes wait to be written."""
        return self._states[partition].size

    def take(self, partition: int, records: Sequence[Appended]) -> None:
        """Fold records of the topic, in order; nothing is written.

        Raises:
            RecordError: a record that no worker of ours wrote; going on would be guessing.
        """
        fold_batch(self._states[partition], records, _nothing_to_do)

    def fold(self, partition: int, records: Sequence[LedgerRecord]) -> None:
        """Fold records, in order; nothing is written."""
        for record in records:
            fold(self._states[partition], record)

    def commit(self, partition: int) -> None:
        """Write what changed in a partition, and how far it was read, in one atomic batch."""
        state = self._states[partition]
        changed, state.changed, state.size = state.changed, {}, 0
        writes = Writes()
        _Emission(self._db, partition, changed, is_fresh=False).put(writes, changed.items())
        self._finish(writes, partition)

    def build(self, partition: int) -> Iterator[None]:
        """Write what changed in a partition, a little with each step, in files that are being built.

        Where nothing of it was written before, nothing is looked up.
        """
        state = self._states[partition]
        changed, state.changed, state.size = state.changed, {}, 0
        at_once = WRITTEN_AT_ONCE if state.is_fresh else WRITTEN_AT_ONCE * 5
        emission = _Emission(self._db, partition, changed, is_fresh=state.is_fresh)
        items = iter(changed.items())
        while some := list(islice(items, at_once)):
            if not state.is_fresh:
                self._db.flush()
            writes = Writes()
            emission.put(writes, some)
            self._db.commit(writes)
            yield
        self._finish(Writes(), partition)

    def _finish(self, writes: Writes, partition: int) -> None:
        state = self._states[partition]
        state.is_fresh = False
        writes.position(ledger_name(partition), state.epoch, state.next)
        self._db.commit(writes)


def _nothing_to_do(_key: bytes) -> None:
    """When an activity's life ends is the workers'."""


class _Emission:
    """Turns changed rows of one partition into writes.

    Args:
        changed: All of them, whatever part of them is put at once: an activity may stand behind its
            deliveries, and knows whose they are.
        is_fresh: Whether the files hold nothing of this partition, so that nothing need be looked up.
    """

    def __init__(
        self,
        database: Database,
        partition: int,
        changed: Mapping[bytes, bytes | None],
        *,
        is_fresh: bool,
    ) -> None:
        self._db = database
        self._partition = partition
        self._changed = changed
        self._is_fresh = is_fresh
        self._owners: dict[bytes, Owner] = {}

    def put(self, writes: Writes, some: Iterable[Item]) -> None:
        """Put activities and deliveries: in rows, indexes and letters."""
        if self._is_fresh:
            self._put_fresh(writes, some)
        else:
            self._put_known(writes, some)

    def _put_fresh(self, writes: Writes, some: Iterable[Item]) -> None:
        owners, put = self._owners, writes.fresh
        for key, value in some:
            own, separator, rest = key.partition(SEPARATOR)
            if not separator:
                self._put_activity(writes, key, value)
            elif value is not None:
                whose = owners.get(own) or self._owner(own)
                if put(kept(whose, rest, value)):
                    self._put_letters(writes, whose, None, value)

    def _put_known(self, writes: Writes, some: Iterable[Item]) -> None:
        deliveries: list[Delivery] = []
        for key, value in some:
            own, separator, rest = key.partition(SEPARATOR)
            if separator:
                deliveries.append((own, rest, value))
            else:
                self._put_activity(writes, key, value)
        places = [self._owner(own).activity_hash + rest_hash(rest) for own, rest, _ in deliveries]
        befores = self._db.kept(places)
        for (own, rest, value), before in zip(deliveries, befores, strict=True):
            if value is None:
                writes.delivery(before, None)
                continue
            whose = self._owner(own)
            after = kept(whose, rest, value)
            writes.delivery(before, after)
            was_dead = before is not None and before.is_dead
            was = seen(before.place, before.row) if before is not None and was_dead else None
            if was is not None or after.is_dead:
                self._put_letters(writes, whose, was, value)

    def _owner(self, key: bytes) -> Owner:
        """Whose an activity's deliveries are: its own row knows, and else its key tells."""
        found = self._owners.get(key)
        if found is None:
            own = short_hash(key, HASH_BYTES)
            row = self._changed.get(key)
            if row is None and not self._is_fresh:
                row = self._db.activity_row(own)
            tenant, name = owner_of(key) if row is None else named_by(key, row)
            found = self._owners[key] = owner(tenant, name, own, self._partition)
        return found

    def _put_activity(self, writes: Writes, key: bytes, value: bytes | None) -> None:
        whose = self._owner(key)
        writes.activity(whose.activity_hash, value)
        if value is None or self._is_fresh:
            return
        if owner_of(key) != (whose.tenant, whose.activity_id):
            self._reassign(writes, whose)

    def _reassign(self, writes: Writes, own: Owner) -> None:
        """Correct deliveries that were read before their activity, whose key misled."""
        rewritten = {
            short_hash(activity_key_of(key), HASH_BYTES) + rest_hash(key.partition(SEPARATOR)[2])
            for key in self._changed
            if SEPARATOR in key
        }
        for place, before in self._db.deliveries_of(own.activity_hash):
            if before.tenant == own.tenant or place in rewritten:
                continue
            (as_kept,) = self._db.kept([place])
            assert as_kept is not None, "it was read just now"
            writes.delivery(as_kept, reassigned(own, place, as_kept.row))
            letter = self._db.letters([before.letter_id])[0]
            if letter is not None:
                right = {"tenant": own.tenant, "activity_id": own.activity_id}
                writes.letter(letter, msgspec.structs.replace(letter, **right))

    def _put_letters(
        self, writes: Writes, own: Owner, was: SeenDelivery | None, value: bytes
    ) -> None:
        """The letter that the row opens, and the one that its redrive resolves."""
        row = decode_row(value)
        if was is not None and was.budget != row.budget:
            known = self._db.letters([was.letter_id])[0]
            if known is not None:
                told = {
                    "resolved_ms": row.admitted_ms,
                    "raised": row.generation > was.generation,
                }
                writes.letter(known, msgspec.structs.replace(known, **told))
        if row.phase is Phase.DEAD:
            known = None if self._is_fresh else self._db.letters([row.letter_id])[0]
            letter = letter_of_row(row, (own.tenant, own.activity_id))
            if known is not None:
                letter = msgspec.structs.replace(letter, audits=known.audits)
            writes.letter(known, letter)
