"""The one content view: an activity's body, masked, where its record still exists (D-044..047).

Nothing of it is kept here: the record is read from Kafka when an administrator asks, and what is shown
is written to the audit before it is answered.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, Protocol

import msgspec
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError
from starlette.routing import Route

from streams.api.asking import REASON_MAX, Answer, Asking, Desk, invalid
from streams.api.auth import ADMIN, owned
from streams.api.problems import Problem
from streams.api.routes import BASE
from streams.api.shapes import SeenActivity, activity_key
from streams.api.writer import REASON_BYTES_MAX, AuditedWriter
from streams.errors import RecordError
from streams.model.activity import Activity
from streams.rules.redaction import Json, mask, redact
from streams.wire.activity import read_activity
from streams.wire.audit import AuditRecord

PATH: Final = f"{BASE}/deliveries/{{delivery_id}}/content"
MASKED: Final = "masked"
FETCH_S: Final = 8.0
_BYTES_MAX: Final = 4 << 20
_DEPTH_MAX: Final = 1_000
"""What the worker took is read here too, whatever its limits are: the masks have their own."""

GONE: Final = Problem(
    404,
    "content_gone",
    "The record that carried the content is in Kafka no more, or cannot be read: nothing else keeps it."
    " Ask the system that produced it.",
)
UNREACHED: Final = Problem(
    503, "content_unavailable", "Kafka did not give the record in time.", {"retry-after": "5"}
)


class Contents(Protocol):
    """Reads records of the outbox topic."""

    async def fetch(self, partition: int, offset: int) -> bytes | None:
        """The value at an offset; None where it is gone.

        Raises:
            Problem: 503.
        """


class KafkaContents:
    """Implements `Contents`, one at a time: it is a rare question."""

    def __init__(self, options: Mapping[str, Any], topic: str, *, client_id: str) -> None:
        self._options = dict(options, client_id=client_id)
        self._topic = topic
        self._turn = asyncio.Lock()

    async def fetch(self, partition: int, offset: int) -> bytes | None:
        """See `Contents`."""
        try:
            async with asyncio.timeout(FETCH_S), self._turn:
                return await self._fetch(TopicPartition(self._topic, partition), offset)
        except (KafkaError, OSError, TimeoutError):
            raise UNREACHED from None

    async def _fetch(self, tp: TopicPartition, offset: int) -> bytes | None:
        consumer: AIOKafkaConsumer[bytes, bytes] = AIOKafkaConsumer(
            **self._options, enable_auto_commit=False, isolation_level="read_committed"
        )
        await consumer.start()
        try:
            first = (await consumer.beginning_offsets([tp]))[tp]
            end = (await consumer.end_offsets([tp]))[tp]
            if not first <= offset < end:
                return None
            consumer.assign([tp])
            consumer.seek(tp, offset)
            record = await consumer.getone(tp)
            return record.value if record.offset == offset else None
        finally:
            with suppress(KafkaError, OSError):
                await consumer.stop()


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentRoute:
    """`GET …/deliveries/{delivery_id}/content?reveal=masked`; scope `notification:admin`, audited.

    Attributes:
        new_id: Gives an audit id that nobody had before.
        now_ms: Wall clock, epoch milliseconds.
    """

    desk: Desk
    contents: Contents
    writer: AuditedWriter
    new_id: Callable[[], str]
    now_ms: Callable[[], int]

    def routes(self) -> list[Route]:
        """The one route."""
        parameters = frozenset({"reveal", "reason"})
        return [Route(PATH, self.desk.endpoint(self.content, ADMIN, parameters))]

    async def content(self, asking: Asking) -> Answer:
        """The masked content of what is owed to a target."""
        if asking.text("reveal") != MASKED:
            raise invalid("reveal", f"must be {MASKED}: content is shown in no other way")
        reason = asking.text("reason") or ""
        if len(reason) > REASON_MAX:
            raise invalid("reason", f"must have at most {REASON_MAX} characters")
        view = self.desk.view
        seen = owned(view.db.delivery(asking.path("delivery_id")), asking.tenant, "delivery")
        known = view.db.activity(seen.activity_hash)
        activity = await self._read(seen.partition, known)
        audit = AuditRecord(
            audit_id=self.new_id(),
            action="content.reveal",
            tenant=seen.tenant,
            subject=asking.caller.subject,
            request_id=asking.request_id,
            at_ms=self.now_ms(),
            reason=redact(reason, REASON_BYTES_MAX),
            target=seen.target,
            delivery_id=seen.delivery_id,
            activity_key=activity_key(seen.tenant, seen.activity_id).decode(),
            activity_id=seen.activity_id,
            generation=seen.generation,
        )
        await self.writer.write(audit, [])
        return Answer(
            body={
                "audit_id": audit.audit_id,
                "delivery_id": seen.delivery_id,
                "activity_id": seen.activity_id,
                "reveal": MASKED,
                "content_type": redact(activity.content_type),
                "bytes": len(activity.body),
                "content": masked(activity.body),
            }
        )

    async def _read(self, partition: int, known: SeenActivity | None) -> Activity:
        """The activity as its record carries it.

        Raises:
            Problem: 404 or 503.
        """
        if known is None or known.source_offset < 0:
            raise GONE
        value = await self.contents.fetch(partition, known.source_offset)
        if value is None:
            raise GONE
        try:
            activity = read_activity(value, max_bytes=_BYTES_MAX, max_depth=_DEPTH_MAX)
        except RecordError:
            raise GONE from None
        # The topic may have been made anew: what lies there by now is somebody else's.
        if (activity.tenant, activity.activity_id) != (known.tenant, known.activity_id):
            raise GONE
        return activity


def masked(body: bytes) -> Json:
    """A body as an administrator may see it: JSON and text masked, of anything else size and hash."""
    try:
        return mask(msgspec.json.decode(body))
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        return mask(body.decode())
    except UnicodeDecodeError:
        digest = b64encode(sha256(body).digest()).decode()
        return {"bytes": len(body), "sha256": digest}
