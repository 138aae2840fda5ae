"""The paths beside the names, by FastAPI, and the description of all of them at `/openapi.json`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from fastapi.responses import PlainTextResponse
from starlette.routing import BaseRoute

from app.metrics.workers import MetricsText
from app.web.freshness import NO_STORE, OWN_PAGE, STATIC_FILE, VARY_ACCEPT
from app.web.header import Header
from app.web.health import Health, Readiness
from app.web.openapi import name_routes
from app.web.responses import HTML, PAGE_POLICY

#: Crawlers are asked to stay away: each name they fetch is a question upstream.
ROBOTS: Final = "User-agent: *\nAllow: /$\nDisallow: /\n"

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


#: The application that `create_operations` returns.
Operations = FastAPI


def create_operations(
    *,
    version: str,
    lifespan: Lifespan,
    readiness: Callable[[], Awaitable[Readiness]],
    exposed: Callable[[str | None], Awaitable[MetricsText]],
    docs_page: Callable[[dict[str, Any]], bytes],
    files: Mapping[str, tuple[str, bytes]],
    server_url: str,
) -> FastAPI:
    """The FastAPI application; `exposed` writes the metrics for an `Accept` header.

    `files` are the static files by path, as media type and content.
    """
    app = FastAPI(
        title="doi-proxy",
        version=version,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        lifespan=lifespan,
    )
    schema: dict[str, Any] = {}

    def openapi() -> dict[str, Any]:
        if not schema:
            schema.update(_description([*name_routes(), *app.routes], version, server_url))
        return schema

    app.openapi = openapi  # type: ignore[method-assign]
    _add_health(app, readiness)
    _add_metrics(app, exposed)
    _add_pages(app, lambda: docs_page(openapi()))
    for path, (media_type, content) in files.items():
        _add_file(app, path, media_type, content)
    return app


def _description(routes: list[BaseRoute], version: str, server_url: str) -> dict[str, Any]:
    """The OpenAPI document, without the 422 that FastAPI adds to whatever has parameters: nothing here sends it."""
    found = get_openapi(
        title="doi-proxy",
        version=version,
        summary="A resolver for DOI names that speaks doi.org's own language.",
        routes=routes,
        servers=[{"url": server_url}],
    )
    for operations in found["paths"].values():
        for operation in operations.values():
            operation["responses"].pop("422", None)
    for model in ("HTTPValidationError", "ValidationError"):
        found["components"]["schemas"].pop(model, None)
    return found


def other_paths(app: FastAPI) -> frozenset[bytes]:
    """The paths that FastAPI answers; all others are names."""
    return frozenset(str(getattr(route, "path", "")).encode() for route in app.routes)


def _add_health(app: FastAPI, readiness: Callable[[], Awaitable[Readiness]]) -> None:
    @app.get("/healthz", tags=["operation"], summary="Is the process alive?", response_description="It is.")
    async def healthz() -> Health:
        return Health(status="ok")

    @app.get(
        "/readyz",
        tags=["operation"],
        summary="Can it answer?",
        response_description="It can, from its cache at least.",
        responses={503: {"model": Readiness, "description": "It cannot: send requests elsewhere."}},
    )
    async def readyz(response: Response) -> Readiness:
        found = await readiness()
        response.status_code = 200 if found.ready else 503
        return found

    for route in (healthz, readyz):
        app.add_api_route("/" + route.__name__, route, methods=["HEAD"], include_in_schema=False)


def _add_metrics(app: FastAPI, exposed: Callable[[str | None], Awaitable[MetricsText]]) -> None:
    @app.api_route("/metrics", methods=["GET", "HEAD"], include_in_schema=False)
    async def metrics(request: Request) -> Response:
        found = await exposed(request.headers.get("accept"))
        headers = {"content-type": found.content_type, **_text_headers(NO_STORE, VARY_ACCEPT)}
        return Response(found.body, headers=headers)


def _add_pages(app: FastAPI, docs_page: Callable[[], bytes]) -> None:
    @app.api_route("/docs", methods=["GET", "HEAD"], include_in_schema=False)
    async def docs() -> Response:
        return Response(docs_page(), headers=_text_headers(HTML, *PAGE_POLICY, OWN_PAGE))

    @app.api_route("/robots.txt", methods=["GET", "HEAD"], include_in_schema=False)
    async def robots() -> PlainTextResponse:
        return PlainTextResponse(ROBOTS)


def _text_headers(*headers: Header) -> dict[str, str]:
    return {name.decode("ascii"): value.decode("ascii") for name, value in headers}


def _add_file(app: FastAPI, path: str, media_type: str, content: bytes) -> None:
    @app.api_route(path, methods=["GET", "HEAD"], include_in_schema=False)
    async def static() -> Response:
        return Response(content, media_type=media_type, headers=_text_headers(STATIC_FILE))
