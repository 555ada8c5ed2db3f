"""The histories of all deliveries, as `outbox.observations` tells them, in a RocksDB of their own.

Apart from the view: they are kept by time and not by state, and a lookup of a message id must work
where the ledger's row is gone. Holds records as they were written: codes, times, ids, no content.
"""

from __future__ import annotations

import asyncio
import shutil
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeAlias

import structlog
from aiokafka import ConsumerRecord
from rocksdict import Options, Rdict, WriteBatch

from streams.edge.clock import Clock
from streams.edge.cluster import explained
from streams.edge.log import Tail, read_all
from streams.errors import FatalError, RecordError
from streams.wire.observations import MESSAGE_ID_HEADER, ObservationRecord, decode_observation

log = structlog.get_logger(__name__)

Record: TypeAlias = ConsumerRecord[bytes, bytes]

RETENTION_MS: Final = 90 * 24 * 60 * 60 * 1_000
"""As long as the topic keeps it (design.md §1); so long a repeated event is known for one."""

ENTRIES_MAX: Final = 2_000
"""Entries of one delivery that are read at all: what `EVENTS_MAX` of events and its attempts can be."""

AT_ONCE: Final = 1_000
"""Records taken in one turn of the loop: a few milliseconds, so that answers go out between."""

NAMESAKES_MAX: Final = 1_000
"""Entries of one message id that are looked at: ids of providers that count from 1 can be many's."""

PRUNE_S: Final = 600.0
PRUNED_AT_ONCE: Final = 5_000

_ENTRY, _MESSAGE, _TIME, _POSITION, _IDENTITY = b"o", b"m", b"t", b"p", b"\x00identity"
_AT: Final = struct.Struct(">IQ")
_MS: Final = struct.Struct(">Q")
_LAYOUT: Final = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Which delivery, and which effect of it, a provider's message id stands for."""

    tenant: str
    delivery_id: str
    activity_id: str
    generation: int
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry of a history.

    Attributes:
        place: Where it stands: opaque, in the order of the topic.
    """

    place: bytes
    seen: ObservationRecord


class Histories:
    """Reads, and what `take` puts. Files of another log are dropped and built anew.

    Args:
        identity: Of cluster and prefix.

    Raises:
        FatalError: another process holds the files, or they cannot be opened.
    """

    def __init__(self, directory: Path, identity: str) -> None:
        self._path = directory
        self._identity = f"{_LAYOUT}/{identity}".encode()
        self._db = self._open()
        if self._db.get(_IDENTITY) not in (None, self._identity):
            self.clear()
        self._db[_IDENTITY] = self._identity
        self.is_ready = False
        """Whether the topic was read to its end once since the start."""

    def _open(self) -> Rdict:
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_max_open_files(128)
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            return Rdict(str(self._path), options)
        except Exception as error:  # rocksdict raises bare Exception for every fault
            raise FatalError(f"{self._path} cannot be opened: {error}") from error

    def clear(self) -> None:
        """Drop everything: it is read anew."""
        self._db.close()
        shutil.rmtree(self._path)
        self._db = self._open()
        self._db[_IDENTITY] = self._identity

    def close(self) -> None:
        """Release the files' lock."""
        self._db.close()

    # -- taking ---------------------------------------------------------------------------------

    def position(self, partition: int) -> int:
        """From which offset on a partition is to be read."""
        raw = self._db.get(_POSITION + partition.to_bytes(4, "big"))
        return 0 if raw is None else int.from_bytes(raw, "big")

    def take(self, partition: int, records: Sequence[Record]) -> None:
        """Put records of a partition, in order, in one atomic batch."""
        batch = WriteBatch(raw_mode=True)
        for record in records:
            place = _AT.pack(partition, record.offset)
            if record.key is None or record.value is None:
                continue
            entry = _ENTRY + record.key + b"\x00" + place
            batch.put(entry, record.value)
            at = _MS.pack(max(0, record.timestamp))
            batch.put(_TIME + at + place, entry)
            for name, message_id in record.headers:
                if name == MESSAGE_ID_HEADER:
                    named = _message_prefix(message_id) + place
                    batch.put(named, entry)
                    batch.put(_TIME + at + named, named)
        after = records[-1].offset + 1
        batch.put(_POSITION + partition.to_bytes(4, "big"), after.to_bytes(8, "big"))
        self._db.write(batch)

    def prune(self, before_ms: int) -> int:
        """Drop up to `PRUNED_AT_ONCE` of what is older; give how many were dropped."""
        batch = WriteBatch(raw_mode=True)
        old = list(islice(self._scan(_TIME, _TIME), PRUNED_AT_ONCE))
        dropped = 0
        for key, entry in old:
            if _MS.unpack_from(key, 1)[0] >= before_ms:
                break
            batch.delete(key)
            batch.delete(entry)
            dropped += 1
        if dropped:
            self._db.write(batch)
        return dropped

    # -- what is known --------------------------------------------------------------------------

    def entries(self, delivery_id: str, *, limit: int = ENTRIES_MAX) -> list[Entry]:
        """A delivery's history in the order of the topic; what cannot be read is passed over."""
        prefix = _ENTRY + delivery_id.encode() + b"\x00"
        found = islice(self._scan(prefix, prefix), min(limit, ENTRIES_MAX))
        decoded = ((key[len(prefix) :], _decoded(value)) for key, value in found)
        return [
            Entry(place=place, seen=seen)
            for place, seen in decoded
            if seen is not None and seen.delivery_id == delivery_id
        ]

    def by_message_id(self, tenant: str, message_id: str) -> Reference | None:
        """The delivery of a tenant whose target gave its message this id; the last where there are more.

        The tenant is compared in what was written, and the index needs no decoding when it is made.
        """
        found: Reference | None = None
        for spelling in (message_id, f"<{message_id}>"):
            prefix = _message_prefix(spelling.encode(errors="replace"))
            for key, entry in islice(self._scan(prefix, prefix), NAMESAKES_MAX):
                seen = _decoded(self._db.get(entry) or b"")
                if seen is None or (seen.tenant, seen.provider_message_id) != (tenant, spelling):
                    continue
                found = Reference(
                    tenant=tenant,
                    delivery_id=seen.delivery_id,
                    activity_id=seen.activity_id,
                    generation=seen.generation,
                    partition=_AT.unpack_from(key, len(prefix))[0],
                )
        return found

    def _scan(self, prefix: bytes, start: bytes) -> Any:
        cursor = self._db.iter()
        cursor.seek(start)
        while cursor.valid() and cursor.key().startswith(prefix):
            yield cursor.key(), cursor.value()
            cursor.next()


def _message_prefix(message_id: bytes) -> bytes:
    return _MESSAGE + sha256(message_id).digest()[:16]


def _decoded(value: bytes) -> ObservationRecord | None:
    """An entry; None for what a newer version, or somebody else, wrote there."""
    try:
        return decode_observation(value)
    except RecordError as error:
        log.warning("history.unreadable", code=error.code)
        return None


class HistoryFeed:
    """Feeds the histories from Kafka, outside any group."""

    def __init__(
        self,
        histories: Histories,
        topic: str,
        partitions: int,
        options: Mapping[str, Any],
        *,
        client_id: str,
        clock: Clock,
    ) -> None:
        self._histories = histories
        self._topic = topic
        self._partitions = range(partitions)
        self._options = options
        self._tail = Tail(options, client_id=client_id)
        self._clock = clock
        self._read: list[tuple[int, Sequence[Record]]] = []

    async def run(self) -> None:
        """Feed until cancelled.

        Raises:
            StreamsError: the topic cannot be read.
        """
        ends = await self._catch_up()
        self._histories.is_ready = True
        await self._tail.start()
        try:
            for p, end in ends.items():
                self._tail.follow(self._topic, p, end, partial(self._histories.take, p))
            async with asyncio.TaskGroup() as group:
                group.create_task(self._tail.run())
                group.create_task(self._prune())
        finally:
            await self._tail.stop()

    async def _catch_up(self) -> dict[int, int]:
        """Read to the present ends in bulk; a topic that is shorter than what we read is another one."""
        starts = {p: self._histories.position(p) for p in self._partitions}
        with explained(self._options):
            ends = await read_all(
                self._options,
                self._topic,
                starts,
                lambda p, records: self._read.append((p, records)),
                self._take,
            )
        if any(end < starts[p] for p, end in ends.items()):
            log.warning("histories.dropped", action="the topic is shorter: read anew")
            self._histories.clear()
            return await self._catch_up()
        return ends

    async def _take(self, _seen: int, _total: int) -> None:
        read, self._read = self._read, []
        for partition, records in read:
            for start in range(0, len(records), AT_ONCE):
                self._histories.take(partition, records[start : start + AT_ONCE])
                await asyncio.sleep(0)

    async def _prune(self) -> None:
        while True:
            dropped = self._histories.prune(self._clock.now_ms() - RETENTION_MS)
            await asyncio.sleep(0 if dropped == PRUNED_AT_ONCE else PRUNE_S)
