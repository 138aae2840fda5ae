"""The metrics of requests. See docs/metrics.md.

Numbers that every request increments are plain integers, which cost a tenth of prometheus-client's locked counters. A
scrape reads them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from doi_proxy.web.route import PREPARED
from doi_proxy.web.stage import Stage

#: Methods with a label of their own. All others share one label, because a client can invent any number of methods.
METHODS: Final = frozenset({"GET", "HEAD", "POST", "OPTIONS"})
OTHER_METHOD: Final = "other"
#: Histogram bounds for requests, in seconds. An answer from memory takes well under a millisecond.
REQUEST_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class HttpMetrics(Stage, Collector):
    """Requests by route."""

    def __init__(self, registry: CollectorRegistry, routes: Iterable[str]) -> None:
        self._answers: dict[tuple[str, str, int], int] = {}
        #: The prepared answers by method and status. A key of three would take twice as long for each of them.
        self._prepared: dict[str, dict[int, int]] = {"GET": {}, "HEAD": {}}
        #: An application that is not started has no route of a feature.
        self._durations: dict[str, _Durations] = defaultdict(_Durations)
        self.add_routes(routes)
        registry.register(self)

    def add_routes(self, routes: Iterable[str]) -> None:
        """Measure the answers of further routes."""
        self._durations |= {route: _Durations() for route in routes}

    def count(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count an answer and its duration."""
        key = (route, method if method in METHODS else OTHER_METHOD, status)
        try:
            self._answers[key] += 1
        except KeyError:
            self._answers[key] = 1
        durations = self._durations[route]
        durations.counts[bisect_left(REQUEST_SECONDS, seconds)] += 1
        durations.sum += seconds

    def count_prepared(self, method: str, status: int) -> None:
        """Count a prepared answer. Its method is GET or HEAD."""
        numbers = self._prepared[method]
        try:
            numbers[status] += 1
        except KeyError:
            numbers[status] = 1

    def collect(self) -> Iterator[Metric]:
        """See Collector."""
        about = "Requests answered, by route, method and status."
        requests = CounterMetricFamily("doi_proxy_http_requests", about, labels=["route", "method", "status"])
        for (route, method, status), number in self._answers.items():
            requests.add_metric([route, method, str(status)], number)
        for method, numbers in self._prepared.items():
            for status, number in numbers.items():
                requests.add_metric([PREPARED, method, str(status)], number)
        yield requests
        about = "Time to answer a request, by route; without prepared answers."
        seconds = HistogramMetricFamily("doi_proxy_http_request_duration_seconds", about, labels=["route"])
        bounds = (*map(str, REQUEST_SECONDS), "+Inf")
        for route, durations in self._durations.items():
            seconds.add_metric([route], list(zip(bounds, accumulate(durations.counts), strict=True)), durations.sum)
        yield seconds


class _Durations:
    """The observations of one histogram: their number by bucket, and their sum."""

    def __init__(self) -> None:
        self.counts = [0] * (len(REQUEST_SECONDS) + 1)
        self.sum = 0.0
