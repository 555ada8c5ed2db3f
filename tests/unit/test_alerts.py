"""`docs/alerts.md` against the code: what an operator is told to watch is there to be watched."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest

from streams.api.measuring import ApiMetrics
from streams.api.provider_events import EventCounts
from streams.edge.telemetry import Metrics
from tests.unit.api.desk import Fresh

PAGE = (Path(__file__).parents[2] / "docs" / "alerts.md").read_text()


def test_every_metric_of_the_page_exists():
    """
    Issue 7, "Alerts": an alert on a metric that was renamed would be silent for ever.
    """
    registry, metrics = CollectorRegistry(), Metrics()
    EventCounts(registry)
    ApiMetrics(registry, Fresh())
    text = (generate_latest(registry) + generate_latest(metrics.registry)).decode()
    families = {
        (name, kind) for name, kind in re.findall(r"^# TYPE (\S+) (\w+)$", text, re.MULTILINE)
    }
    exposed = {name for name, _ in families} | {
        f"{name}_bucket" for name, kind in families if kind == "histogram"
    }

    named = set(re.findall(r"\b(outbox_[a-z_]+)\b", PAGE))

    assert named
    assert set() == named - exposed


def test_the_consumer_of_the_page_has_ten_lines():
    """
    Issue 7: "a documented consumer in ten lines"; test_runbook.py runs it.
    """
    [code] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    body = code[code.index("schema =") :]

    assert len(re.findall(r"^.*\S", body, re.MULTILINE)) <= 10
