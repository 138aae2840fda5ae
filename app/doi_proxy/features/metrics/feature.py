"""`/metrics`: what happened since the start, and the state of the parts, for Prometheus."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from doi_proxy.features import feature
from doi_proxy.system.background import Service

if TYPE_CHECKING:
    from fastapi import FastAPI

    from doi_proxy.features.metrics.instruments import FeatureMetrics
    from doi_proxy.features.metrics.requests import HttpMetrics
    from doi_proxy.features.metrics.state import StateMetrics
    from doi_proxy.features.metrics.workers import Exposition
    from doi_proxy.server.connections import Connections
    from doi_proxy.web.operations import Face

#: Seconds between two updates of the metrics that other workers read.
PUBLISH_INTERVAL: Final = 1.0


class Metrics(feature.Feature, Service):
    """Counts answers, queries and failures, keeps the metrics current that other workers read, and adds the route."""

    name = "metrics"
    summary = "/metrics for Prometheus, summed over the workers"

    exposition: Exposition
    features: FeatureMetrics
    state: StateMetrics
    _core: feature.Core
    _requests: HttpMetrics
    _own_api: Mapping[bytes, str]

    def observe(self) -> feature.Observers:
        """Open the counters of answers, queries and failures of the store, and those of the features."""
        from doi_proxy.features.metrics.instruments import AnswerMetrics, FeatureMetrics, StoreMetrics, UpstreamMetrics
        from doi_proxy.features.metrics.workers import Exposition
        from doi_proxy.system.meter import REFUSED
        from doi_proxy.upstream.guard import UNSENT_OUTCOMES, list_outcomes

        self.exposition = Exposition(self.context.shared_folder)
        registry = self.exposition.registry
        self.features = FeatureMetrics(registry)
        answers = AnswerMetrics(registry, self.features.counter(REFUSED))
        self.exposition.flushers.append(answers.flush)
        upstream = UpstreamMetrics(registry, list_outcomes(), UNSENT_OUTCOMES)
        return feature.Observers(
            answers,
            upstream.query_recorder,
            StoreMetrics(registry).store_failed,
            upstream.exchange_observer,
            self.features,
        )

    def open(self, core: feature.Core, others: feature.Others) -> Iterable[feature.Part]:
        """The stage that counts answers."""
        from doi_proxy.features.metrics.requests import HttpMetrics
        from doi_proxy.features.metrics.state import StateMetrics
        from doi_proxy.system.version import read_version
        from doi_proxy.web.route import ROUTES

        self._core, registry = core, self.exposition.registry
        self._requests = HttpMetrics(registry, ROUTES)
        self.state = StateMetrics(registry, read_version())
        self.exposition.flushers.append(self._requests.flush)
        if core.connections is not None:
            _count_connections(self.exposition, core.connections)
        return self._requests, self

    def add_routes(self, app: FastAPI, face: Face, opened: feature.Opened) -> None:
        """Add the route."""
        from doi_proxy.endpoints.operators import OperatorPath
        from doi_proxy.features.metrics.gauges import expose
        from doi_proxy.features.metrics.http import add_metrics

        self._own_api = face.own_api
        # Prometheus names a target as it likes, from wherever it runs.
        OperatorPath(face, "/metrics", ("0.0.0.0/0", "::/0"), None)
        add_metrics(app, lambda accept: expose(self._core, self.state, self.features, self.exposition, accept))

    async def start(self) -> None:
        """Measure the JSON endpoints of all features, which have been added by now."""
        self._requests.add_routes(self._own_api.values())

    async def run(self) -> None:
        """Sample the delay of the event loop, and publish if other workers share the metrics."""
        from doi_proxy.features.metrics.event_loop import delay_histogram, sample_delay

        delay = delay_histogram(self.exposition.registry)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(sample_delay(delay, time.perf_counter, asyncio.sleep))
            if self.exposition.is_shared:
                tasks.create_task(self._publish())

    async def _publish(self) -> None:
        from doi_proxy.features.metrics.gauges import set_process_state

        while True:
            self.exposition.flush()
            set_process_state(self._core, self.state, self.features)
            await asyncio.sleep(PUBLISH_INTERVAL)

    async def stop(self) -> None:
        """Add the last numbers, if other workers read them."""
        if self.exposition.is_shared:
            self.exposition.flush()


def _count_connections(exposition: Exposition, connections: Connections) -> None:
    from doi_proxy.features.metrics.instruments import ConnectionMetrics
    from doi_proxy.server.connections import Reason

    metrics = ConnectionMetrics(exposition.registry, [reason.value for reason in Reason])

    def report() -> None:
        metrics.report(len(connections), {reason.value: number for reason, number in connections.closed.items()})

    exposition.flushers.append(report)
