"""An OTLP receiver on loopback, which keeps the bodies of the exports."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Collector:
    """The bodies that a receiver got."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/v1/traces"
        self.bodies: list[bytes] = []
        self.status = 200

    def spans(self) -> list[Span]:
        """The spans of all bodies."""
        requests = [ExportTraceServiceRequest.FromString(body) for body in self.bodies]
        return [
            span
            for request in requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def span(self, name: str) -> Span:
        """The only span with this name."""
        (found,) = [span for span in self.spans() if span.name == name]
        return found


def attributes(span: Span) -> dict[str, str | int]:
    """The attributes of a span."""
    found: dict[str, str | int] = {}
    for one in span.attributes:
        found[one.key] = one.value.string_value or one.value.int_value
    return found


@contextmanager
def collecting(answers: threading.Event | None = None) -> Iterator[Collector]:
    """A receiver that answers `status`, each time after `answers` is set."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            collector.bodies.append(self.rfile.read(int(self.headers["content-length"])))
            if answers is not None:
                answers.wait()
            self.send_response(collector.status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None:
            """The client may have left."""

    with Server(("127.0.0.1", 0), Handler) as server:
        collector = Collector(server.server_port)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield collector
        finally:
            if answers is not None:
                answers.set()
            server.shutdown()
            thread.join()
