"""Traces for OpenTelemetry."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from doi_proxy.features.feature import Context, Extra, Feature, Observers, Opened, Service, required
from doi_proxy.features.tracing.opening import Export, Traces, open_traces
from doi_proxy.features.tracing.settings import TracingSettings
from doi_proxy.features.tracing.stage import TracedRequests
from doi_proxy.server.proxies import trusted_addresses


class OpenTraces(Service):
    """The spans of one process. They are exported at its end."""

    def __init__(self, traces: Traces) -> None:
        self.traces = traces

    async def stop(self) -> None:
        """Export the spans that are left."""
        await self.traces.aclose()


def trace_upstream(context: Context) -> Observers:
    """Open the traces, and record a span for each query to an upstream."""
    settings = context.settings.group(TracingSettings)
    export = Export(required(settings.otel_endpoint))
    traces = open_traces(export, context.facts.version, trusted_addresses(context.facts.trusted_proxies), time.time_ns)
    context.provide(OpenTraces(traces))
    return Observers(upstream=lambda number: partial(traces.trace_query, number))


def open_tracing(context: Context) -> Opened:
    """The stage that opens a span for each request."""
    service = required(context.find(OpenTraces))
    context.reloads.on_reload(_trust(service.traces), "trusted_proxies")
    return Opened(stages=(TracedRequests(service.traces),), services=(service,))


def _trust(traces: Traces) -> Callable[[Any], None]:
    return lambda new: traces.trust(trusted_addresses(new.trusted_proxies))


FEATURE: Final = Feature(
    "tracing",
    "spans of requests and queries for OpenTelemetry",
    extra=Extra("otel", ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")),
    is_on=lambda settings: settings.group(TracingSettings).otel_endpoint is not None,
    observe=trace_upstream,
    open=open_tracing,
)
