"""Makes the call that a claim allows, and judges what it saw."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from streams.edge.http.call import Call, Limits, Poster
from streams.edge.telemetry import Metrics
from streams.engine.ports import Time
from streams.model.activity import Activity
from streams.model.ledger import Row
from streams.model.target import Target
from streams.model.verdict import Judgement
from streams.rules.addresses import ParsedUrl, parse_url
from streams.rules.verdict import judge

USER_AGENT: Final = b"outbox/1"


class HttpCaller:
    """Implements `delivery.Caller`: one POST as interface.md §4 promises it."""

    def __init__(self, poster: Poster, time: Time, metrics: Metrics) -> None:
        self._poster = poster
        self._time = time
        self._metrics = metrics
        self._parsed = lru_cache(maxsize=10_000)(parse_url)

    async def call(self, target: Target, activity: Activity, row: Row) -> Judgement:
        """See `delivery.Caller`."""
        url: ParsedUrl = self._parsed(target.url)
        message_id = row.message_id.encode()
        seen = await self._poster.post(
            Call(
                target=_pool_key(target, url),
                url=url,
                headers=(
                    (b"content-type", activity.content_type.encode()),
                    (b"webhook-id", message_id),
                    (b"idempotency-key", message_id),
                    (b"webhook-timestamp", b"%d" % (self._time.now_ms() // 1000)),
                    (b"outbox-attempt", b"%d" % row.attempts),
                    (b"user-agent", USER_AGENT),
                ),
                body=activity.body,
                timeout_ms=target.policy.timeout_ms,
                limits=Limits(max_connections=POOL_CONNECTIONS, max_idle=target.policy.max_idle),
            )
        )
        self._metrics.call.observe(seen.duration_ms / 1000)
        return judge(seen, target)


def _pool_key(target: Target, url: ParsedUrl) -> str:
    """One pool for all of a tenant's inboxes of an origin; one for each registered target.

    1,000 inboxes of one server need no 1,000 connections. The gate bounds each target.
    """
    if target.key != target.url:
        return f"{target.tenant}\x00{target.key}"
    return f"{target.tenant}\x00{url.origin.scheme}://{url.origin.host}:{url.origin.port}"


POOL_CONNECTIONS: Final = 1_000
"""Bound of one origin's pool: the gate bounds each target, the transport the process."""
