"""A span for each request that is not one of operation."""

from __future__ import annotations

from doi_proxy.features.tracing.spans import TracedRequest, Traces
from doi_proxy.web.request import Request
from doi_proxy.web.responses import Receive, Send
from doi_proxy.web.stage import Answer, Stage


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
