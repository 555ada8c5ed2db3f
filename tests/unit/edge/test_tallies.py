"""What scrapers read does not show that it was counted another way."""

from __future__ import annotations

import re

import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest, openmetrics

from streams.edge.tallies import Spread, Tally

BOUNDS = (0.005, 0.1, 1.0)


def page(registry: CollectorRegistry, *, as_open_metrics: bool) -> str:
    """What is shown, but for the time at which counting began."""
    write = openmetrics.exposition.generate_latest if as_open_metrics else generate_latest
    return re.sub(r"(_created\S* ).*", r"\1then", write(registry).decode())


@pytest.mark.parametrize("as_open_metrics", [False, True])
def test_a_tally_shows_what_the_librarys_counter_does(as_open_metrics):
    """Alerts and dashboards know these lines by name."""
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    tally = Tally("a", "All of them", ["verdict", "code"], registry=ours)
    counter = Counter("a", "All of them", ["verdict", "code"], registry=theirs)

    for each in ("sent", "retry", "sent"):
        tally.count(each, "x")
        counter.labels(each, "x").inc()
        first = page(ours, as_open_metrics=as_open_metrics)

        assert page(theirs, as_open_metrics=as_open_metrics) == first
        assert first == page(ours, as_open_metrics=as_open_metrics)


@pytest.mark.parametrize("as_open_metrics", [False, True])
def test_a_spread_shows_what_the_librarys_histogram_does(as_open_metrics):
    """A bound belongs to its bucket; what is over all of them is counted too."""
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    spread = Spread("s", "How long", buckets=BOUNDS, registry=ours)
    histogram = Histogram("s", "How long", buckets=BOUNDS, registry=theirs)

    for amount in (0.0, 0.005, 0.0051, 0.1, 0.7, 1.0, 1.1, 60.0):
        spread.observe(amount)
        histogram.observe(amount)

        assert page(theirs, as_open_metrics=as_open_metrics) == page(
            ours, as_open_metrics=as_open_metrics
        )


def test_neither_says_when_it_began_where_that_is_switched_off(monkeypatch):
    """PROMETHEUS_DISABLE_CREATED_SERIES is the library's, and an operator's."""
    monkeypatch.setattr("prometheus_client.metrics._use_created", False)
    registry = CollectorRegistry()
    Spread("s", "How long", buckets=BOUNDS, registry=registry).observe(1.0)
    Tally("a", "All of them", ["code"], registry=registry).count("x")

    assert "_created" not in generate_latest(registry).decode()


def test_a_name_is_taken_once():
    """As with the library's own: two metrics of one name would be read as one."""
    registry = CollectorRegistry()
    Tally("a", "All of them", ["code"], registry=registry)

    with pytest.raises(ValueError, match="Duplicated"):
        Counter("a", "All of them", registry=registry)
