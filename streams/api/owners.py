"""The owners of partitions, as the API speaks to them: an audited command, then the wait for the answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from streams.api.alone import OneAtATime
from streams.api.view import View
from streams.api.writer import AuditedWriter, Outgoing
from streams.wire.audit import AuditRecord
from streams.wire.commands import Command, encode_command

PATIENCE_S: Final = 10.0
"""How long the owner's answer is waited for (interface.md §5)."""

Done = TypeVar("Done")


@dataclass(frozen=True, slots=True, kw_only=True)
class Owners:
    """Whom commands are written to.

    Attributes:
        topic: Where owners read commands.
        new_id: Gives an audit id that nobody had before.
        now_ms: Wall clock, epoch milliseconds.
    """

    view: View
    writer: AuditedWriter
    topic: str
    new_id: Callable[[], str]
    now_ms: Callable[[], int]
    patience_s: float = PATIENCE_S
    _turns: OneAtATime = field(default_factory=OneAtATime)

    async def alone(self, name: str, work: Callable[[], Awaitable[Done]]) -> Done:
        """Do `work`, one at a time for a name; to its end, also where the caller goes away meanwhile."""
        return await self._turns.run(name, work)

    async def tell(self, audit: AuditRecord, partition: int, command: Command) -> None:
        """Write a command and its audit record, both or neither.

        Raises:
            Problem: 503.
        """
        command_record = Outgoing(
            topic=self.topic,
            partition=partition,
            key=audit.activity_key.encode(),
            value=encode_command(command),
        )
        await self.writer.write(audit, [command_record])

    async def until(self, is_answered: Callable[[], bool]) -> None:
        """Wait for the owner's answer, as long as patience lasts."""
        await self.view.until(is_answered, self.patience_s)

    async def finish(self) -> None:
        """Wait for what is under way."""
        await self._turns.finish()
