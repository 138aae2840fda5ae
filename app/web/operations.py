"""The paths that are not names, which FastAPI answers, and the description of all paths at `/openapi.json`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.responses import PlainTextResponse
from starlette.routing import BaseRoute

from app.features.library.preferences import Preferences
from app.features.metrics.workers import MetricsText
from app.features.openapi.document import replace_references, write_document
from app.features.setup.probe import Probe, add_probe
from app.features.status.health import Health, Readiness
from app.web.fastapi_errors import add_errors
from app.web.freshness import NO_STORE, OWN_PAGE, STATIC_FILE, VARY_ACCEPT, VARY_LANGUAGE
from app.web.header import Header
from app.web.languages import choose
from app.web.pages import Link, Pages
from app.web.privacy import PrivacyFacts
from app.web.problem import TITLES
from app.web.responses import HTML, PAGE_POLICY
from app.web.route import OWN_API, STATIC_PATH

#: Crawlers must not fetch names: each one would be an upstream query.
ROBOTS: Final = "User-agent: *\nAllow: /$\nDisallow: /\n"

#: A browser can open an SVG logo as a page. Under this policy it loads nothing and runs nothing.
_FILE_POLICY: Final[Header] = (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'")

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


#: The application that `create_operations` returns.
Operations = FastAPI


@dataclass(frozen=True, slots=True)
class OperationPages:
    """The pages and static files that are not about a name."""

    pages: Pages
    link: Link
    #: What `/privacy` states. The upstreams can change with the local records.
    read_privacy: Callable[[], PrivacyFacts]

    def language(self, request: Request) -> str:
        """The language of a page for a request."""
        return choose(request.headers.get("accept-language"), self.pages.languages)


def create_operations(
    *,
    version: str,
    lifespan: Lifespan,
    readiness: Callable[[], Awaitable[Readiness]],
    write_metrics: Callable[[str | None], Awaitable[MetricsText]],
    face: OperationPages,
    preferences: Preferences,
    server_url: str,
    probe: Probe | None,
    admin_routes: Sequence[BaseRoute] = (),
) -> FastAPI:
    """The FastAPI application. `write_metrics` returns the metrics for an `Accept` header.

    The description of all paths has the `admin_routes` too.
    """
    app = FastAPI(
        title="doi-proxy",
        version=version,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        lifespan=lifespan,
    )

    # The routes are complete at the first request.
    @cache
    def describe() -> dict[str, Any]:
        return write_document(app.routes, admin_routes, version=version, server_url=server_url)

    app.openapi = describe  # type: ignore[method-assign]
    add_errors(app, face.link.base)
    _add_health(app, readiness)
    _add_metrics(app, write_metrics)
    _add_pages(app, face, cache(lambda: replace_references(describe())))
    preferences.add_to(app)
    _add_files(app, face)
    if probe is not None:
        add_probe(app, probe, lambda request: _no_file(face, request))
    return app


def other_paths(app: FastAPI) -> frozenset[bytes]:
    """The paths of operation. FastAPI answers these and OWN_API; all others are names."""
    return frozenset(str(getattr(route, "path", "")).encode() for route in app.routes) - OWN_API.keys()


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
        state = await readiness()
        response.status_code = 200 if state.ready else 503
        return state

    for route in (healthz, readyz):
        app.add_api_route("/" + route.__name__, route, methods=["HEAD"], include_in_schema=False)


def _add_metrics(app: FastAPI, write_metrics: Callable[[str | None], Awaitable[MetricsText]]) -> None:
    @app.api_route("/metrics", methods=["GET", "HEAD"], include_in_schema=False)
    async def metrics(request: Request) -> Response:
        text = await write_metrics(request.headers.get("accept"))
        headers = {"content-type": text.content_type, **_text_headers(NO_STORE, VARY_ACCEPT)}
        return Response(text.body, headers=headers)


def _add_pages(app: FastAPI, face: OperationPages, describe: Callable[[], dict[str, Any]]) -> None:
    @app.api_route("/docs", methods=["GET", "HEAD"], include_in_schema=False)
    async def docs(request: Request) -> Response:
        return _page(face.pages.docs(face.link, face.language(request), describe(), TITLES), OWN_PAGE)

    @app.api_route("/privacy", methods=["GET", "HEAD"], include_in_schema=False)
    async def privacy(request: Request) -> Response:
        return _page(face.pages.privacy(face.link, face.language(request), face.read_privacy()), OWN_PAGE)

    @app.api_route("/robots.txt", methods=["GET", "HEAD"], include_in_schema=False)
    async def robots() -> PlainTextResponse:
        return PlainTextResponse(ROBOTS)


def _text_headers(*headers: Header) -> dict[str, str]:
    return {name.decode("ascii"): value.decode("ascii") for name, value in headers}


def _page(body: bytes, freshness: Header, status: int = 200) -> Response:
    headers = _text_headers(HTML, *PAGE_POLICY, VARY_LANGUAGE, freshness)
    return Response(body, headers=headers, status_code=status)


def _no_file(face: OperationPages, request: Request) -> Response:
    language = face.language(request)
    return _page(face.pages.error(face.link, language, title_key="error_no_file", reason=""), NO_STORE, 404)


def _add_files(app: FastAPI, face: OperationPages) -> None:
    """The static files. A reload can add and remove some."""

    @app.api_route("/favicon.ico", methods=["GET", "HEAD"], include_in_schema=False)
    @app.api_route(STATIC_PATH.decode() + "{file:path}", methods=["GET", "HEAD"], include_in_schema=False)
    async def static(request: Request) -> Response:
        file = face.pages.files.get(request.scope["path"])
        if file is None:
            return _no_file(face, request)
        headers = _text_headers(STATIC_FILE, _FILE_POLICY)
        return Response(file.content, media_type=file.media_type, headers=headers)
