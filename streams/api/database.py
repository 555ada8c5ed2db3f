"""The read model's files: one RocksDB, its rows and its indexes, written in atomic batches.

Keys start with a letter that says what lies under them; names and keys stand there as hashes, so
that no index holds a URL. Times in indexes are inverted: a scan shows the newest first.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, cast

import msgspec
import structlog
from rocksdict import Options, Rdict, WriteBatch

from streams.api.shapes import SeenActivity, SeenDelivery, SeenLetter, Status, short_hash
from streams.edge.store import bounded_options
from streams.errors import FatalError

log = structlog.get_logger(__name__)

ACTIVITY, DELIVERY, LETTER = b"a", b"d", b"l"
OF_ACTIVITY, BY_ID = b"A", b"i"
BY_TIME, BY_STATUS, BY_TARGET, BY_LETTER_TIME = b"t", b"s", b"g", b"L"
_POSITION: Final = b"p"
_IDENTITY, _ALIVE, _COMPLETE = b"\x00identity", b"\x00alive", b"\x00complete"

LAYOUT: Final = "1"
"""Goes into the identity: another layout of these files is rebuilt from Kafka."""

HASH_BYTES: Final = 16
_TIME: Final = struct.Struct(">Q")
_MARK: Final = struct.Struct(">qq")
_LAST_MS: Final = (1 << 63) - 1
_STATUS_BYTES: Final = {status: bytes([at]) for at, status in enumerate(Status)}

_encode: Final = msgspec.msgpack.Encoder().encode
_activity: Final = msgspec.msgpack.Decoder(SeenActivity).decode
_delivery: Final = msgspec.msgpack.Decoder(SeenDelivery).decode
_letter: Final = msgspec.msgpack.Decoder(SeenLetter).decode


def tenant_hash(tenant: str) -> bytes:
    """What stands for a tenant in an index."""
    return short_hash(tenant.encode(), 8)


def newest_first(at_ms: int) -> bytes:
    """A time as indexes hold it."""
    return _TIME.pack(_LAST_MS - max(at_ms, 0))


def status_byte(status: Status) -> bytes:
    """A status as its index holds it."""
    return _STATUS_BYTES[status]


def index_keys(row_hash: bytes, seen: SeenDelivery) -> tuple[bytes, bytes, bytes]:
    """Where the indexes by time, status and target hold one delivery."""
    tenant, at = tenant_hash(seen.tenant), newest_first(seen.admitted_ms) + row_hash
    return (
        BY_TIME + tenant + at,
        BY_STATUS + tenant + _STATUS_BYTES[seen.status] + at,
        BY_TARGET + tenant + seen.target_hash + at,
    )


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
            return Rdict(str(self._path), _options())
        except Exception as error:  # rocksdict raises bare Exception for every fault
            if "lock" in str(error).lower():
                raise FatalError(
                    f"{self._path} is in use by another API; give each an OUTBOX_DATA_DIR of its own"
                ) from error
            if isinstance(error, OSError) or "orruption" not in str(error):
                raise FatalError(f"{self._path} cannot be opened: {error}") from error
            log.error("view.corrupt", action="rebuilt from Kafka")
            shutil.rmtree(self._path)
            return Rdict(str(self._path), _options())

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
        raw = self._db.get(ACTIVITY + activity_hash)
        return None if raw is None else _activity(raw)

    def deliveries(self, row_hashes: Sequence[bytes]) -> list[SeenDelivery | None]:
        """Deliveries by their row hashes, None for one that is gone."""
        found = self._many([DELIVERY + each for each in row_hashes])
        return [None if raw is None else _delivery(raw) for raw in found]

    def delivery(self, delivery_id: str) -> SeenDelivery | None:
        """A delivery by its public id."""
        row_hash = self._db.get(BY_ID + delivery_id.encode())
        return None if row_hash is None else self.deliveries([row_hash])[0]

    def deliveries_of(self, activity_hash: bytes) -> list[tuple[bytes, SeenDelivery]]:
        """Every delivery of an activity, with its row hash."""
        prefix = OF_ACTIVITY + activity_hash
        hashes = [key[len(prefix) :] for key in self.scan(prefix, prefix)]
        rows = zip(hashes, self.deliveries(hashes), strict=True)
        return [(row_hash, seen) for row_hash, seen in rows if seen is not None]

    def letters(self, letter_ids: Sequence[str]) -> list[SeenLetter | None]:
        """Dead letters by id."""
        found = self._many([LETTER + each.encode() for each in letter_ids])
        return [None if raw is None else _letter(raw) for raw in found]

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
        self._db.write(writes.batch)


class Writes:
    """What one batch changes."""

    def __init__(self) -> None:
        self.batch = WriteBatch(raw_mode=True)

    def position(self, name: str, epoch: int, next_offset: int) -> None:
        """How far a topic partition was read."""
        self.batch.put(_POSITION + name.encode(), _MARK.pack(epoch, next_offset))

    def activity(self, activity_hash: bytes, seen: SeenActivity | None) -> None:
        """Put an activity, or forget it."""
        if seen is None:
            self.batch.delete(ACTIVITY + activity_hash)
        else:
            self.batch.put(ACTIVITY + activity_hash, _encode(seen))

    def delivery(
        self, row_hash: bytes, before: SeenDelivery | None, after: SeenDelivery | None
    ) -> None:
        """Put a delivery, or forget it, in rows and indexes."""
        old = set() if before is None else set(index_keys(row_hash, before))
        new = set() if after is None else set(index_keys(row_hash, after))
        for key in old - new:
            self.batch.delete(key)
        for key in new - old:
            self.batch.put(key, b"")
        if after is not None:
            self.batch.put(DELIVERY + row_hash, _encode(after))
            if before is None:
                self.batch.put(OF_ACTIVITY + after.activity_hash + row_hash, b"")
                self.batch.put(BY_ID + after.delivery_id.encode(), row_hash)
        elif before is not None:
            self.batch.delete(DELIVERY + row_hash)
            self.batch.delete(OF_ACTIVITY + before.activity_hash + row_hash)
            self.batch.delete(BY_ID + before.delivery_id.encode())

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


def _options() -> Options:
    return bounded_options(write_buffer_bytes=32 << 20, cache_bytes=64 << 20)
