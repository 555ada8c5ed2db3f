"""The targets that a worker knows: the whole registry, tailed outside the group."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network
from typing import Any, Final

import structlog
from aiokafka import ConsumerRecord

from streams.edge.log import Tail, read_all
from streams.errors import RecordError, TargetError
from streams.model.activity import Recipient
from streams.model.ledger import FailurePhase
from streams.model.policy import Policy
from streams.model.target import Target
from streams.rules.addresses import admit_url
from streams.rules.decide import Turned
from streams.rules.targets import inbox_target, overridden, registered_target
from streams.wire.targets import TargetRecord, decode_target

log = structlog.get_logger(__name__)

STATE_SUFFIX: Final = "/state"

LOOK_S: Final = 0.5
"""How long one look waits for a record before it asks how far the topic was read."""


class Registry:
    """Finds targets. Implements `delivery.Targets`.

    The registry topic has one partition; a name that is unknown is looked for once more at the
    topic's present end, so that a target put just before its first activity is found.
    """

    def __init__(
        self,
        topic: str,
        options: Mapping[str, Any],
        policies: Mapping[str, Policy],
        allowed_networks: Sequence[IPv4Network | IPv6Network],
    ) -> None:
        self._topic = topic
        self._options = options
        self._policies = policies
        self._allowed = tuple(allowed_networks)
        self._records: dict[str, TargetRecord] = {}
        self._targets: dict[str, Target | Turned] = {}
        self._next = 0
        self._looking = asyncio.Lock()
        self._looks = 0
        self._took = asyncio.Event()
        self._tail: Tail | None = None
        self._inbox = lru_cache(maxsize=10_000)(self._make_inbox)

    async def load(self) -> None:
        """Read the registry to its end; the worker leads nothing before that."""
        ends = await read_all(
            self._options, self._topic, {0: self._next}, lambda _, batch: self.take(batch)
        )
        self._next = max(self._next, ends.get(0, 0))

    def follow(self, tail: Tail) -> None:
        """Take every further record as it comes: targets change without a restart."""
        self._tail = tail
        tail.follow(self._topic, 0, self._next, self.take)

    async def _catch_up(self) -> None:
        """See everything that stood in the registry when this was called.

        Callers that come while one looks share the next look: a flood of unknown names costs no more.
        """
        asked = self._looks
        async with self._looking:
            if self._looks > asked + 1 or self._tail is None:
                return  # a look that began after our call is over
            end = await self._tail.end_offset(self._topic, 0)
            while self._next < end:
                self._took.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._took.wait(), timeout=LOOK_S)
                if await self._tail.read_position(self._topic, 0) >= end:
                    break
            self._looks += 1

    def take(self, records: Sequence[ConsumerRecord[bytes, bytes]]) -> None:
        """Apply registry records."""
        self._took.set()
        for record in records:
            self._next = max(self._next, record.offset + 1)
            key = (record.key or b"").decode(errors="replace")
            # A target may be named `state`: a state's own key has two slashes, a target's has one.
            if key.endswith(STATE_SUFFIX) and key.count("/") == 2:
                continue
            self._targets.pop(key, None)
            if record.value is None:
                self._records.pop(key, None)
                continue
            try:
                self._records[key] = decode_target(record.value)
            except RecordError as error:
                log.error("target.unreadable", code=error.code, offset=record.offset)

    async def find(self, tenant: str, recipient: Recipient) -> Target | Turned:
        """See `delivery.Targets`."""
        if recipient.inbox is not None:
            return self._inbox(tenant, recipient.inbox)
        key = f"{tenant}/{recipient.target}"
        target = self._targets.get(key)
        if target is None:
            if key not in self._records:
                await self._catch_up()
            target = self._targets[key] = self._make_registered(key)
        if isinstance(target, Turned) and key not in self._records:
            del self._targets[key]
        return target

    def policy_of(self, tenant: str, recipient: Recipient) -> Policy:
        """See `delivery.Targets`."""
        if recipient.inbox is not None:
            return self._policies["activity"]
        record = self._records.get(f"{tenant}/{recipient.target}")
        if record is None or record.policy not in self._policies:
            return self._policies["notification"]
        try:
            return overridden(self._policies[record.policy], record.policy_overrides)
        except TargetError:
            return self._policies[record.policy]

    def _make_inbox(self, tenant: str, url: str) -> Target | Turned:
        try:
            admit_url(url, self._allowed)
        except TargetError as error:
            return _turned(error)
        return inbox_target(url, tenant, self._policies)

    def _make_registered(self, key: str) -> Target | Turned:
        record = self._records.get(key)
        if record is None:
            return Turned(FailurePhase.ADMISSION, "unknown_target")
        try:
            admit_url(record.url, self._allowed)
            return registered_target(
                name=record.name,
                tenant=record.tenant,
                url=record.url,
                idempotent=record.idempotent,
                policy=record.policy,
                policy_overrides=record.policy_overrides,
                policies=self._policies,
                verdicts=record.verdicts,
                retryable=None if record.retryable is None else frozenset(record.retryable),
                enabled=record.enabled,
            )
        except TargetError as error:
            return _turned(error)


def _turned(error: TargetError) -> Turned:
    forbidden = "forbidden address" in str(error)
    return Turned(FailurePhase.ADMISSION, "address_forbidden" if forbidden else "target_invalid")
