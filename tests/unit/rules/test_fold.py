"""The one function that turns ledger records into state (ledger.md, rule 1)."""

from __future__ import annotations

import pytest

from streams.model.ledger import OWNER_KEY, Kind
from streams.rules.fold import LedgerRecord, fold

OTHERS = [kind for kind in Kind if kind is not Kind.OWNER]


class State:
    """`Folded`, plainly."""

    def __init__(self, epoch: int = -1) -> None:
        self.epoch = epoch
        self.next = 0
        self.rows: dict[bytes, tuple[int | None, bytes]] = {}
        self.debts: set[bytes] = set()

    def put(self, key: bytes, fence: int | None, value: bytes) -> None:
        self.rows[key] = (fence, value)

    def delete(self, key: bytes) -> None:
        self.rows.pop(key, None)

    def owe(self, key: bytes) -> None:
        self.debts.add(key)

    def pay(self, key: bytes) -> None:
        self.debts.discard(key)


def record(kind: Kind, *, offset: int = 9, epoch: int = 5, value: bytes | None = b"row"):
    key = OWNER_KEY if kind is Kind.OWNER else b"k"
    return LedgerRecord(offset=offset, key=key, kind=kind, epoch=epoch, token=b"t", value=value)


def test_an_owner_sets_the_epoch_to_its_own_offset():
    """Whoever comes later in the log owns: no clock and no counter decides."""
    state = State(epoch=5)

    assert fold(state, record(Kind.OWNER, offset=9, epoch=-1, value=None))

    assert (9, 10, {}) == (state.epoch, state.next, state.rows)


def test_an_owners_epoch_header_means_nothing():
    """A stray OWNER is overruled by another OWNER (rule 2), never by being ignored."""
    state = State(epoch=50)

    assert fold(state, record(Kind.OWNER, offset=60, epoch=0))

    assert 60 == state.epoch


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("epoch", [5, 6])
def test_a_record_of_the_epoch_or_later_replaces_its_row(kind, epoch):
    """Later than the epoch: compaction took the OWNER that it followed."""
    state = State(epoch=5)
    state.put(b"k", 1, b"old")

    assert fold(state, record(kind, epoch=epoch))

    assert {b"k": (9 if kind is Kind.CLAIM else None, b"row")} == state.rows


@pytest.mark.parametrize("kind", OTHERS)
def test_a_record_of_a_lower_epoch_is_void_and_its_key_owes_a_repair(kind):
    """D-004: a frozen worker's record changes nothing; rule 6: it must not be what compaction keeps."""
    state = State(epoch=5)
    state.put(b"k", 1, b"old")

    assert not fold(state, record(kind, epoch=4))

    assert ({b"k": (1, b"old")}, {b"k"}, 10) == (state.rows, state.debts, state.next)


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("value", [b"row", None])
def test_a_valid_record_pays_its_keys_debt(kind, value):
    """It is the key's last record now, so what was void can go with compaction."""
    state = State(epoch=5)
    state.owe(b"k")

    fold(state, record(kind, value=value))

    assert set() == state.debts


@pytest.mark.parametrize("kind", OTHERS)
def test_a_null_value_deletes_the_row(kind):
    """The end of life, and the repair of a key that never had a row."""
    state = State(epoch=5)
    state.put(b"k", 1, b"old")

    assert fold(state, record(kind, value=None))

    assert {} == state.rows


def test_only_a_claim_sets_the_fence():
    """The fence is the offset of the last valid claim: a report keeps the one that its value says."""
    state = State(epoch=5)

    fold(state, record(Kind.CLAIM, offset=7))
    fold(state, record(Kind.REPORT, offset=8))

    assert {b"k": (None, b"row")} == state.rows


def test_the_position_moves_with_every_record():
    """Void ones included: where a store stands must not depend on what counted."""
    state = State(epoch=5)

    for offset, epoch in ((20, 5), (21, 1), (30, 5)):
        fold(state, record(Kind.REPORT, offset=offset, epoch=epoch))

    assert 31 == state.next
