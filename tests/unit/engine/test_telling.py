"""What a worker says of its attempts: a line each, those that went well as rarely as one likes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from streams.edge.telemetry import Metrics
from streams.engine.telling import Teller
from streams.model.verdict import Judgement, Verdict
from tests.unit.engine.fakes import claimed

SENT = Judgement(verdict=Verdict.SENT, code="http_200", status=200)
RETRY = Judgement(verdict=Verdict.RETRY, code="http_503", status=503)
TRIGGER: Any = SimpleNamespace(partition=SimpleNamespace(index=5), delivery_id="dlv_1")


def told(judgement: Judgement, *, sent_every: int, times: int = 10) -> tuple[int, float | None]:
    """How many lines so many attempts made, and how many of them were counted."""
    metrics = Metrics()
    teller = Teller(metrics, sent_every=sent_every)
    with capture_logs() as lines:
        for _ in range(times):
            teller.attempted(TRIGGER, claimed(), judgement, claimed())
    labels = {"verdict": judgement.verdict.value, "code": judgement.code}
    return len(lines), metrics.registry.get_sample_value("outbox_attempts_total", labels)


@pytest.mark.parametrize(("sent_every", "lines"), [(0, 0), (1, 10), (3, 4), (10, 1), (100, 1)])
def test_of_what_was_sent_every_so_manieth_has_a_line(sent_every, lines):
    """Issue 6: sampled by `OUTBOX_LOG_SENT_EVERY` on the happy path; counted all the same."""
    assert (lines, 10.0) == told(SENT, sent_every=sent_every)


@pytest.mark.parametrize("sent_every", [0, 1, 100])
def test_what_was_not_sent_always_has_a_line(sent_every):
    """O-005: one line an attempt, whatever is sampled."""
    assert (10, 10.0) == told(RETRY, sent_every=sent_every)
