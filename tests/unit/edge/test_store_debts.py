"""What a store that is opened again knows of the records that owe a repair."""

from __future__ import annotations

from pathlib import Path

from streams.edge.store import Store
from streams.model.ledger import OWNER_KEY, Kind
from streams.rules.fold import LedgerRecord, fold

TOKEN = b"t" * 16


def test_a_debt_outlives_the_process_that_saw_it(tmp_path: Path) -> None:
    """ledger.md, rule 6: recovery starts behind the void record and would never see it again."""
    store = Store(tmp_path)
    partition = store.partition(0)
    void = LedgerRecord(
        offset=2, key=b"a\x00d", kind=Kind.CLAIM, epoch=0, token=TOKEN, value=b"late"
    )
    for offset in (0, 1):
        fold(
            partition,
            LedgerRecord(
                offset=offset, key=OWNER_KEY, kind=Kind.OWNER, epoch=-1, token=TOKEN, value=None
            ),
        )
    fold(partition, void)
    partition.commit()
    store.close()

    reopened = Store(tmp_path)

    assert frozenset({b"a\x00d"}) == reopened.partition(0).owed
    assert 3 == reopened.partition(0).next
    reopened.close()
