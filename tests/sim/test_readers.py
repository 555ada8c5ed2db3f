"""Every reader of the ledger agrees: the late one, after compaction, and the one that comes back."""

from __future__ import annotations

from streams.model.ledger import Kind
from streams.rules.fold import LedgerRecord, fold
from tests.sim import memory
from tests.sim.memory import MemoryStore, replay, without
from tests.sim.stage import KEY


def claims_and_reports() -> list[LedgerRecord]:
    """Rule 4: claim@1, OWNER@2, and a report@3 of the older epoch under the claim's token."""
    return [
        LedgerRecord(offset=0, key=b"\x00owner", kind=Kind.OWNER, epoch=-1, token=b"a", value=None),
        LedgerRecord(offset=1, key=KEY, kind=Kind.CLAIM, epoch=0, token=b"t", value=b"claimed"),
        LedgerRecord(offset=2, key=b"\x00owner", kind=Kind.OWNER, epoch=-1, token=b"b", value=None),
        LedgerRecord(offset=3, key=KEY, kind=Kind.REPORT, epoch=0, token=b"t", value=b"sent"),
    ]


def readers_agree(records: list[LedgerRecord]) -> bool:
    """Whether a reader of the compacted log sees what one sees who read it all."""
    full = replay(records)
    boundary = min([full.next, *full.owed.values()])
    return replay(without(records, boundary)).facts() == full.facts()


def test_readers_agree_after_compaction_although_a_report_came_late():
    """ledger.md, rule 4: compaction may drop the claim@1, and then nobody could tell."""
    assert readers_agree(claims_and_reports())


def test_readers_would_not_agree_if_a_report_counted_by_its_token(monkeypatch):
    """ledger.md, rule 4: "valid by token from anyone" broke agreement; so it is not the rule."""

    def by_token(state, record):
        if record.kind is Kind.REPORT and state.get(record.key) is not None:
            state.next = record.offset + 1
            state.put(record.key, None, record.value)
            return True
        return fold(state, record)

    monkeypatch.setattr(memory, "fold", by_token)

    assert not readers_agree(claims_and_reports())


def test_the_store_of_the_simulation_keeps_what_was_committed_and_nothing_else():
    """What a crash leaves is the last commit: rows, epoch, position and debts of one moment."""
    store = MemoryStore()
    records = claims_and_reports()
    for record in records[:2]:
        fold(store, record)
    store.commit()
    fold(store, records[2])
    fold(store, records[3])

    kept = MemoryStore(store.kept)

    assert (0, 2, frozenset()) == (kept.epoch, kept.next, kept.owed)
    assert (2, 4, frozenset({KEY})) == (store.epoch, store.next, store.owed)
