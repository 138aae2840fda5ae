"""The route of /metrics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import FastAPI, Request, Response
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics

from doi_proxy.endpoints.operators import text_headers
from doi_proxy.web.freshness import NO_STORE, VARY_ACCEPT


def add_metrics(app: FastAPI, registry: CollectorRegistry, read_store: Callable[[], Awaitable[None]]) -> None:
    """Answer /metrics. `read_store` is awaited before each answer."""

    @app.api_route("/metrics", methods=["GET", "HEAD"], include_in_schema=False)
    async def metrics(request: Request) -> Response:
        await read_store()
        if "application/openmetrics-text" in request.headers.get("accept", "").lower():
            media_type, body = openmetrics.CONTENT_TYPE_LATEST, openmetrics.generate_latest(registry)  # type: ignore[no-untyped-call]
        else:
            media_type, body = CONTENT_TYPE_PLAIN_0_0_4, generate_latest(registry)
        return Response(body, headers={"content-type": media_type, **text_headers(NO_STORE, VARY_ACCEPT)})
