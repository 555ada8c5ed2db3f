"""The read model's files: one RocksDB, its rows and its indexes, written in atomic batches.

Keys start with a letter that says what lies under them; names and keys stand there as hashes, so
that no index holds a URL. Times in indexes are inverted: a scan shows the newest first.

To build a million rows from nothing, the files are opened another way (`begin_build`): what is written lies
unsorted in memory and is sorted in the background when it goes to disk, in place of a sorted list that
costs 2 µs for each of a row's four entries; and there is no write-ahead log, for what is half built when we
die is built anew.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, cast

import msgspec
import structlog
from rocksdict import DBCompressionType, MemtableFactory, Options, Rdict, WriteBatch, WriteOptions

from streams.api.kept_rows import Kept, found_again, newest_first, seen, tenant_hash
from streams.api.shapes import SeenActivity, SeenDelivery, SeenJob, SeenLetter, seen_activity
from streams.edge.store import bounded_options
from streams.errors import FatalError
from streams.wire.codec import decode_activity_row

log = structlog.get_logger(__name__)

ACTIVITY, DELIVERY, LETTER, JOB = b"a", b"d", b"l", b"j"
BY_ID, BY_LETTER_TIME = b"i", b"L"
_POSITION: Final = b"p"
_IDENTITY, _ALIVE, _COMPLETE = b"\x00identity", b"\x00alive", b"\x00complete"

LAYOUT: Final = "2"
"""Goes into the identity: another layout of these files is rebuilt from Kafka."""

_MARK: Final = struct.Struct(">qq")

_encode: Final = msgspec.msgpack.Encoder().encode
_letter: Final = msgspec.msgpack.Decoder(SeenLetter).decode
_job: Final = msgspec.msgpack.Decoder(SeenJob).decode


class Database:
    """Reads, and `Writes` that are committed at once.

    Args:
        identity: Of cluster and prefix: files that were made from another log are dropped.
        stale_before_ms: Files last written before this are dropped: tombstones that they have not
            seen may be gone from the log (`delete.retention.ms`).

    Raises:
        FatalError: another process holds the files, or they cannot be written.
    """

    def __init__(self, directory: Path, identity: str, *, stale_before_ms: int = 0) -> None:
        self._path = directory
        self._write_options = WriteOptions()
        mine = f"{LAYOUT}/{identity}".encode()
        self._db = self._open()
        known, alive = self._db.get(_IDENTITY), self._db.get(_ALIVE)
        is_stale = alive is not None and int.from_bytes(alive, "big") < stale_before_ms
        if known not in (None, mine) or is_stale:
            log.warning("view.dropped", stale=is_stale, action="rebuilt from Kafka")
            self.clear()
        self._identity = mine
        self._db[_IDENTITY] = mine

    def _open(self) -> Rdict:
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            return _opened(self._path, _options())
        except Exception as error:  # rocksdict raises bare Exception for every fault
            if "lock" in str(error).lower():
                raise FatalError(
                    f"{self._path} is in use by another API; give each an OUTBOX_DATA_DIR of its own"
                ) from error
            if isinstance(error, OSError) or "orruption" not in str(error):
                raise FatalError(f"{self._path} cannot be opened: {error}") from error
            log.error("view.corrupt", action="rebuilt from Kafka")
            shutil.rmtree(self._path)
            return _opened(self._path, _options())

    def clear(self) -> None:
        """Drop everything: it is read anew."""
        self._db.close()
        shutil.rmtree(self._path)
        self._db = self._open()
        if hasattr(self, "_identity"):
            self._db[_IDENTITY] = self._identity

    def close(self) -> None:
        """Release the files' lock."""
        self._db.close()

    # -- marks ----------------------------------------------------------------------------------

    @property
    def is_complete(self) -> bool:
        """Whether these files have seen the log to its end once."""
        return self._db.get(_COMPLETE) is not None

    @property
    def alive_ms(self) -> int:
        """When these files last held all that the log held, as far as that was noted; 0 for never."""
        return int.from_bytes(self._db.get(_ALIVE) or b"", "big")

    def complete(self, now_ms: int) -> None:
        """Note that the log was seen to its end just now."""
        self._db[_COMPLETE] = b"1"
        self._db[_ALIVE] = now_ms.to_bytes(8, "big")

    def position(self, name: str) -> tuple[int, int]:
        """Epoch and next offset of one topic partition; (-1, 0) where nothing was read."""
        raw = self._db.get(_POSITION + name.encode())
        return (-1, 0) if raw is None else _MARK.unpack(raw)

    # -- rows -----------------------------------------------------------------------------------

    def activity(self, activity_hash: bytes) -> SeenActivity | None:
        """One activity."""
        raw = self.activity_row(activity_hash)
        return None if raw is None else seen_activity(decode_activity_row(raw))

    def activity_row(self, activity_hash: bytes) -> bytes | None:
        """One activity's row as the ledger holds it."""
        return cast("bytes | None", self._db.get(ACTIVITY + activity_hash))

    def deliveries(self, places: Sequence[bytes]) -> list[SeenDelivery | None]:
        """Deliveries by their places, None for one that is gone."""
        found = self._many([DELIVERY + each for each in places])
        rows = zip(places, found, strict=True)
        return [None if raw is None else seen(place, raw) for place, raw in rows]

    def kept(self, places: Sequence[bytes]) -> list[Kept | None]:
        """Deliveries by their places as they were put, None for one that is not there."""
        found = self._many([DELIVERY + each for each in places])
        rows = zip(places, found, strict=True)
        return [None if raw is None else found_again(place, raw) for place, raw in rows]

    def delivery(self, delivery_id: str) -> SeenDelivery | None:
        """A delivery by its public id."""
        place = self._db.get(BY_ID + delivery_id.encode())
        return None if place is None else self.deliveries([place])[0]

    def deliveries_of(self, activity_hash: bytes) -> list[tuple[bytes, SeenDelivery]]:
        """Every delivery of an activity, with its place."""
        prefix = DELIVERY + activity_hash
        places = [key[1:] for key in self.scan(prefix, prefix)]
        rows = zip(places, self.deliveries(places), strict=True)
        return [(place, found) for place, found in rows if found is not None]

    def letters(self, letter_ids: Sequence[str]) -> list[SeenLetter | None]:
        """Dead letters by id."""
        found = self._many([LETTER + each.encode() for each in letter_ids])
        return [None if raw is None else _letter(raw) for raw in found]

    def job(self, job_id: str) -> SeenJob | None:
        """One bulk redrive."""
        raw = self._db.get(JOB + job_id.encode())
        return None if raw is None else _job(raw)

    def jobs(self) -> list[SeenJob]:
        """All of them, whosever they are: they are few."""
        return [_job(raw) for raw in self._many(list(self.scan(JOB, JOB))) if raw is not None]

    def _many(self, keys: list[bytes]) -> list[bytes | None]:
        return cast("list[bytes | None]", self._db.get(cast("Any", keys))) if keys else []

    def scan(self, prefix: bytes, start: bytes) -> Iterator[bytes]:
        """The keys under `prefix` from `start` on, in order."""
        cursor = self._db.iter()
        cursor.seek(start)
        while cursor.valid():
            key = cursor.key()
            if not key.startswith(prefix):
                return
            yield key
            cursor.next()

    def commit(self, writes: Writes) -> None:
        """Write all of it, or nothing."""
        self._db.write(writes.batch, self._write_options)

    # -- building -------------------------------------------------------------------------------

    def begin_build(self) -> None:
        """From empty files on, take rows in bulk: reads are slow until `flush`, and a crash drops all."""
        self.clear()
        self._reopen(_building_options())
        self._write_options.disable_wal = True  # type: ignore[method-assign, assignment]  # a wrong stub

    def flush(self) -> None:
        """Let what was written be found quickly."""
        self._db.flush()

    def end_build(self) -> None:
        """Keep what was taken, and go on as ever."""
        self._db.flush()
        self._write_options = WriteOptions()
        self._reopen(_options())

    def _reopen(self, options: Options) -> None:
        self._db.close()
        self._db = _opened(self._path, options)


class Writes:
    """What one batch changes."""

    def __init__(self) -> None:
        self.batch = WriteBatch(raw_mode=True)

    def position(self, name: str, epoch: int, next_offset: int) -> None:
        """How far a topic partition was read."""
        self.batch.put(_POSITION + name.encode(), _MARK.pack(epoch, next_offset))

    def activity(self, activity_hash: bytes, row: bytes | None) -> None:
        """Put an activity's row, or forget it."""
        if row is None:
            self.batch.delete(ACTIVITY + activity_hash)
        else:
            self.batch.put(ACTIVITY + activity_hash, row)

    def job(self, job: SeenJob) -> None:
        """Put a bulk redrive."""
        self.batch.put(JOB + job.job_id.encode(), _encode(job))

    def delivery(self, before: Kept | None, after: Kept | None) -> None:
        """Put a delivery, or forget it, in rows and indexes."""
        put, delete = self.batch.put, self.batch.delete
        if after is None:
            if before is not None:
                for key in (before.status_key, before.target_key, BY_ID + before.delivery_id):
                    delete(key)
                delete(DELIVERY + before.place)
            return
        put(DELIVERY + after.place, after.row)
        if before is None:
            put(BY_ID + after.delivery_id, after.place)
        else:
            if before.status_key != after.status_key:
                delete(before.status_key)
            if before.target_key != after.target_key:
                delete(before.target_key)
        put(after.status_key, b"")
        put(after.target_key, b"")

    def fresh(self, kept: Kept) -> bool:
        """Put a delivery that is not there yet; say whether it is dead."""
        put, place = self.batch.put, kept.place
        put(DELIVERY + place, kept.row)
        put(BY_ID + kept.delivery_id, place)
        put(kept.status_key, b"")
        put(kept.target_key, b"")
        return kept.is_dead

    def letter(self, before: SeenLetter | None, after: SeenLetter) -> None:
        """Put a dead letter."""
        own = after.dead_letter_id.encode()
        if before is not None and _letter_index(before) != _letter_index(after):
            self.batch.delete(_letter_index(before))
        self.batch.put(LETTER + own, _encode(after))
        self.batch.put(_letter_index(after), b"")


def _letter_index(letter: SeenLetter) -> bytes:
    at = newest_first(letter.created_ms)
    return BY_LETTER_TIME + tenant_hash(letter.tenant) + at + letter.dead_letter_id.encode()


def _opened(path: Path, options: Options) -> Rdict:
    # Without the second, files that exist are opened with the options that they were made with.
    return Rdict(str(path), options, column_families={"default": options})


def _options() -> Options:
    return bounded_options(write_buffer_bytes=32 << 20, cache_bytes=64 << 20)


def _building_options() -> Options:
    # Small, for what is left in it when all is read is sorted while everybody waits, and not compressed, for
    # it is written anew when the files are opened for serving: 8.7 µs of CPU a row in place of 9.8 to 10.7
    # with 64 MiB and compression (110,000 rows built in process, in turn).
    options = bounded_options(write_buffer_bytes=16 << 20, cache_bytes=8 << 20)
    options.set_compression_type(DBCompressionType.none())
    options.set_memtable_factory(MemtableFactory.vector())
    options.set_allow_concurrent_memtable_write(False)
    # Sorted once, when the files are opened for serving.
    options.set_disable_auto_compactions(True)
    options.set_level_zero_slowdown_writes_trigger(1 << 20)
    options.set_level_zero_stop_writes_trigger(1 << 20)
    return options
