"""The route of /metrics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import FastAPI, Request, Response

from doi_proxy.endpoints.own_pages import text_headers
from doi_proxy.features.metrics.workers import MetricsText
from doi_proxy.web.freshness import NO_STORE, VARY_ACCEPT


def add_metrics(app: FastAPI, write_metrics: Callable[[str | None], Awaitable[MetricsText]]) -> None:
    """Answer /metrics. `write_metrics` returns the metrics for an `Accept` header."""

    @app.api_route("/metrics", methods=["GET", "HEAD"], include_in_schema=False)
    async def metrics(request: Request) -> Response:
        text = await write_metrics(request.headers.get("accept"))
        headers = {"content-type": text.content_type, **text_headers(NO_STORE, VARY_ACCEPT)}
        return Response(text.body, headers=headers)
