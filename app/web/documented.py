"""The paths beside the names, by FastAPI, and the description of all of them at `/openapi.json`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from fastapi import FastAPI, Response
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse, PlainTextResponse

from app.web.described import described_routes
from app.web.health import Health, Readiness

#: Crawlers are asked to stay away: each name they fetch is a question upstream.
ROBOTS: Final = "User-agent: *\nAllow: /$\nDisallow: /\n"
#: Static files change with a release only.
STATIC_MAX_AGE: Final = "public, max-age=86400"

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


def create_documented(
    *,
    version: str,
    lifespan: Lifespan,
    readiness: Callable[[], Awaitable[Readiness]],
    docs_page: Callable[[dict[str, Any]], bytes],
    files: Mapping[str, tuple[str, bytes]],
    server_url: str,
) -> FastAPI:
    """The FastAPI application; `files` are the static files by path, as media type and content."""
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
            routes = [*described_routes(), *app.routes]
            schema.update(
                get_openapi(
                    title="doi-proxy",
                    version=version,
                    summary="A resolver for DOI names that speaks doi.org's own language.",
                    routes=routes,
                    servers=[{"url": server_url}],
                )
            )
        return schema

    app.openapi = openapi  # type: ignore[method-assign]
    _add_health(app, readiness)
    _add_pages(app, lambda: docs_page(openapi()))
    for path, (media_type, content) in files.items():
        _add_file(app, path, media_type, content)
    return app


def other_paths(app: FastAPI) -> frozenset[bytes]:
    """The paths that FastAPI answers; all others are names."""
    return frozenset(str(getattr(route, "path", "")).encode() for route in app.routes)


def _add_health(app: FastAPI, readiness: Callable[[], Awaitable[Readiness]]) -> None:
    @app.get("/healthz", tags=["operation"], summary="Is the process alive?")
    async def healthz() -> Health:
        return Health(status="ok")

    @app.get("/readyz", tags=["operation"], summary="Can it answer?", responses={503: {"model": Readiness}})
    async def readyz(response: Response) -> Readiness:
        found = await readiness()
        response.status_code = 200 if found.ready else 503
        return found

    for route in (healthz, readyz):
        app.add_api_route("/" + route.__name__, route, methods=["HEAD"], include_in_schema=False)


def _add_pages(app: FastAPI, docs_page: Callable[[], bytes]) -> None:
    @app.api_route("/docs", methods=["GET", "HEAD"], include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(docs_page())

    @app.api_route("/robots.txt", methods=["GET", "HEAD"], include_in_schema=False)
    async def robots() -> PlainTextResponse:
        return PlainTextResponse(ROBOTS)


def _add_file(app: FastAPI, path: str, media_type: str, content: bytes) -> None:
    @app.api_route(path, methods=["GET", "HEAD"], include_in_schema=False)
    async def static() -> Response:
        return Response(content, media_type=media_type, headers={"cache-control": STATIC_MAX_AGE})
