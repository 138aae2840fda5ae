"""`/metrics`: what happened since the start, and the state of the parts, for Prometheus."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from fastapi import FastAPI

from doi_proxy.features.feature import Context, Feature, Observers, Opened, Service, required
from doi_proxy.features.metrics.connections import ConnectionMetrics
from doi_proxy.features.metrics.event_loop import delay_histogram, sample_delay
from doi_proxy.features.metrics.gauges import expose, set_process_state
from doi_proxy.features.metrics.http import add_metrics
from doi_proxy.features.metrics.instruments import AnswerMetrics, FeatureMetrics, StoreMetrics, UpstreamMetrics
from doi_proxy.features.metrics.requests import HttpMetrics
from doi_proxy.features.metrics.state import StateMetrics
from doi_proxy.features.metrics.workers import Exposition
from doi_proxy.features.refusals import REFUSED
from doi_proxy.server.connections import Connections, Reason
from doi_proxy.upstream.guard import UNSENT_OUTCOMES, list_outcomes
from doi_proxy.web.operations import Face
from doi_proxy.web.route import ROUTES

#: Seconds between two updates of the metrics that other workers read.
PUBLISH_INTERVAL: Final = 1.0


def open_counters(context: Context) -> Observers:
    """Open the counters of answers, queries and failures of the store, and those of the features."""
    exposition = Exposition(context.shared_folder)
    features = FeatureMetrics(exposition.registry)
    context.meter = features
    context.provide(exposition)
    context.provide(features)
    answers = AnswerMetrics(exposition.registry, features.counter(REFUSED))
    exposition.flushers.append(answers.flush)
    upstream = UpstreamMetrics(exposition.registry, list_outcomes(), UNSENT_OUTCOMES)
    return Observers(
        answers, upstream.query_recorder, StoreMetrics(exposition.registry).store_failed, upstream.exchange_observer
    )


class Publishing(Service):
    """Keeps the metrics current that other workers read, and samples the delay of the event loop."""

    def __init__(self, context: Context, exposition: Exposition, features: FeatureMetrics, state: StateMetrics) -> None:
        self._core = context.core
        self._exposition = exposition
        self._features = features
        self._state = state

    async def run(self) -> None:
        """Sample, and publish if other workers share the metrics."""
        delay = delay_histogram(self._exposition.registry)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(sample_delay(delay, time.perf_counter, asyncio.sleep))
            if self._exposition.is_shared:
                tasks.create_task(self._publish())

    async def _publish(self) -> None:
        while True:
            self._exposition.flush()
            set_process_state(self._core, self._state, self._features)
            await asyncio.sleep(PUBLISH_INTERVAL)

    async def stop(self) -> None:
        """Add the last numbers, which other workers read."""
        self._exposition.flush()


def open_metrics(context: Context) -> Opened:
    """The stage that counts answers, and the route."""
    exposition, features = required(context.find(Exposition)), required(context.find(FeatureMetrics))
    registry, core = exposition.registry, context.core
    requests, state = HttpMetrics(registry, ROUTES), StateMetrics(registry, context.facts.version)
    exposition.flushers.append(requests.flush)
    context.provide(state)
    connections = context.find(Connections)
    if connections is not None:
        _count_connections(exposition, connections)

    def add(app: FastAPI, face: Face) -> None:
        requests.add_routes(context.own_routes)
        add_metrics(app, lambda accept: expose(core, state, features, exposition, accept))

    return Opened(stages=(requests,), services=(Publishing(context, exposition, features, state),), routes=(add,))


def _count_connections(exposition: Exposition, connections: Connections) -> None:
    metrics = ConnectionMetrics(exposition.registry, [reason.value for reason in Reason])

    def report() -> None:
        metrics.report(len(connections), {reason.value: number for reason, number in connections.closed.items()})

    exposition.flushers.append(report)


FEATURE: Final = Feature(
    "metrics",
    "/metrics for Prometheus, summed over the workers",
    observe=open_counters,
    open=open_metrics,
)
