"""The application of FastAPI, which answers the paths that are not names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager

from fastapi import FastAPI, Request, Response
from fastapi.responses import PlainTextResponse

from doi_proxy.endpoints import DeferredRoute, add_errors, no_file, text_headers
from doi_proxy.features.feature import Feature, Opened
from doi_proxy.web.freshness import STATIC_FILE
from doi_proxy.web.redirect import Face, Gate
from doi_proxy.web.request_path import STATIC_PATH, Paths

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


def create_operations(
    version: str,
    lifespan: Lifespan,
    face: Face,
    features: Iterable[Feature],
    opened: Opened,
) -> FastAPI:
    """The FastAPI application with the files of the core, and the routes of features."""
    app = FastAPI(
        title="doi-proxy",
        version=version,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        lifespan=lifespan,
    )
    app.router.route_class = DeferredRoute
    add_errors(app, face.link.base)
    _add_files(app, face)
    for feature in features:
        feature.add_routes(app, face, opened)
    return app


def find_paths(app: FastAPI, own_api: Mapping[bytes, str], private: Collection[bytes], gates: Sequence[Gate]) -> Paths:
    """The paths that FastAPI and gates answer. `own_api` are JSON endpoints by path, each with its route.

    No page of another site may read the answers of `private` paths.
    """
    paths = {str(getattr(route, "path", "")).encode() for route in app.routes} - own_api.keys()
    below = tuple({path.partition(b"{")[0] for path in paths if b"{" in path} - own_api.keys())
    return Paths(
        operations=frozenset(path for path in paths if b"{" not in path),
        below=below,
        gated_below=tuple(path for gate in gates for path in gate.below),
        private=frozenset(private),
        own_api=own_api,
    )


def _add_files(app: FastAPI, face: Face) -> None:
    """The static files, and what crawlers read. A reload can add and remove some static files."""

    @app.api_route("/robots.txt", methods=["GET", "HEAD"], include_in_schema=False)
    async def robots() -> PlainTextResponse:
        # Crawlers must not fetch names: each one would be an upstream query.
        return PlainTextResponse("User-agent: *\nAllow: /$\nDisallow: /\n")

    @app.api_route("/favicon.ico", methods=["GET", "HEAD"], include_in_schema=False)
    @app.api_route(STATIC_PATH.decode() + "{file:path}", methods=["GET", "HEAD"], include_in_schema=False)
    async def static(request: Request) -> Response:
        file = face.pages.files.get(request.scope["path"])
        if file is None:
            return no_file(face, request)
        # A browser can open an SVG logo as a page. Under this policy it loads nothing and runs nothing.
        headers = text_headers(
            STATIC_FILE, (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'")
        )
        return Response(file.content, media_type=file.media_type, headers=headers)
