"""What the API writes: one Kafka transaction of an audit record and what it allows (D-065)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, ProducerFenced

from streams.api.problems import Problem
from streams.edge.failpoint import failpoint
from streams.wire.audit import AuditRecord, encode_audit

log = structlog.get_logger(__name__)

REQUEST_TIMEOUT_MS: Final = 4_000
COMMIT_S: Final = 8.0
"""How long one transaction may take, the wait for the ones before it included."""

TRANSACTION_TIMEOUT_MS: Final = 15_000
"""After this the brokers abort what a dead replica left open, so that readers go on."""

REASON_BYTES_MAX: Final = 512
"""How much of a reason stands in an audit record, redacted."""

UNAVAILABLE: Final = Problem(
    503,
    "audit_unavailable",
    "The audit record could not be written, so nothing was changed. Try again.",
    {"retry-after": "5"},
)
UNKNOWN: Final = Problem(
    503,
    "audit_unknown",
    "Kafka did not say whether the transaction was committed: both of its records stand, or neither."
    " Look at the dead letter before trying again.",
    {"retry-after": "5"},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """One record beside the audit record."""

    topic: str
    partition: int
    key: bytes
    value: bytes | None


class AuditedWriter:
    """Writes transactions one after the other, under the transactional id of this replica.

    A replica with the same id fences this one: each needs an `OUTBOX_WORKER_ID` of its own.
    """

    def __init__(self, options: Mapping[str, Any], audit_topic: str, transactional_id: str) -> None:
        self._options = options
        self._audit_topic = audit_topic
        self._transactional_id = transactional_id
        self._producer: AIOKafkaProducer | None = None
        self._turn = asyncio.Lock()

    async def open(self) -> None:
        """Connect, which aborts what an earlier process of this id left open: it holds all readers up.

        Where that cannot be done now, the first write does it.
        """
        try:
            async with asyncio.timeout(COMMIT_S), self._turn:
                await self._started()
        except (KafkaError, OSError, TimeoutError) as error:
            log.warning("audit.not_opened", error=type(error).__name__)

    async def stop(self) -> None:
        """Disconnect; an open transaction is aborted by the next that uses this id."""
        await self._drop()

    async def write(self, audit: AuditRecord, records: Sequence[Outgoing]) -> None:
        """Write all of it or nothing. Done when it is committed.

        Not to be cancelled half-way: run it as a task of its own.

        Raises:
            Problem: 503 where it is not committed, or not known to be.
        """
        try:
            async with asyncio.timeout(COMMIT_S), self._turn:
                await self._write(audit, records)
        except TimeoutError:
            raise UNAVAILABLE from None

    async def _write(self, audit: AuditRecord, records: Sequence[Outgoing]) -> None:
        committing = False
        try:
            producer = await self._started()
            await producer.begin_transaction()
            failpoint("audit_unsent")
            value = encode_audit(audit)
            sent = [await producer.send(self._audit_topic, value, key=audit.tenant.encode())]
            failpoint("command_unsent")
            sent += [
                await producer.send(each.topic, each.value, key=each.key, partition=each.partition)
                for each in records
            ]
            await asyncio.gather(*sent)
            failpoint("transaction_uncommitted")
            committing = True
            await producer.commit_transaction()
        except (KafkaError, OSError, AssertionError, ValueError, asyncio.CancelledError) as error:
            log.error(
                "audit.not_written",
                action=audit.action,
                error=type(error).__name__,
                fenced=isinstance(error, ProducerFenced),
                committing=committing,
            )
            await self._abort(committing=committing)
            if isinstance(error, asyncio.CancelledError) and not committing:
                raise
            raise (UNKNOWN if committing else UNAVAILABLE) from None

    async def _started(self) -> AIOKafkaProducer:
        if self._producer is None:
            producer = AIOKafkaProducer(
                **self._options,
                client_id=self._transactional_id,
                transactional_id=self._transactional_id,
                transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
                request_timeout_ms=REQUEST_TIMEOUT_MS,
            )
            try:
                await producer.start()
            except BaseException:
                await producer.stop()
                raise
            self._producer = producer
        return self._producer

    async def _abort(self, *, committing: bool) -> None:
        """Abort what is open, and throw the producer away: the next one's start aborts what is left.

        It is not kept where the abort went well: after a record that the broker refused, aiokafka's next to
        that partition fails with OutOfOrderSequenceNumber, for ever (measured).
        """
        producer = self._producer
        if producer is not None and not committing:
            try:
                async with asyncio.timeout(REQUEST_TIMEOUT_MS / 1_000):
                    await producer.abort_transaction()
            except (KafkaError, OSError, AssertionError, ValueError, TimeoutError) as error:
                log.warning("audit.not_aborted", error=type(error).__name__)
        await self._drop()

    async def _drop(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            stopping = asyncio.ensure_future(producer.stop())
            await asyncio.wait({stopping}, timeout=2.0)
            stopping.cancel()
