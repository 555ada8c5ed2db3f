"""A store and the log it is brought up to: which log it was, how far it is, who is told."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pytest
from structlog.testing import capture_logs

from streams.edge.telemetry import Metrics
from streams.engine import restoring
from streams.engine.partition import Partition
from streams.engine.restoring import Restorer
from streams.model.ledger import OWNER_KEY, Kind, Phase
from streams.wire.codec import encode_row
from streams.wire.records import ledger_headers
from tests.sim.machine import SimTime
from tests.sim.memory import MemoryStore, Topic
from tests.unit.engine import protocol

KEY = b"urn:1\x00crm"
TOKEN = b"t" * 16
ONE, OTHER = b"1" * 16, b"2" * 16


class Log:
    """A ledger topic, as `Tail` and `read_all` show it."""

    def __init__(self, life: bytes = ONE, rows: int = 4) -> None:
        self.life = life
        self.topic = Topic("ledger")
        self.topic.land(OWNER_KEY, None, ledger_headers(Kind.OWNER, None, TOKEN), 0)
        for n in range(rows):
            headers = ledger_headers(Kind.REPORT, 0, TOKEN)
            self.topic.land(KEY, b"%s row %d" % (life[:1], n), headers, 0)
        self.read: list[int] = []
        """The offsets at which it was begun to be read."""

    async def incarnation(self, topic: str) -> bytes:
        return self.life

    async def end_offsets(self, topic: str, partitions: Any) -> dict[int, int]:
        return dict.fromkeys(partitions, self.topic.end)

    async def read_all(
        self,
        options: object,
        topic: str,
        starts: Mapping[int, int],
        sink: Any,
        progress: Any,
    ) -> dict[int, int]:
        self.read += starts.values()
        for index, start in starts.items():
            records = self.topic.read(start)
            if records:
                sink(index, records)
            await progress(len(records), self.topic.end)
        return dict.fromkeys(starts, self.topic.end)


class Place:
    """A worker's one partition over a log."""

    def __init__(self, log: Log, store: MemoryStore | None = None) -> None:
        self.log = log
        self.store = store or MemoryStore()
        self.metrics = Metrics()
        self.told: Sequence[Mapping[str, Any]] = ()

    def restore(self, stands: Sequence[bool] = ()) -> None:
        """Restore; `stands`: what is answered when it is asked, true after that."""
        asyncio.run(self._restore(list(stands)))

    async def _restore(self, stands: list[bool]) -> None:
        time = SimTime(asyncio.get_running_loop(), Random(1))
        partition = Partition(0, cast("Any", self.store), cast("Any", None), time, lambda _: None)
        restorer = Restorer(
            topic="ledger",
            options={},
            tail=cast("Any", self.log),
            time=time,
            metrics=self.metrics,
        )
        with (
            mock.patch.object(restoring, "read_all", self.log.read_all),
            capture_logs() as self.told,
        ):
            await restorer.restore([partition], lambda: stands.pop(0) if stands else True)

    @property
    def row(self) -> bytes | None:
        stored = self.store.get(KEY)
        return None if stored is None else stored.value

    @property
    def lines(self) -> list[str]:
        return [line["event"] for line in self.told]


def restored(log: Log) -> MemoryStore:
    """A store that was folded from this log."""
    place = Place(log)
    place.restore()
    return MemoryStore(place.store.kept)


def test_an_empty_store_is_folded_from_the_beginning() -> None:
    """And its log is remembered with it."""
    place = Place(Log())

    place.restore()

    assert ([0], b"1 row 3", 5) == (place.log.read, place.row, place.store.next)
    assert ONE == place.store.kept.incarnation
    assert ["ledger.restored"] == place.lines
    assert 5 == place.told[0]["records"]


def test_a_store_that_is_behind_reads_on_from_its_own_offset() -> None:
    """Issue 4."""
    place = Place(Log(rows=9), restored(Log(rows=4)))

    place.restore()

    assert ([5], b"1 row 8", ["ledger.restored"]) == (place.log.read, place.row, place.lines)


@pytest.mark.parametrize("rows", [2, 4, 9], ids=["fewer records", "as many", "more"])
def test_a_store_of_another_log_is_rebuilt(rows: int) -> None:
    """
    design.md §3: whatever the offsets say; nothing of the old log is left, and one line says so.
    """
    place = Place(Log(OTHER, rows=rows), restored(Log(ONE, rows=4)))

    place.restore()

    assert ([0], b"2 row %d" % (rows - 1)) == (place.log.read, place.row)
    assert OTHER == place.store.kept.incarnation
    assert ["store.foreign", "ledger.restored"] == place.lines
    assert ([0], []) == (place.told[0]["of_another_topic"], place.told[0]["ahead_of_the_log"])


def test_a_store_that_is_ahead_of_its_log_is_rebuilt() -> None:
    """An unclean leader election may take records away that were folded."""
    place = Place(Log(rows=2), restored(Log(rows=4)))

    place.restore()

    assert ([0], b"1 row 1", 3) == (place.log.read, place.row, place.store.next)
    assert ([], [0]) == (place.told[0]["of_another_topic"], place.told[0]["ahead_of_the_log"])


def test_a_restore_of_a_lost_assignment_drops_nothing_and_folds_nothing() -> None:
    """Rule 1: the next assignment restores for itself; two readers would turn rows back."""
    asked = Place(Log(OTHER), restored(Log(ONE)))
    asked.restore(stands=[False, False])
    reading = Place(Log(ONE, rows=9), restored(Log(ONE)))
    reading.restore(stands=[True, True, False, False])

    assert (b"1 row 3", 5) == (asked.row, asked.store.next)
    assert (b"1 row 3", 5) == (reading.row, reading.store.next)
    assert [] == [*asked.lines, *reading.lines]


def test_a_restore_says_how_much_and_how_fast() -> None:
    """Issue 4: progress in the log and in metrics."""
    place = Place(Log())

    place.restore()

    values = place.metrics.registry.get_sample_value
    assert (5.0, 0.0) == (values("outbox_restored_total"), values("outbox_restore_left"))
    assert (values("outbox_restore_rows_per_second") or 0.0) > 0.0
    assert {"partitions", "records", "per_s"} <= place.told[-1].keys()


def test_a_restore_outdates_what_was_decoded_before_the_partition_was_lost() -> None:
    """Rule 1: another owner settled it meanwhile, and the restore reads that in bulk."""

    async def scenario(own: protocol.Log) -> None:
        a = protocol.Member(own)
        await a.lead()
        waiting = asyncio.create_task(
            a.partition.write(Kind.REPORT, KEY, protocol.row(Phase.WAITING))
        )
        await protocol.turns()
        a.land()
        a.read()
        assert await waiting
        assert "waiting" == a.row.phase.value
        a.partition.revoke()
        settled = encode_row(protocol.row(Phase.SENT))
        headers = ledger_headers(Kind.REPORT, 0, TOKEN)
        record: Any = SimpleNamespace(offset=2, key=KEY, value=settled, headers=headers)

        a.partition.restore([record])

        assert "sent" == a.row.phase.value
        assert (3, 3) == (a.store.next, a.store.kept.next)

    protocol.play(scenario)
