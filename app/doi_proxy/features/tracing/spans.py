"""Spans of requests and of queries to upstreams, exported by OTLP over HTTP.

No span contains a name, a path or an address. The messages of exceptions can contain names, so spans have none.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from doi_proxy.web.request import Request
from doi_proxy.web.responses import Receive, Send
from doi_proxy.web.stage import Answer, Stage

log = logging.getLogger(__name__)

#: The SDK logs each attempt here: a line a second in each process, while a collector is down.
_LIBRARY: Final = "opentelemetry.exporter"


class LoggedExporter(SpanExporter):
    """Exports spans by another exporter, and logs only whether its collector has failed or works again."""

    def __init__(self, exporter: SpanExporter, endpoint: str) -> None:
        self._exporter = exporter
        self._host = urlsplit(endpoint).netloc
        self._works = True
        self._attempts = _Attempts()
        library = logging.getLogger(_LIBRARY)
        library.propagate = False
        library.addHandler(self._attempts)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """See SpanExporter. A thread of the SDK calls it."""
        self._attempts.reason = ""
        result = self._exporter.export(spans)
        works = result is SpanExportResult.SUCCESS
        if self._works and not works:
            # Characters of the reason in the log.
            reason = self._attempts.reason[:300] or "no reason is known"
            log.warning("the collector of traces at %s does not take spans, which are dropped: %s", self._host, reason)
        elif works and not self._works:
            log.warning("the collector of traces at %s takes spans again", self._host)
        self._works = works
        return result

    def shutdown(self) -> None:
        """See SpanExporter."""
        logging.getLogger(_LIBRARY).removeHandler(self._attempts)
        self._exporter.shutdown()


class _Attempts(logging.Handler):
    """Keeps the first message of an export: it has the reason, and the last one only says that the time is over."""

    reason = ""

    def emit(self, record: logging.LogRecord) -> None:
        """See Handler."""
        self.reason = self.reason or record.getMessage()


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


class Traces:
    """The spans of one process. A thread of the SDK exports them; a full queue drops spans.

    `clock` returns nanoseconds since the epoch.
    """

    def __init__(
        self, export: Export, version: str, is_trusted: Callable[[str], bool], clock: Callable[[], int]
    ) -> None:
        self._is_trusted = is_trusted
        self._clock = clock
        self._timeout = export.timeout
        self._propagator = TraceContextTextMapPropagator()
        # `aclose` ends the export: the handler that the SDK registers for the exit waits up to 30 s.
        self._provider = TracerProvider(
            resource=Resource.create({"service.name": "doi-proxy", "service.version": version}),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(
            BatchSpanProcessor(
                LoggedExporter(OTLPSpanExporter(export.endpoint, timeout=export.timeout), export.endpoint),
                max_queue_size=export.queue_spans,
                schedule_delay_millis=5000,  # between two exports
                max_export_batch_size=min(512, export.queue_spans),  # spans of one export
            )
        )
        self._tracer = self._provider.get_tracer("doi-proxy", version)

    @contextmanager
    def trace_request(self, request: TracedRequest, send: Send) -> Iterator[Send]:
        """Open the span of a request. The answer must pass through the ASGI `send` that this gives."""
        # The word for all other methods, which clients can invent (OpenTelemetry semantic conventions, HTTP spans).
        method = request.method if request.method in {"GET", "HEAD", "POST", "OPTIONS"} else "_OTHER"
        with self._tracer.start_as_current_span(
            f"{method} {request.route}",
            context=self._parent(request),
            kind=SpanKind.SERVER,
            attributes={"http.request.method": method, "doi_proxy.route": request.route},
            record_exception=False,
            set_status_on_exception=False,
        ) as span:

            async def watched(message: MutableMapping[str, Any]) -> None:
                if message["type"] == "http.response.start":
                    _record_head(span, message)
                await send(message)

            yield watched

    def trace_query(self, upstream: int, outcome: str, seconds: float) -> None:
        """Record a query to an upstream that has just ended. Its span belongs to the request that started it."""
        end = self._clock()
        span = self._tracer.start_span(
            "upstream query",
            kind=SpanKind.CLIENT,
            attributes={"doi_proxy.upstream": upstream, "doi_proxy.outcome": outcome},
            start_time=end - int(seconds * 1e9),
        )
        span.end(end)

    def trust(self, is_trusted: Callable[[str], bool]) -> None:
        """Set the test for the addresses of front proxies whose `traceparent` is read."""
        self._is_trusted = is_trusted

    async def aclose(self) -> None:
        """Export the spans that are left, for as long as the timeout of the export allows."""
        # A daemon: a collector that does not answer must not hold up the end of the process.
        ending = threading.Thread(target=self._provider.shutdown, name="traces-end", daemon=True)
        ending.start()
        await asyncio.to_thread(ending.join, self._timeout)

    def _parent(self, request: TracedRequest) -> Context:
        """The context of a trusted proxy's trace (W3C Trace Context, section 3.2), else one that begins a trace."""
        if request.traceparent is None or not self._is_trusted(request.peer):
            return Context()
        return self._propagator.extract({"traceparent": request.traceparent}, Context())


def _record_head(span: Span, message: MutableMapping[str, Any]) -> None:
    status: int = message["status"]
    span.set_attribute("http.response.status_code", status)
    if status >= 500:
        span.set_status(Status(StatusCode.ERROR))
    for name, value in message.get("headers", ()):
        if name == b"cache-status":
            span.set_attribute("doi_proxy.cache_status", value.decode("latin-1"))


class TracedRequests(Stage):
    """Opens the span before an answer, and ends it after the answer."""

    def __init__(self, traces: Traces) -> None:
        self._traces = traces

    def wrap(self, answer: Answer) -> Answer:
        """Answer within a span."""

        async def answer_traced(request: Request, route: str, receive: Receive, send: Send) -> None:
            if route == "operation":
                await answer(request, route, receive, send)
                return
            peer = request.scope.get("doi_proxy.peer", "")
            traced = TracedRequest(route, request.method, peer, request.header(b"traceparent"))
            with self._traces.trace_request(traced, send) as watched:
                await answer(request, route, receive, watched)

        return answer_traced
