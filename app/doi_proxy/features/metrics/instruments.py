"""The metrics of answers, clients, connections, upstream queries and failures of the store. See docs/metrics.md.

Labels have values from closed sets only. A name or an address is never a label.

Numbers that every request increments are plain integers, which cost a tenth of prometheus-client's locked counters. A
scrape reads them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from doi_proxy.endpoints import text_headers
from doi_proxy.errors import ShareSpent, failure_tokens
from doi_proxy.resolver.resolution import HIT, Origin, Resolution, ResolutionObserver
from doi_proxy.system.check import CounterData, GaugeData, Meter
from doi_proxy.upstream.guard import RecordQuery
from doi_proxy.web.freshness import NO_STORE, VARY_ACCEPT
from doi_proxy.web.request_path import PREPARED
from doi_proxy.web.stage import Stage


def add_metrics(app: FastAPI, registry: CollectorRegistry, read_store: Callable[[], Awaitable[None]]) -> None:
    """Answer /metrics. `read_store` is awaited before each answer."""

    @app.api_route("/metrics", methods=["GET", "HEAD"], include_in_schema=False)
    async def metrics(request: Request) -> Response:
        await read_store()
        if "application/openmetrics-text" in request.headers.get("accept", "").lower():
            media_type, body = openmetrics.CONTENT_TYPE_LATEST, openmetrics.generate_latest(registry)  # type: ignore[no-untyped-call]
        else:
            media_type, body = CONTENT_TYPE_PLAIN_0_0_4, generate_latest(registry)
        return Response(body, headers={"content-type": media_type, **text_headers(NO_STORE, VARY_ACCEPT)})


#: The label of an answer by its origin. A fresh "not found" has the label NEGATIVE.
KINDS: Final = {
    Origin.HIT: "fresh",
    Origin.STALE: "stale",
    Origin.ASKED: "asked",
    Origin.RENEWED: "renewed",
    Origin.JOINED: "joined",
    Origin.BYPASSED: "bypassed",
    Origin.RELOADED: "bypassed",
    Origin.LOCAL: "local",
    Origin.REGISTRY: "registry",
}
NEGATIVE: Final = "negative"
#: The transports of the native Handle protocol.
TRANSPORTS: Final = ("udp", "tcp", "http", "https")
#: What a message to a handle server is for.
PURPOSES: Final = ("name", "lookup", "site")
#: The operations of a store, as a label of its errors.
STORE_OPERATIONS: Final = (
    "get", "put", "delete", "forget_registry", "count_registry", "announce", "scan", "changes", "read_note",
    "write_note", "spend", "stats", "flush", "close",
)  # fmt: skip


def _counter(registry: CollectorRegistry, name: str, about: str, *labels: str) -> Counter:
    return Counter(f"doi_proxy_{name}", about, labels, registry=registry)


class AnswerMetrics(ResolutionObserver, Collector):
    """The answers of a resolver."""

    def __init__(self, registry: CollectorRegistry, refused: Callable[[str], None]) -> None:
        """`refused` counts names without an answer because their client had used its share of the upstream."""
        self._refused = refused
        counter = partial(_counter, registry)
        #: Answers by origin. Fresh ones are by far the most.
        self._hits, self._negative, self._others = 0, 0, dict.fromkeys(KINDS, 0)
        about = "Names that could not be answered: no record in the cache, and the upstream could not be queried."
        failures = counter("could_not_verify", about, "reason")
        self._failed = {token: failures.labels(token).inc for token in failure_tokens()}
        about = "Records refreshed in the background before their TTL ended."
        self._refreshed = counter("refreshes_ahead", about).inc
        about = "10320/loc values that could not be read and were left out of an answer."
        self._malformed = counter("locations_malformed", about).inc
        about = "Second queries about a known name, because the first answer was that it does not exist."
        confirmations = counter("not_found_confirmations", about, "result")
        self._confirmed = confirmations.labels("confirmed").inc
        self._refuted = confirmations.labels("refuted").inc
        registry.register(self)

    def record_resolution(self, resolution: Resolution) -> None:
        """See ResolutionObserver."""
        self.record_origin(resolution.origin, not resolution.is_registered)

    def record_origin(self, origin: Origin, is_negative: bool) -> None:
        """See ResolutionObserver."""
        if origin is HIT and is_negative:
            self._negative += 1
        elif origin is HIT:
            self._hits += 1
        else:
            self._others[origin] += 1

    def record_failure(self, token: str) -> None:
        """See ResolutionObserver."""
        if token == ShareSpent.token:
            # The reason for a refusal that has its own counter: the share of upstream queries.
            self._refused("share")
        self._failed[token]()

    def record_refresh(self) -> None:
        """See ResolutionObserver."""
        self._refreshed()

    def record_malformed_locations(self, values: int) -> None:
        """See ResolutionObserver."""
        self._malformed(values)

    def record_confirmation(self, confirmed: bool) -> None:
        """See ResolutionObserver."""
        (self._confirmed if confirmed else self._refuted)()

    def collect(self) -> Iterator[Metric]:
        """See Collector. Some origins have one kind."""
        numbers = {**dict.fromkeys(KINDS.values(), 0), NEGATIVE: self._negative}
        for origin, number in (*self._others.items(), (HIT, self._hits)):
            numbers[KINDS[origin]] += number
        about = "Names answered, by where the answer came from."
        answers = CounterMetricFamily("doi_proxy_cache_answers", about, labels=["kind"])
        for kind, number in numbers.items():
            answers.add_metric([kind], number)
        yield answers


class FeatureMetrics(Meter):
    """The counters and gauges that features declare."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._counters: dict[str, Callable[..., None]] = {}

    def counter(self, data: CounterData) -> Callable[..., None]:
        """See Meter. A counter that several features use is one."""
        if data.name not in self._counters:
            self._counters[data.name] = self._create(data)
        return self._counters[data.name]

    def _create(self, data: CounterData) -> Callable[..., None]:
        if not data.label:
            return _counter(self._registry, data.name, data.about).inc
        family = _counter(self._registry, data.name, data.about, data.label)
        counted = {value: family.labels(value).inc for value in data.values}

        def count(value: str, amount: float = 1) -> None:
            counted[value](amount)

        return count

    def gauge(self, data: GaugeData, read: Callable[[], float]) -> None:
        """See Meter."""
        Gauge(f"doi_proxy_{data.name}", data.about, registry=self._registry).set_function(read)


class UpstreamMetrics:
    """Queries to upstreams. An upstream's label is its number in the settings, from 1; its address is not a label."""

    def __init__(
        self,
        registry: CollectorRegistry,
        outcomes: Collection[str],
        unsent: Collection[str],
    ) -> None:
        """`outcomes` are all outcomes that an observer accepts; `unsent` are those of queries that were not sent."""
        self._outcomes = outcomes
        self._unsent = frozenset(unsent)
        about = "Queries to an upstream, by outcome."
        self._queries = _counter(registry, "upstream_questions", about, "upstream", "outcome")
        # Histogram bounds for upstream queries, in seconds. They cross the Internet and end at a deadline.
        self._seconds = Histogram(
            "doi_proxy_upstream_question_duration_seconds",
            "Time that an upstream took to answer a query or to fail.",
            ["upstream"],
            buckets=(0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 20.0),
            registry=registry,
        )
        self._exchanges = Counter(
            "doi_proxy_upstream_exchanges",
            "Messages to handle servers of a native upstream, by transport, purpose and result.",
            ["upstream", "transport", "purpose", "result"],
            registry=registry,
        )
        self._rests = _counter(
            registry,
            "upstream_transport_rests",
            "How often a transport came last for a while, because servers were silent by it and answered by another.",
            "upstream",
            "transport",
        )

    def exchange_observer(self, number: int) -> ExchangeCounter:
        """The observer of the handle servers of one upstream."""
        label = str(number)
        return ExchangeCounter(
            {
                (transport, purpose, is_answered): self._exchanges.labels(label, transport, purpose, result).inc
                for transport in TRANSPORTS
                for purpose in PURPOSES
                for is_answered, result in ((True, "answer"), (False, "failure"))
            },
            {transport: self._rests.labels(label, transport).inc for transport in TRANSPORTS},
        )

    def query_recorder(self, number: int) -> RecordQuery:
        """Counts the queries to one upstream."""
        label = str(number)
        counters = {outcome: self._queries.labels(label, outcome).inc for outcome in sorted(self._outcomes)}
        observe_seconds = self._seconds.labels(label).observe

        def record_query(outcome: str, seconds: float) -> None:
            counters[outcome]()
            if outcome not in self._unsent:
                observe_seconds(seconds)

        return record_query


@dataclass(frozen=True, slots=True)
class ExchangeCounter:
    """Counts the messages to the handle servers of one upstream."""

    counters: dict[tuple[str, str, bool], Callable[[], None]]
    rests: dict[str, Callable[[], None]]

    def record_exchange(self, transport: str, purpose: str, *, is_answered: bool) -> None:
        """Count a message by its transport, one of TRANSPORTS, and its purpose, one of PURPOSES."""
        self.counters[transport, purpose, is_answered]()

    def record_rest(self, transport: str) -> None:
        """Count a transport that comes last for a while."""
        self.rests[transport]()


class StoreMetrics:
    """The failures of the store."""

    def __init__(self, registry: CollectorRegistry) -> None:
        errors = _counter(registry, "store_errors", "Failures of the store, by operation.", "operation")
        self._failed = {operation: errors.labels(operation).inc for operation in STORE_OPERATIONS}

    def store_failed(self, operation: str) -> None:
        """Count a failure of `operation`, one of STORE_OPERATIONS."""
        self._failed[operation]()


class ConnectionMetrics(Collector):
    """Open client connections, and closed ones by reason."""

    def __init__(self, registry: CollectorRegistry, connections: Sized, closed: Mapping[Any, int]) -> None:
        """`closed` is the number of connections that ended, by a reason that has the text of the label."""
        self._connections = connections
        self._closed = closed
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """See Collector."""
        yield GaugeMetricFamily("doi_proxy_connections_open", "Open client connections.", len(self._connections))
        about = "Client connections that ended, by reason."
        closed = CounterMetricFamily("doi_proxy_connections_closed", about, labels=["reason"])
        for reason, number in self._closed.items():
            closed.add_metric([str(reason)], number)
        yield closed


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
        # Methods with a label of their own. All others share one label, because a client can invent any number of
        # methods.
        key = (route, method if method in {"GET", "HEAD", "POST", "OPTIONS"} else "other", status)
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
