"""`/metrics`: what happened since the start, and the state of the parts, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from doi_proxy.features import feature
from doi_proxy.system.check import REFUSED, Service

if TYPE_CHECKING:
    from fastapi import FastAPI
    from prometheus_client import CollectorRegistry, Histogram

    from doi_proxy.features.metrics.history import StateMetrics
    from doi_proxy.features.metrics.instruments import HttpMetrics
    from doi_proxy.web.redirect import Face


class Metrics(feature.Feature, Service):
    """Counts answers, queries and failures, and adds the route."""

    name = "metrics"
    summary = "/metrics for Prometheus"

    registry: CollectorRegistry
    _state: StateMetrics
    _requests: HttpMetrics
    _delay: Histogram
    _own_api: Mapping[bytes, str]

    def observe(self) -> feature.Observers:
        """Open the counters of answers, queries and failures of the store, and those of the features."""
        from prometheus_client import CollectorRegistry, disable_created_metrics

        from doi_proxy.features.metrics.instruments import AnswerMetrics, FeatureMetrics, StoreMetrics, UpstreamMetrics
        from doi_proxy.upstream.guard import UNSENT_OUTCOMES, list_outcomes

        # A `_created` series for each series would double their number.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = registry = CollectorRegistry()
        features = FeatureMetrics(registry)
        upstream = UpstreamMetrics(registry, list_outcomes(), UNSENT_OUTCOMES)
        return feature.Observers(
            AnswerMetrics(registry, features.counter(REFUSED)),
            upstream.query_recorder,
            StoreMetrics(registry).store_failed,
            upstream.exchange_observer,
            features,
        )

    def open(self, core: feature.Core, others: feature.Others) -> Iterable[feature.Part]:
        """The stage that counts answers."""
        from prometheus_client import Histogram

        from doi_proxy.features.metrics.history import StateMetrics
        from doi_proxy.features.metrics.instruments import ConnectionMetrics, HttpMetrics
        from doi_proxy.system.version import read_version
        from doi_proxy.web.request_path import ROUTES

        registry = self.registry
        self._requests = HttpMetrics(registry, ROUTES)
        self._state = StateMetrics(registry, core, read_version(), self.context.settings.instance)
        # Histogram bounds for the delay of the event loop, in seconds.
        self._delay = Histogram(
            "doi_proxy_event_loop_delay_seconds",
            "How much later than planned the event loop woke a task, sampled every second.",
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
            registry=registry,
        )
        if core.connections is not None:
            ConnectionMetrics(registry, core.connections, core.connections.closed)
        return self._requests, self

    def add_routes(self, app: FastAPI, face: Face, opened: feature.Opened) -> None:
        """Add the route."""
        from doi_proxy.endpoints import OperatorPath
        from doi_proxy.features.metrics.instruments import add_metrics

        self._own_api = face.own_api
        # Prometheus names a target as it likes, from wherever it runs.
        OperatorPath(face, "/metrics", ("0.0.0.0/0", "::/0"), None)
        add_metrics(app, self.registry, self._state.read_store)

    async def start(self) -> None:
        """Measure the JSON endpoints of all features, which have been added by now."""
        self._requests.add_routes(self._own_api.values())

    def tick(self, late: float) -> None:
        """Record by how much one task made all others of the process wait."""
        self._delay.observe(late)
