"""The targets that a worker knows: the whole registry, tailed outside the group."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network
from typing import Any, Final

import structlog
from aiokafka import ConsumerRecord

from streams.edge.log import Tail, read_all
from streams.engine.outfit import UNAVAILABLE, Outfitter
from streams.engine.ports import Time
from streams.errors import RecordError, TargetError
from streams.model.activity import Recipient
from streams.model.ledger import FailurePhase
from streams.model.policy import Policy
from streams.model.target import Target
from streams.rules.addresses import admit_url
from streams.rules.decide import Turned
from streams.rules.pacing import Aside
from streams.rules.targets import inbox_target, is_parked, overridden, registered_target
from streams.wire.targets import (
    TargetRecord,
    TargetState,
    decode_target,
    decode_target_state,
    encode_target_state,
)

log = structlog.get_logger(__name__)

STATE_SUFFIX: Final = "/state"

LOOK_S: Final = 0.5
"""How long one look waits for a record before it asks how far the topic was read."""

NO_STATE: Final = TargetState(disabled=False, code="", at_ms=0)


class Registry:
    """Finds targets. Implements `delivery.Targets`.

    The registry topic has one partition; a name that is unknown is looked for once more at the
    topic's present end, so that a target put just before its first activity is found.

    Attributes:
        on_release: Told a target's name when its deliveries need not be parked any more.
    """

    def __init__(
        self,
        topic: str,
        options: Mapping[str, Any],
        policies: Mapping[str, Policy],
        allowed_networks: Sequence[IPv4Network | IPv6Network],
        *,
        outfitter: Outfitter,
        append: Callable[[bytes, bytes], object],
        time: Time,
    ) -> None:
        """Know nothing yet: see `load` and `follow`.

        Args:
            append: Writes a key and a value to the topic, durably; nobody waits for it.
        """
        self._topic = topic
        self._options = options
        self._policies = policies
        self._allowed = tuple(allowed_networks)
        self._outfitter = outfitter
        self._append = append
        self._time = time
        self.on_release: Callable[[str], None] = lambda _: None
        self._records: dict[str, TargetRecord] = {}
        self._states: dict[str, TargetState] = {}
        self._targets: dict[str, Target | Turned] = {}
        self._next = 0
        self._looking = asyncio.Lock()
        self._looks = 0
        self._took = asyncio.Event()
        self._tail: Tail | None = None
        self.longest_lease_ms = max(policy.lease_ms for policy in policies.values())
        """The longest that any target had since the start."""
        self._inbox = lru_cache(maxsize=10_000)(self._make_inbox)

    # -- reading --------------------------------------------------------------------------------

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
            is_state = key.endswith(STATE_SUFFIX) and key.count("/") == 2
            own = key.removesuffix(STATE_SUFFIX) if is_state else key
            was_parked = self._is_parked(own)
            try:
                if is_state:
                    self._take_state(own, record.value)
                else:
                    self._take_target(own, record.value)
            except RecordError as error:
                log.error("target.unreadable", code=error.code, offset=record.offset)
                continue
            self._changed(own)
            if was_parked and not self._is_parked(own):
                self.on_release(own.partition("/")[2])

    def _take_target(self, key: str, value: bytes | None) -> None:
        if value is None:
            self._records.pop(key, None)
        else:
            record = self._records[key] = decode_target(value)
            lease_ms = record.policy_overrides.get("lease_ms", 0)
            self.longest_lease_ms = max(self.longest_lease_ms, int(lease_ms))

    def _take_state(self, key: str, value: bytes | None) -> None:
        if value is None:
            self._states.pop(key, None)
        else:
            self._states[key] = decode_target_state(value)

    def _changed(self, key: str) -> None:
        self._outfitter.forget(key, self._targets.pop(key, None))

    # -- what is known --------------------------------------------------------------------------

    async def find(self, tenant: str, recipient: Recipient) -> Target | Turned | Aside:
        """See `delivery.Targets`."""
        if recipient.inbox is not None:
            if not self._outfitter.can_sign and not await self._outfitter.find_key():
                return UNAVAILABLE
            return self._inbox(tenant, recipient.inbox)
        key = f"{tenant}/{recipient.target}"
        known = self._targets.get(key)
        if known is not None:
            return known
        if key not in self._records:
            await self._catch_up()
        while (record := self._records.get(key)) is not None:
            target = self._make_registered(key, record)
            if isinstance(target, Target) and target.enabled:
                equipped = await self._outfitter.equip(key, target)
                if self._records.get(key) is not record or self._is_parked(key):
                    self._outfitter.forget(key, equipped)
                    continue  # it was put anew while its secrets were read
                if isinstance(equipped, Aside):
                    return equipped
                target = equipped
            self._targets[key] = target
            return target
        return Turned(FailurePhase.ADMISSION, "unknown_target")

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

    def _is_parked(self, key: str) -> bool:
        record = self._records.get(key)
        if record is None:
            return False
        state = self._states.get(key, NO_STATE)
        return is_parked(
            enabled=record.enabled,
            updated_ms=record.updated_ms,
            disabled=state.disabled,
            disabled_ms=state.at_ms,
        )

    # -- what we ourselves say ------------------------------------------------------------------

    def gone(self, target: Target, code: str) -> None:
        """A registered target says that it is gone: say so to all workers, under a key of our own.

        An inbox URL is not disabled: nobody could enable it again, so its other deliveries would
        wait for nothing; each is refused by a call of its own, and told in its own dead letter.
        """
        key = f"{target.tenant}/{target.key}"
        record = self._records.get(key)
        if record is None or record.url != target.url or self._is_parked(key):
            return
        # Later than the record that it speaks of, whatever the clock of whoever put it.
        at_ms = max(self._time.now_ms(), record.updated_ms + 1)
        state = TargetState(disabled=True, code=code, at_ms=at_ms)
        self._states[key] = state
        self._changed(key)
        self._append(f"{key}{STATE_SUFFIX}".encode(), encode_target_state(state))
        log.warning(
            "target.disabled", target=key, code=code, enable=f"outbox targets put {target.key}"
        )

    # -- making ---------------------------------------------------------------------------------

    def _make_inbox(self, tenant: str, url: str) -> Target | Turned:
        try:
            admit_url(url, self._allowed)
        except TargetError as error:
            return _turned(error)
        return self._outfitter.inbox(inbox_target(url, tenant, self._policies))

    def _make_registered(self, key: str, record: TargetRecord) -> Target | Turned:
        try:
            target = registered_target(record, self._policies, self._allowed)
        except TargetError as error:
            log.error("target.invalid", target=key, reason=str(error))
            return _turned(error)
        return replace(target, enabled=not self._is_parked(key))


def _turned(error: TargetError) -> Turned:
    forbidden = "forbidden address" in str(error)
    return Turned(FailurePhase.ADMISSION, "address_forbidden" if forbidden else "target_invalid")
