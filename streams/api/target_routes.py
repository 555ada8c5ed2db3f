"""Targets as operators see them, and how they park and release what is owed to one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from starlette.routing import Route

from streams.api.asking import Answer, Asking, Desk, reason_of
from streams.api.auth import ADMIN, READ
from streams.api.facts import parked, target_facts
from streams.api.owners import PATIENCE_S
from streams.api.problems import not_found
from streams.api.routes import BASE
from streams.api.tokens import TARGETS
from streams.api.view import STATE_SUFFIX, View
from streams.api.writer import REASON_BYTES_MAX, AuditedWriter, Outgoing
from streams.model.target import TargetRecord
from streams.rules.redaction import redact
from streams.wire.audit import AuditRecord
from streams.wire.targets import encode_target


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRoutes:
    """The endpoints of the registry.

    Attributes:
        topic: The registry.
        new_id: Gives an audit id that nobody had before.
        now_ms: Wall clock, epoch milliseconds.
    """

    desk: Desk
    writer: AuditedWriter
    topic: str
    new_id: Callable[[], str]
    now_ms: Callable[[], int]

    @property
    def _view(self) -> View:
        return self.desk.view

    def routes(self) -> list[Route]:
        """All of them."""
        endpoint = self.desk.endpoint
        one = f"{BASE}/targets/{{name}}"
        return [
            Route(f"{BASE}/targets", endpoint(self.targets, READ)),
            Route(f"{one}:enable", endpoint(self.enable, ADMIN), methods=["POST"]),
            Route(f"{one}:disable", endpoint(self.disable, ADMIN), methods=["POST"]),
            Route(f"{one}:pause", endpoint(self.disable, ADMIN), methods=["POST"]),
            Route(one, endpoint(self.target, READ)),
        ]

    async def targets(self, asking: Asking) -> Answer:
        """Every target of the tenant."""
        items = [
            target_facts(record, self._view.states.get(key))
            for key, record in sorted(self._view.targets.items())
            if record.tenant == asking.tenant
        ]
        return Answer(body={"items": items})

    async def target(self, asking: Asking) -> Answer:
        """One target."""
        key = self._key(asking)
        return Answer(body=target_facts(self._view.targets[key], self._view.states.get(key)))

    async def enable(self, asking: Asking) -> Answer:
        """Release what is owed to a target, after a 410 too."""
        return await self._switch(asking, enabled=True)

    async def disable(self, asking: Asking) -> Answer:
        """Park what is owed to a target: not called, not lost, no attempt spent."""
        return await self._switch(asking, enabled=False)

    def _key(self, asking: Asking) -> str:
        key = f"{asking.tenant}/{asking.path('name')}"
        if key not in self._view.targets:
            raise not_found("target")
        return key

    async def _switch(self, asking: Asking, *, enabled: bool) -> Answer:
        key = self._key(asking)
        reason = reason_of(await asking.body("reason"))
        record, state = self._view.targets[key], self._view.states.get(key)
        if parked(record, state) is not enabled:
            return Answer(body=target_facts(record, state))
        # Later than a 410 of a worker whose clock is ahead: an operator's word is the last one.
        at_ms = max(self.now_ms(), record.updated_ms + 1, 1 + state.at_ms if state else 0)
        switched = replace(record, enabled=enabled, updated_ms=at_ms)
        before = self._view.position(TARGETS)
        await self.writer.write(*self._records(asking, key, switched, reason))
        is_seen = await self._view.until(
            lambda: (
                self._view.position(TARGETS) > before
                and parked(self._view.targets.get(key, record), self._view.states.get(key))
                is not enabled
            ),
            PATIENCE_S,
        )
        facts = target_facts(self._view.targets.get(key, switched), self._view.states.get(key))
        place = {"location": f"{BASE}/targets/{switched.name}"}
        return Answer(body=facts, status=200 if is_seen else 202, headers={} if is_seen else place)

    def _records(
        self, asking: Asking, key: str, switched: TargetRecord, reason: str
    ) -> tuple[AuditRecord, list[Outgoing]]:
        audit = AuditRecord(
            audit_id=self.new_id(),
            action="target.enable" if switched.enabled else "target.disable",
            tenant=asking.tenant,
            subject=asking.caller.subject,
            request_id=asking.request_id,
            at_ms=self.now_ms(),
            reason=redact(reason, REASON_BYTES_MAX),
            target=switched.name,
        )
        values: dict[str, bytes | None] = {key: encode_target(switched)}
        if switched.enabled and key in self._view.states:
            values[f"{key}{STATE_SUFFIX}"] = None
        return audit, [
            Outgoing(topic=self.topic, partition=0, key=name.encode(), value=value)
            for name, value in values.items()
        ]
