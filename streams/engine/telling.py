"""What happened, told to logs and metrics: codes and numbers, never content."""

from __future__ import annotations

from typing import Final

import structlog

from streams.edge.telemetry import Metrics
from streams.engine.trigger import Trigger
from streams.model.ledger import Row
from streams.model.receipt import DeadLetter, Outcome
from streams.model.verdict import Judgement, Verdict
from streams.rules.retry_after import is_malformed

log = structlog.get_logger(__name__)

NAMED_TARGETS: Final = 10
"""Unreached targets named in one ERROR line; the rest is counted (O-005)."""

ID_BYTES: Final = 200
"""How much of an activity ID stands in a log line."""

_SENT: Final = Verdict.SENT


class Teller:
    """Implements `delivery.Telling`.

    One line per attempt. Those that were sent can be sampled: the first and every `sent_every`-th after
    it is logged, none where that is 0. All are counted.
    """

    def __init__(self, metrics: Metrics, *, sent_every: int = 1) -> None:
        self._metrics = metrics
        self._sent_every = sent_every
        self._sent = 0

    def attempted(self, trigger: Trigger, row: Row, judgement: Judgement, settled: Row) -> None:
        """See `delivery.Telling`."""
        self._metrics.attempts.count(judgement.verdict, judgement.code)
        if judgement.verdict is _SENT:
            self._sent += 1
            if not self._sent_every or (self._sent - 1) % self._sent_every:
                return
        # By `bind`, which structlog keeps: to miss `info` first, and then find it by `__getattr__`, took
        # a fifth of the line (6,500 instructions of 34,000, cachegrind).
        log.bind().info(
            "delivery.attempted",
            delivery_id=trigger.delivery_id,
            partition=trigger.partition.index,
            attempt=row.attempts,
            generation=row.generation,
            fence=row.fence,
            status=judgement.status,
            verdict=judgement.verdict,
            code=judgement.code,
            phase=settled.phase,
            due_ms=settled.due_ms,
            hint_malformed=is_malformed(judgement.retry_after),  # A04, A09
        )

    def put_aside(self, trigger: Trigger, reason: str, wait_ms: int) -> None:
        """See `delivery.Telling`. Counted only: a target that is down would write 50 lines a second."""
        self._metrics.aside.labels(reason).inc()

    def adopted(self, trigger: Trigger, judgement: Judgement) -> None:
        """See `delivery.Telling`."""
        self._metrics.adopted.labels(judgement.code).inc()
        log.warning("delivery.adopted", delivery_id=trigger.delivery_id, code=judgement.code)

    def exhausted(self, letter: DeadLetter) -> None:
        """The one ERROR line of an activity with deliveries given up (O-020)."""
        unreached = [entry.target for entry in letter.deliveries]
        log.error(
            "activity.dead_lettered",
            activity_id=letter.activity_id[:ID_BYTES],
            tenant=letter.tenant,
            unreached=unreached[:NAMED_TARGETS],
            unreached_count=len(unreached),
            attempts=sum(entry.attempts for entry in letter.deliveries),
            codes=sorted({entry.code for entry in letter.deliveries})[:NAMED_TARGETS],
        )

    def rejected(self, position: str, code: str) -> None:
        """A record cannot be read; it is in the dead letters and in quarantine (C-14)."""
        self._metrics.rejected.labels(code).inc()
        log.error("record.rejected", position=position, code=code)

    def not_taken(self, outcome: Outcome) -> None:
        """An activity of which nothing was sent: duplicate or conflict."""
        self._metrics.not_taken.labels(outcome.value).inc()

    def forwarded(self) -> None:
        """A record was sent on to the partition of its activity."""
        self._metrics.forwarded.inc()

    def redriven(self, letter_id: str, audit_id: str) -> None:
        """A dead letter was reopened."""
        self._metrics.redriven.inc()
        log.info("delivery.redriven", letter_id=letter_id, audit_id=audit_id)

    def fired(self, late_ms: int) -> None:
        """A retry was started so long after it was due."""
        self._metrics.lateness.observe(max(0, late_ms) / 1000)
