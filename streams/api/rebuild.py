"""Builds the read model's rows from nothing: the whole ledger, a few partitions at a time.

What each partition's records fold to is gathered in memory and then put into empty files, so that no row is
looked up and each is written once. It is put there while the next partitions are read, for a broker takes
its time. Whatever it was when we died half-way, it is begun anew.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import structlog

from streams.api.folding import LedgerFolds
from streams.api.view import View
from streams.edge.log import read_all

log = structlog.get_logger(__name__)

RECORDS_AT_ONCE: Final = 100_000
"""Records, compacted ones included, of the partitions that are read together; as many are being written."""

HELD_BYTES_MAX: Final = 128 << 20
"""Of one partition, in memory; beyond it they are written and the rest looks up what is there."""


async def rebuild(
    view: View, options: Mapping[str, Any], topic: str, ends: Mapping[int, int]
) -> None:
    """Read the ledger into a view that is empty then, up to its present ends.

    Args:
        topic: The ledger.
        ends: Partition to about where it ends.

    Raises:
        StreamsError: it cannot be read.
    """
    began = time.monotonic()
    view.begin_build()
    read: list[int] = []
    with _without_gc():
        for together in groups(ends):
            # No task group: what the reading raises must come out as it is, for who explains it.
            writing = asyncio.create_task(_write(view.ledger, read))
            try:
                await _read(view.ledger, options, topic, together)
                await writing
            finally:
                writing.cancel()
            read = together
        await _write(view.ledger, read)
    view.db.end_build()
    records = sum(view.ledger.next(p) for p in ends)
    log.info("view.built", offsets=records, seconds=round(time.monotonic() - began, 1))


def groups(ends: Mapping[int, int]) -> Iterator[list[int]]:
    """Partitions to read together: as many as do not exceed `RECORDS_AT_ONCE`, one at least."""
    together: list[int] = []
    records = 0
    for partition, end in sorted(ends.items()):
        if together and records + end > RECORDS_AT_ONCE:
            yield together
            together, records = [], 0
        together.append(partition)
        records += end
    if together:
        yield together


async def _read(
    ledger: LedgerFolds, options: Mapping[str, Any], topic: str, partitions: list[int]
) -> None:
    async def write_full(_seen: int, _total: int) -> None:
        await _write(ledger, [p for p in partitions if ledger.size(p) > HELD_BYTES_MAX])
        await asyncio.sleep(0)

    await read_all(options, topic, dict.fromkeys(partitions, 0), ledger.take, write_full)


async def _write(ledger: LedgerFolds, partitions: Iterable[int]) -> None:
    for partition in partitions:
        for _ in ledger.build(partition):
            await asyncio.sleep(0)


@contextmanager
def _without_gc() -> Iterator[None]:
    """What is made here holds no cycles, and looking for some takes half of all time (measured)."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
