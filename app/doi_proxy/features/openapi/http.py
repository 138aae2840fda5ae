"""`/openapi.json`, and the page `/docs` that is made from it."""

from __future__ import annotations

from asyncio import Lock, to_thread
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeVar

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from starlette.routing import BaseRoute

from doi_proxy.endpoints.operators import language_of, own_page
from doi_proxy.features.openapi.document import replace_references, write_document
from doi_proxy.web.freshness import OWN_PAGE
from doi_proxy.web.media_types import JSON
from doi_proxy.web.pages import PageLink
from doi_proxy.web.problem import all_titles
from doi_proxy.web.redirect import Face

Made = TypeVar("Made")


def add_openapi(app: FastAPI, face: Face, admin_routes: Sequence[BaseRoute], *, server_url: str) -> None:
    """Describe all paths, those of `admin_routes` too."""
    face.pages.links.append(PageLink("header", "/docs", "site.documentation"))

    # The routes are complete at the first request.
    @cache
    def describe() -> dict[str, Any]:
        return write_document(app.routes, admin_routes, version=app.version, server_url=server_url)

    address = "BASE" if server_url == "/" else server_url.rstrip("/")
    app.openapi = describe  # type: ignore[method-assign]
    encode = cache(lambda: JSONResponse(describe()).body)
    describe_in_place = cache(lambda: replace_references(describe()))
    # The document takes 0.1 s to make and the page 30 ms, which is too long for the event loop.
    making = Lock()

    async def make(part: Callable[[], Made]) -> Made:
        async with making:
            return await to_thread(part)

    @app.api_route("/openapi.json", methods=["GET", "HEAD"], include_in_schema=False)
    async def openapi() -> Response:
        return Response(await make(encode), media_type=JSON)

    @app.api_route("/docs", methods=["GET", "HEAD"], include_in_schema=False)
    async def docs(request: Request) -> Response:
        language = language_of(request, face.pages)

        def render() -> bytes:
            facts: dict[str, Any] = {"schema": describe_in_place(), "problems": all_titles(), "address": address}
            return face.pages.render("docs", face.link, language, "site.documentation", **facts)

        return own_page(await make(render), OWN_PAGE)
