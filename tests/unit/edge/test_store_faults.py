"""What a damaged store does to a worker: one clear line, and the ledger is read anew."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from streams.edge.store import Store
from streams.errors import FatalError

ROWS = 2_000


def filled(folder: Path) -> None:
    """A store whose rows lie in a table file, closed."""
    store = Store(folder)
    partition = store.partition(0)
    for n in range(ROWS):
        partition.put(b"urn:%06d\x00crm" % n, None, os.urandom(100))
    partition.next = ROWS
    partition.commit()
    store._db.flush()
    store.close()


def damage(folder: Path) -> None:
    """Flip bytes in the middle of every table file: its end, which opening reads, stays whole."""
    for table in (folder / "ledger").glob("*.sst"):
        raw = bytearray(table.read_bytes())
        for at in range(len(raw) // 4, len(raw) // 2, 2_048):
            raw[at] ^= 0xFF
        table.write_bytes(raw)


def read_all(store: Store) -> None:
    partition = store.partition(0)
    for n in range(ROWS):
        partition.get(b"urn:%06d\x00crm" % n)


def test_damage_that_a_read_meets_ends_the_process_with_the_reason(tmp_path: Path) -> None:
    """Issue 4: a row that cannot be read must not pass for one that is not there."""
    filled(tmp_path)
    damage(tmp_path)
    store = Store(tmp_path)

    with pytest.raises(FatalError, match="the next start moves it aside"):
        read_all(store)

    store.close()


def test_damage_that_a_scan_meets_ends_the_process_too(tmp_path: Path) -> None:
    """RocksDB's cursor is simply at its end there: rows would be missing without a word."""
    filled(tmp_path)
    damage(tmp_path)
    store = Store(tmp_path)

    with pytest.raises(FatalError, match="cannot be read"):
        store.partition(0).under(b"urn:")

    store.close()


def test_the_start_after_it_moves_the_store_aside_with_one_line(tmp_path: Path) -> None:
    """Issue 4: moved aside and rebuilt, with one clear line; and only once."""
    filled(tmp_path)
    damage(tmp_path)
    store = Store(tmp_path)
    with pytest.raises(FatalError):
        read_all(store)
    store.close()

    with capture_logs() as told:
        again = Store(tmp_path)
        again.close()
        Store(tmp_path).close()

    (line,) = told
    (aside,) = tmp_path.glob("ledger.corrupt.*")
    assert ("store.corrupt", str(aside)) == (line["event"], line["moved_to"])


@pytest.mark.parametrize("name", ["CURRENT", "MANIFEST-*"])
def test_a_store_that_cannot_be_opened_is_moved_aside_at_once(tmp_path: Path, name: str) -> None:
    """What RocksDB calls damage when it opens."""
    filled(tmp_path)
    for file in (tmp_path / "ledger").glob(name):
        file.write_bytes(b"\x00nonsense\xff" * 9)

    with capture_logs() as told:
        store = Store(tmp_path)

    assert 0 == store.partition(0).next
    assert ["store.corrupt"] == [line["event"] for line in told]
    store.close()


def test_no_more_than_one_damaged_store_is_kept(tmp_path: Path) -> None:
    """Each is as large as the ledger: a failing disk must not be filled with them."""
    for _ in range(3):
        filled(tmp_path)
        (tmp_path / "ledger" / "CURRENT").write_bytes(b"nonsense")
        Store(tmp_path).close()

    assert 1 == len(list(tmp_path.glob("ledger.corrupt.*")))


def test_a_log_that_was_cut_off_leaves_a_store_that_is_behind(tmp_path: Path) -> None:
    """
    design.md §3: what is left is the fold of a shorter prefix, which reads on from its own offset.
    """
    store = Store(tmp_path)
    partition = store.partition(0)
    for n in range(100):
        partition.put(b"urn:%06d\x00crm" % n, None, b"v" * 500)
        partition.next = n + 1
        partition.commit()
    # As a kill leaves it: closing would write a table file.
    shutil.copytree(tmp_path / "ledger", tmp_path / "left" / "ledger")
    store.close()
    (log,) = (tmp_path / "left" / "ledger").glob("*.log")
    log.write_bytes(log.read_bytes()[: log.stat().st_size // 2])

    again = Store(tmp_path / "left")

    behind = again.partition(0)
    assert 0 < behind.next < 100
    rows = [key for key, _ in behind.under(b"urn:")]
    assert [b"urn:%06d\x00crm" % n for n in range(behind.next)] == rows
    again.close()


def test_what_the_store_was_folded_from_is_known_again(tmp_path: Path) -> None:
    """design.md §3: a store of another incarnation is rebuilt, so it must remember its own."""
    store = Store(tmp_path)
    partition = store.partition(0)
    partition.incarnation = b"an incarnation\x00\x00"
    partition.next = 5
    partition.commit()
    store.close()

    again = Store(tmp_path)

    assert b"an incarnation\x00\x00" == again.partition(0).incarnation
    again.partition(0).forget()
    assert bytes(16) == again.partition(0).incarnation
    again.close()
