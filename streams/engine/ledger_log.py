"""The ledger topic as records: written by the appender, read by the tail and by the restore."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Final

from aiokafka import ConsumerRecord

from streams.edge.appender import Appender
from streams.edge.log import Tail
from streams.engine.durable import durable
from streams.model.ledger import Kind
from streams.rules.fold import LedgerRecord
from streams.rules.identity import activity_key_of
from streams.wire.commands import LateReport, encode_command
from streams.wire.ledger_batch import ledger_record
from streams.wire.records import ledger_headers

_OWNER: Final = Kind.OWNER


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaLedger:
    """One ledger partition on Kafka. Implements `ports.LedgerLog`."""

    topic: str
    commands: str
    partition: int
    appender: Appender
    tail: Tail

    def append(
        self, kind: Kind, key: bytes, value: bytes | None, epoch: int, token: bytes
    ) -> Awaitable[object]:
        """See `ports.LedgerLog`."""
        headers = ledger_headers(kind, None if kind is _OWNER else epoch, token)
        return self.appender.append(
            self.topic, self.partition, key=key, value=value, headers=headers
        )

    async def end_offset(self) -> int:
        """See `ports.LedgerLog`."""
        return await self.tail.end_offset(self.topic, self.partition)

    async def read_position(self) -> int:
        """See `ports.LedgerLog`."""
        return await self.tail.read_position(self.topic, self.partition)

    async def report_late(self, report: LateReport) -> None:
        """See `ports.LedgerLog`."""
        await durable(
            self.appender.append(
                self.commands,
                self.partition,
                key=activity_key_of(report.delivery_key),
                value=encode_command(report),
            )
        )


def ledger_records(records: Sequence[ConsumerRecord[bytes, bytes]]) -> list[LedgerRecord]:
    """Records of the ledger topic, their values still in bytes.

    Raises:
        RecordError: as `ledger_record`.
    """
    return [ledger_record(record) for record in records]
