"""The metrics of requests. See docs/metrics.md.

Numbers that every request increments are plain integers, which cost a tenth of prometheus-client's locked counters.
`flush` adds them to the counters before a scrape. One thread does both.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from prometheus_client import CollectorRegistry, Counter

from doi_proxy.features.metrics.durations import DurationCounters
from doi_proxy.web.route import PREPARED
from doi_proxy.web.stage import Stage

#: Methods with a label of their own. All others share one label, because a client can invent any number of methods.
METHODS: Final = frozenset({"GET", "HEAD", "POST", "OPTIONS"})
OTHER_METHOD: Final = "other"
#: Histogram bounds for requests, in seconds. An answer from memory takes well under a millisecond.
REQUEST_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class HttpMetrics(Stage):
    """Requests by route."""

    def __init__(self, registry: CollectorRegistry, routes: Iterable[str]) -> None:
        self._requests = Counter(
            "doi_proxy_http_requests",
            "Requests answered, by route, method and status.",
            ["route", "method", "status"],
            registry=registry,
        )
        self._seconds = DurationCounters(
            registry,
            "doi_proxy_http_request_duration_seconds",
            "Time to answer a request, by route; without prepared answers.",
            "route",
            REQUEST_SECONDS,
        )
        self._answers: dict[tuple[str, str, int], int] = {}
        #: The prepared answers by method and status. A key of three would take twice as long for each of them.
        self._prepared: dict[str, dict[int, int]] = {"GET": {}, "HEAD": {}}
        #: An application that is not started has no route of a feature.
        self._durations: dict[str, _Durations] = defaultdict(_Durations)
        self.add_routes(routes)

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

    def flush(self) -> None:
        """Add the numbers since the last flush to the counters."""
        for key, number in self._answers.items():
            if number:
                self._requests.labels(*key).inc(number)
                self._answers[key] = 0
        for method, numbers in self._prepared.items():
            for status, number in numbers.items():
                self._requests.labels(PREPARED, method, status).inc(number)
            numbers.clear()
        for route, durations in self._durations.items():
            self._seconds.add(route, durations.counts, durations.sum)
            durations.reset()


class _Durations:
    """The observations of one histogram since the last flush: their number by bucket, and their sum."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.counts = [0] * (len(REQUEST_SECONDS) + 1)
        self.sum = 0.0
