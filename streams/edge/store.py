"""The worker's copy of its ledger partitions: one RocksDB, every fold one atomic write.

The log is the truth; what stands here is always the fold of a prefix of it, never ahead. One
database holds all partitions of a worker, each under a two-byte prefix: 64 databases would mean 64
memtables and write-ahead logs.
"""

from __future__ import annotations

import contextlib
import shutil
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import structlog
from rocksdict import (
    BlockBasedOptions,
    Cache,
    DBCompactionStyle,
    Options,
    Rdict,
    WriteBatch,
)

from streams.errors import FatalError

log = structlog.get_logger(__name__)

_META: Final = struct.Struct(">qq16s")
_FENCE: Final = struct.Struct(">q")
_KEEP: Final = -2
"""Stands where a fence would: what the value itself says holds."""
_NOT_WRITABLE: Final = ("ermission", "Read-only", "No space")
_KEPT: Final = _FENCE.pack(_KEEP)
_ROW, _DEBT, _STATE, _LETTERS, _AGES = b"r", b"d", b"s", b"l", b"t"


class StoredRow:
    """A row as it lies in the store: its value's bytes, and the fence that `fold` gave it."""

    __slots__ = ("fence", "value")

    def __init__(self, raw: bytes) -> None:
        (fence,) = _FENCE.unpack_from(raw)
        self.fence: int | None = None if fence == _KEEP else fence
        self.value: bytes = raw[8:]


class PartitionStore:
    """One ledger partition's rows, debts and position. Implements `rules.fold.Folded`.

    Writes gather in one batch until `commit`; reads see them at once.
    """

    def __init__(self, db: Rdict, index: int, fault: Callable[[Exception], FatalError]) -> None:
        self._db = db
        self._fault = fault
        self._prefix = struct.pack(">H", index)
        self._rows = self._prefix + _ROW
        self._debts = self._prefix + _DEBT
        self._ages = self._prefix + _AGES
        self._changed: dict[bytes, bytes | None] = {}
        self.epoch = -1
        self.next = 0
        self.incarnation = bytes(16)
        """Of the topic that the rows were folded from (`edge.incarnation`); zeros before the first."""
        raw = self._read(self._prefix + _STATE)
        if raw is not None:
            self.epoch, self.next, self.incarnation = _META.unpack(raw)
        letters = self._read(self._prefix + _LETTERS)
        self.letters_next = 0 if letters is None else int.from_bytes(letters, "big")
        """Offset up to which the dead-letter partition was compared with the ledger (rule 10)."""
        self._owed = {key for key, _ in self._scan(self._debts)}

    def put(self, key: bytes, fence: int | None, value: bytes) -> None:
        """See `Folded`."""
        self._changed[self._rows + key] = (_KEPT if fence is None else _FENCE.pack(fence)) + value

    def delete(self, key: bytes) -> None:
        """See `Folded`."""
        self._changed[self._rows + key] = None

    def owe(self, key: bytes) -> None:
        """See `Folded`."""
        self._owed.add(key)
        self._changed[self._debts + key] = b""

    def pay(self, key: bytes) -> None:
        """See `Folded`."""
        if key in self._owed:
            self._owed.discard(key)
            self._changed[self._debts + key] = None

    def age(self, key: bytes, at_ms: int) -> None:
        """Look at an activity's end of life from `at_ms` on; see `aged`."""
        self._changed[self._ages + at_ms.to_bytes(8, "big") + key] = b""

    def aged(self, before_ms: int, limit: int) -> list[tuple[int, bytes]]:
        """Activities whose end of life is to be looked at before `before_ms`, oldest first."""
        found: list[tuple[int, bytes]] = []
        for full, _ in self._scan(self._ages):
            at_ms = int.from_bytes(full[:8], "big")
            if at_ms >= before_ms or len(found) == limit:
                break
            found.append((at_ms, full[8:]))
        return found

    def looked_at(self, key: bytes, at_ms: int) -> None:
        """Drop an entry of `age`."""
        self._changed[self._ages + at_ms.to_bytes(8, "big") + key] = None

    @property
    def owed(self) -> frozenset[bytes]:
        """The keys that owe a repair (rule 6)."""
        return frozenset(self._owed)

    def get(self, key: bytes) -> StoredRow | None:
        """The row under `key`, or None."""
        full = self._rows + key
        raw = self._changed[full] if full in self._changed else self._read(full)
        return None if raw is None else StoredRow(raw)

    def under(self, prefix: bytes) -> list[tuple[bytes, StoredRow]]:
        """Every row whose key starts with `prefix`, in key order."""
        start = self._rows + prefix
        found = dict(self._scan(start, strip=len(self._rows)))
        for full, raw in self._changed.items():
            if full.startswith(start):
                if raw is None:
                    found.pop(full[len(self._rows) :], None)
                else:
                    found[full[len(self._rows) :]] = raw
        return [(key, StoredRow(found[key])) for key in sorted(found)]

    def commit(self) -> None:
        """Write all that changed, and the position, in one atomic batch."""
        batch = WriteBatch(raw_mode=True)
        for key, value in self._changed.items():
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        batch.put(self._prefix + _STATE, _META.pack(self.epoch, self.next, self.incarnation))
        self._write(batch)
        self._changed.clear()

    def letters_read(self, offset: int) -> None:
        """Note that the dead-letter partition was compared up to `offset`."""
        self.letters_next = offset
        batch = WriteBatch(raw_mode=True)
        batch.put(self._prefix + _LETTERS, offset.to_bytes(8, "big"))
        self._write(batch)

    def forget(self) -> None:
        """Drop everything: the log is another one, or was read wrongly; it is folded anew."""
        batch = WriteBatch(raw_mode=True)
        batch.delete_range(self._prefix, self._prefix + b"\xff")
        self._write(batch)
        self._changed.clear()
        self._owed.clear()
        self.epoch, self.next, self.incarnation, self.letters_next = -1, 0, bytes(16), 0

    def _read(self, full: bytes) -> bytes | None:
        try:
            found: bytes | None = self._db.get(full)
        except Exception as error:  # rocksdict raises bare Exception for every fault
            raise self._fault(error) from error
        return found

    def _write(self, batch: WriteBatch) -> None:
        try:
            self._db.write(batch)
        except Exception as error:
            raise self._fault(error) from error

    def _scan(self, prefix: bytes, strip: int | None = None) -> Iterator[tuple[bytes, bytes]]:
        cut = len(prefix) if strip is None else strip
        cursor = self._db.iter()
        cursor.seek(prefix)
        while cursor.valid():
            key = cursor.key()
            if not key.startswith(prefix):
                return
            yield key[cut:], cursor.value()
            cursor.next()
        try:
            cursor.status()  # a cursor that meets a damaged block is at its end, as if there were no more
        except Exception as error:
            raise self._fault(error) from error


class Store:
    """The database under a data directory.

    A store that is damaged is moved aside, one of them at most, and the ledger read anew. Damage that
    shows only when a row is read ends the process and leaves a mark: the next start moves it aside.

    Raises:
        FatalError: when another process holds it, or the directory cannot be written.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / "ledger"
        self._mark = directory / "ledger.is-corrupt"
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FatalError(
                f"the data directory {directory} cannot be made: {error.strerror}; "
                "set OUTBOX_DATA_DIR to a directory that this user may write"
            ) from error
        self._db = self._open()
        self._partitions: dict[int, PartitionStore] = {}

    def _open(self) -> Rdict:
        if self._mark.exists():
            self._move_aside()
        try:
            return Rdict(str(self._path), _ledger_options())
        except Exception as error:  # rocksdict raises bare Exception for every fault
            message = str(error)
            if "lock" in message.lower():
                raise FatalError(
                    f"the data directory {self._path.parent} is in use by another worker; "
                    "give each worker an OUTBOX_DATA_DIR of its own"
                ) from error
            if any(word in message for word in _NOT_WRITABLE):
                raise self._fault(error) from error
            self._move_aside()
            return Rdict(str(self._path), _ledger_options())

    def _move_aside(self) -> None:
        for older in self._path.parent.glob("ledger.corrupt.*"):
            if older.is_dir():
                shutil.rmtree(older)  # each is as large as the ledger
        aside = self._path.with_name(f"ledger.corrupt.{time.time_ns()}")
        if self._path.exists():
            self._path.rename(aside)
        self._mark.unlink(missing_ok=True)
        log.error("store.corrupt", moved_to=str(aside), action="rebuilt from the ledger topic")

    def _fault(self, error: Exception) -> FatalError:
        """What a fault of the database is to the process; damage is marked for the next start."""
        message = str(error)
        if any(word in message for word in _NOT_WRITABLE):
            return FatalError(
                f"the data directory {self._path.parent} cannot be written: {message}"
            )
        with contextlib.suppress(OSError):
            self._mark.touch()
        return FatalError(
            f"the store {self._path} cannot be read ({message}): the next start moves it aside and"
            " rebuilds it from the ledger topic"
        )

    def partition(self, index: int) -> PartitionStore:
        """The part of partition `index`."""
        if index not in self._partitions:
            self._partitions[index] = PartitionStore(self._db, index, self._fault)
        return self._partitions[index]

    def close(self) -> None:
        """Release the database's lock."""
        self._partitions.clear()
        self._db.close()


def bounded_options(*, write_buffer_bytes: int, cache_bytes: int) -> Options:
    """Small and bounded: faust's defaults take 2 GiB of cache for each partition (faust.md §3)."""
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_size(write_buffer_bytes)
    options.set_max_write_buffer_number(3)
    options.set_max_open_files(256)
    options.set_max_background_jobs(2)
    options.set_keep_log_file_num(2)
    table = BlockBasedOptions()
    table.set_block_cache(Cache(cache_bytes))
    table.set_bloom_filter(10, False)
    options.set_block_based_table_factory(table)
    return options


def _ledger_options() -> Options:
    """Rows are written three times a delivery and read by their key: files are merged as few as can be.

    After 1.1 million rows RocksDB went on merging for 1.2 s of CPU by levels, for 0.3 s this way, and reads
    cost the same 2 to 10 µs; a scan of one activity, for a dead letter, takes 30 µs and not 15 (process
    time, in turn). A new delivery is looked for twice in vain: with a filter over the memtable (0.3 MB) that
    takes 1.6 µs each, without one 2.6 (process time, the median of three).
    """
    options = bounded_options(write_buffer_bytes=16 << 20, cache_bytes=32 << 20)
    options.set_compaction_style(DBCompactionStyle.universal())
    options.set_memtable_prefix_bloom_ratio(0.02)
    options.set_memtable_whole_key_filtering(True)
    return options
