"""Opens the traces. Without `otel_endpoint` no module of OpenTelemetry is imported for them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Export:
    """Where spans go, and the limits of the export. `timeout` is in seconds."""

    endpoint: str
    #: Spans that wait for the export. When the queue is full, spans are dropped.
    queue_spans: int = 2_048
    #: For one export with its repetitions, and for the last one at the end.
    timeout: float = 5.0


@dataclass(frozen=True, slots=True)
class TracedRequest:
    """What a span of a request contains, and what may continue the trace of a front proxy."""

    route: str
    method: str
    peer: str
    traceparent: str | None


class Traces(Protocol):
    """The spans of one process."""

    def trace_request(self, request: TracedRequest, send: Send) -> AbstractContextManager[Send]:
        """Open the span of a request. The answer must pass through the ASGI `send` that this gives."""

    def trace_query(self, upstream: int, outcome: str, seconds: float) -> None:
        """Record a query to an upstream, given its number, that has just ended."""

    def trust(self, is_trusted: Callable[[str], bool]) -> None:
        """Set the test for the addresses of front proxies whose `traceparent` is read."""

    async def aclose(self) -> None:
        """Export the spans that are left, for as long as the timeout of the export allows."""


def open_traces(export: Export, version: str, is_trusted: Callable[[str], bool], clock: Callable[[], int]) -> Traces:
    """The traces of this process. `clock` returns nanoseconds since the epoch."""
    from doi_proxy.features.tracing.spans import OpenTelemetryTraces

    return OpenTelemetryTraces(export, version, is_trusted, clock)
