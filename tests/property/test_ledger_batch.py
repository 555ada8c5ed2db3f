"""A restore folds many records at once; that must be the fold of each, whatever the history."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.engine.ledger_log import ledger_records
from streams.errors import RecordError
from streams.model.ledger import OWNER_KEY, Kind
from streams.rules.fold import fold
from streams.wire.ledger_batch import fold_batch
from streams.wire.records import ledger_headers
from tests.sim.memory import MemoryStore

KEYS = [b"urn:1", b"urn:1\x00crm", b"urn:1\x00erp", b"urn:2"]
TOKEN = b"t" * 16


@dataclass
class Record:
    """As a client of Kafka hands it out."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]


class Store(MemoryStore):
    """Remembers whose end of life is looked at, too."""

    def __init__(self) -> None:
        super().__init__()
        self.admitted: list[bytes] = []

    def facts(self) -> tuple[object, ...]:
        return (*self.state.facts(), self.next, self.admitted)


@st.composite
def histories(draw) -> list[Record]:
    """Owners come and go, frozen ones write on; compaction leaves gaps; headers in any order."""
    records, offset, epochs = [], 0, [0]
    for _ in range(draw(st.integers(0, 30))):
        offset += draw(st.integers(1, 3))
        kind = draw(st.sampled_from(list(Kind)))
        if kind is Kind.OWNER:
            epochs.append(offset)
            records.append(Record(offset, OWNER_KEY, None, ledger_headers(kind, None, TOKEN)))
            continue
        headers = ledger_headers(kind, draw(st.sampled_from(epochs)), TOKEN)
        more = draw(st.sampled_from([[], [], [("trace", b"1")]]))
        value = draw(st.sampled_from([b"row", b"another row", None]))
        key = draw(st.sampled_from(KEYS))
        records.append(Record(offset, key, value, draw(st.permutations([*headers, *more]))))
    return records


def one_by_one(records: list[Record]) -> Store:
    """The reference: `fold`, and what `Partition.fold` does with an activity's row."""
    store = Store()
    for record in ledger_records(records):
        if fold(store, record) and record.kind is Kind.ADMIT:
            store.admitted.append(record.key)
    return store


@given(histories(), st.lists(st.integers(0, 30), max_size=3))
def test_a_batch_folds_to_what_its_records_fold_to(records, cuts):
    """ledger.md, rule 1: recovery and live tail are one function, wherever the batches are cut."""
    store = Store()

    for first, last in zip([0, *sorted(cuts)], [*sorted(cuts), len(records)], strict=True):
        fold_batch(store, records[first:last], store.admitted.append)

    assert one_by_one(records).facts() == store.facts()


def test_a_row_of_an_epoch_that_ended_within_the_batch_is_void():
    """Rule 1: the short cut must not outlive the OWNER record that made its judgement."""
    late = ledger_headers(Kind.REPORT, 0, TOKEN)
    records = [
        Record(0, OWNER_KEY, None, ledger_headers(Kind.OWNER, None, TOKEN)),
        Record(1, KEYS[1], b"first", late),
        Record(2, KEYS[2], b"second", late),
        Record(3, OWNER_KEY, None, ledger_headers(Kind.OWNER, None, TOKEN)),
        Record(4, KEYS[1], b"late", late),
        Record(5, KEYS[3], b"late", late),
    ]
    store = Store()

    fold_batch(store, records, store.admitted.append)

    assert one_by_one(records).facts() == store.facts()
    assert frozenset({KEYS[1], KEYS[3]}) == store.owed
    assert 3 == store.epoch


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("k", b"REPORT"), ("e", b"0"), ("t", b"short")],
        [("k", b"GUESS"), ("e", b"0"), ("t", TOKEN)],
        [("k", b"REPORT"), ("t", TOKEN)],
        [("k", b"REPORT"), ("e", b""), ("t", TOKEN)],
        [("k", b"REPORT"), ("e", None), ("t", TOKEN)],
        [("k", b"OWNER"), ("e", b"0"), ("t", TOKEN)],
    ],
)
@pytest.mark.parametrize("before", [0, 1, 2])
def test_a_record_that_we_did_not_write_is_refused_wherever_it_stands(headers, before):
    """Going on would be guessing: only we write there."""
    good = [
        Record(n, KEYS[1], b"row", ledger_headers(Kind.REPORT, 0, TOKEN)) for n in range(before)
    ]
    store = Store()

    with pytest.raises(RecordError, match="ledger record"):
        fold_batch(store, [*good, Record(9, KEYS[1], b"row", headers)], store.admitted.append)
