"""Traces for OpenTelemetry."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from pydantic import Field, field_validator

from doi_proxy.features import feature
from doi_proxy.system.check import Service
from doi_proxy.system.options import Settings, SettingsGroup, require_host

if TYPE_CHECKING:
    from doi_proxy.features.tracing.spans import Traces


class TracingSettings(SettingsGroup):
    """The export of traces."""

    tables = ("otel",)

    otel_endpoint: str | None = Field(
        None,
        pattern=r"^(?i:https?)://[^?#@\s]+$",
        description="URL of the collector of traces, by OTLP over HTTP, such as "
        "`http://127.0.0.1:4318/v1/traces`. Without it, none are sent. It needs `pip install "
        "'doi-proxy[otel]'`. Set it if you collect traces.",
    )

    @field_validator("otel_endpoint")
    @classmethod
    def _name_collector_host(cls, value: str | None) -> str | None:
        if value is not None:
            require_host(value)
        return value


class Tracing(feature.Feature, Service):
    """The spans of one process. They are exported at its end."""

    name = "tracing"
    summary = "spans of requests and queries for OpenTelemetry"
    settings = TracingSettings
    extra = feature.Extra("otel", ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"))

    _traces: Traces

    @classmethod
    def is_on(cls, settings: Settings) -> bool:
        """Whether there is a collector."""
        return settings.group(TracingSettings).otel_endpoint is not None

    def observe(self) -> feature.Observers:
        """Open the traces, and record a span for each query to an upstream."""
        from doi_proxy.features.tracing.spans import Export, Traces
        from doi_proxy.server.proxies import trusted_addresses
        from doi_proxy.system.version import read_version

        settings = self.context.settings
        endpoint = settings.group(TracingSettings).otel_endpoint
        trusted = trusted_addresses(settings.trusted_proxies)
        self._traces = Traces(Export(endpoint or ""), read_version(), trusted, time.time_ns)
        return feature.Observers(upstream=lambda number: partial(self._traces.trace_query, number))

    def open(self, core: feature.Core, others: feature.Others) -> Iterable[feature.Part]:
        """The stage that opens a span for each request."""
        from doi_proxy.features.tracing.spans import TracedRequests
        from doi_proxy.server.proxies import trusted_addresses

        self.context.reloads.on_reload(
            lambda new: self._traces.trust(trusted_addresses(new.trusted_proxies)), "trusted_proxies"
        )
        return TracedRequests(self._traces), self

    async def stop(self) -> None:
        """Export the spans that are left."""
        await self._traces.aclose()
