"""Metrics that each attempt counts up: plain numbers, made into prometheus_client's when somebody asks.

A counter of the library takes 2,900 instructions for each 1 that is added, a histogram 8,500 for each
value: a lock for every number, and a walk over the buckets. These take 600 and 1,700 (cachegrind).
What is shown is the same, name for name. For one thread: the loop's, in which they are read too.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client import Counter, Histogram

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from prometheus_client import CollectorRegistry, Metric


class Tally:
    """A counter with labels."""

    def __init__(
        self, name: str, documentation: str, labels: Sequence[str], *, registry: CollectorRegistry
    ) -> None:
        self._counter = Counter(name, documentation, labels, registry=None)
        self._unshown: dict[tuple[str, ...], int] = {}
        registry.register(self)

    def count(self, *labels: str) -> None:
        """Add 1."""
        so_far = self._unshown.get(labels)
        if so_far is None:
            self._counter.labels(*labels)  # notes the time: it counts from now on
            so_far = 0
        self._unshown[labels] = so_far + 1

    def describe(self) -> Iterable[Metric]:
        """See `prometheus_client.registry.Collector`; the registry asks for the names."""
        return self._counter.describe()

    def collect(self) -> Iterable[Metric]:
        """See `prometheus_client.registry.Collector`."""
        for labels, times in self._unshown.items():
            self._counter.labels(*labels).inc(times)
            self._unshown[labels] = 0
        return self._counter.collect()


class Spread:
    """A histogram without labels."""

    def __init__(
        self,
        name: str,
        documentation: str,
        *,
        buckets: Sequence[float],
        registry: CollectorRegistry,
    ) -> None:
        self._empty = Histogram(name, documentation, buckets=buckets, registry=None)
        self._bounds = buckets
        self._counts = [0] * (len(buckets) + 1)
        self._sum = 0.0
        registry.register(self)

    def observe(self, amount: float) -> None:
        """Count `amount` in the first bucket whose bound it does not exceed."""
        self._counts[bisect_left(self._bounds, amount)] += 1
        self._sum += amount

    def describe(self) -> Iterable[Metric]:
        """See `prometheus_client.registry.Collector`; the registry asks for the names."""
        return self._empty.describe()

    def collect(self) -> Iterable[Metric]:
        """See `prometheus_client.registry.Collector`: the samples of an empty one, with our values."""
        (metric,) = self._empty.collect()
        buckets = [float(n) for n in accumulate(self._counts)]
        values = [*buckets, buckets[-1], self._sum]  # the buckets, _count, _sum
        for place, value in enumerate(values):
            metric.samples[place] = metric.samples[place]._replace(value=value)
        return [metric]
