"""What the protocol needs of the world, so that a simulation can stand in for it."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

from streams.model.ledger import Kind
from streams.wire.commands import LateReport


class Time(Protocol):
    """Time and chance."""

    def now_ms(self) -> int:
        """Wall clock, epoch milliseconds."""

    def monotonic(self) -> float:
        """Seconds of a clock that never goes back."""

    def jitter(self) -> float:
        """Uniform in 0..1."""

    def token(self) -> bytes:
        """16 bytes that nobody chose before."""


class LedgerLog(Protocol):
    """One ledger partition's log, as its owner writes it and asks for its end."""

    def append(
        self, kind: Kind, key: bytes, value: bytes | None, epoch: int, token: bytes
    ) -> Awaitable[object]:
        """Append a record; done when durable. A failure ends the process (rule 12)."""

    async def end_offset(self) -> int:
        """Where the next record would lie, asked of the leader now."""

    async def read_position(self) -> int:
        """How far the tail has read, records that compaction took included; -1 when not following."""

    async def report_late(self, report: LateReport) -> None:
        """Send a late report to the owner; done when durable."""
