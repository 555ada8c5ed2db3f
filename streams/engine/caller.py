"""Makes the call that a claim allows, and judges what it saw."""

from __future__ import annotations

from collections.abc import Callable

from streams.edge.http.call import Call
from streams.edge.telemetry import Metrics
from streams.engine.outfit import Equipped
from streams.engine.ports import Time
from streams.model.activity import Activity
from streams.model.ledger import Row
from streams.model.target import Target
from streams.model.verdict import Judgement
from streams.rules.verdict import judge
from streams.wire.signatures.signing import Header, Unsigned


class HttpCaller:
    """Implements `delivery.Caller`: one POST as interface.md §4 promises it."""

    def __init__(
        self, time: Time, metrics: Metrics, *, on_gone: Callable[[Target, str], None]
    ) -> None:
        """Take what calls need.

        Args:
            on_gone: Told the target, and the code, when it says that it is gone for good (410).
        """
        self._time = time
        self._metrics = metrics
        self._on_gone = on_gone

    async def call(self, target: Target, activity: Activity, row: Row) -> Judgement:
        """See `delivery.Caller`."""
        assert isinstance(target, Equipped), "only what the registry found is called"
        outfit = target.outfit
        message_id = row.message_id.encode()
        content_type = activity.content_type.encode()
        timestamp_s = self._time.now_ms() // 1000
        signed: tuple[Header, ...] = ()
        if outfit.signer is not None:
            signed = outfit.signer.sign(
                Unsigned(
                    url=outfit.url,
                    content_type=content_type,
                    body=activity.body,
                    message_id=message_id,
                    timestamp_s=timestamp_s,
                )
            )
        headers = (
            (b"content-type", content_type),
            (b"webhook-id", message_id),
            (b"idempotency-key", message_id),
            (b"webhook-timestamp", b"%d" % timestamp_s),
            (b"outbox-attempt", b"%d" % row.attempts),
            *outfit.headers,
            *signed,
        )
        seen = await outfit.poster.post(
            Call(
                target=outfit.pool_key,
                url=outfit.url,
                headers=headers,
                body=activity.body,
                timeout_ms=target.policy.timeout_ms,
                limits=outfit.limits,
                message_id_from=target.message_id_from,
                ssl_context=outfit.ssl_context,
            )
        )
        self._metrics.call.observe(seen.duration_ms / 1000)
        judgement = judge(seen, target)
        if judgement.disables_target:
            self._on_gone(target, judgement.code)
        return judgement
