"""`/openapi.json`, and the page `/docs` that is made from it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from starlette.routing import BaseRoute

from app.features.openapi.document import replace_references, write_document
from app.features.openapi.translations import read_translation
from app.web.freshness import OWN_PAGE
from app.web.operations import Face, language_of, own_page
from app.web.pages import PageLink
from app.web.problem import all_titles


def add_openapi(app: FastAPI, face: Face, admin_routes: Sequence[BaseRoute], *, server_url: str) -> None:
    """Describe all paths, those of `admin_routes` too."""
    face.pages.links.append(PageLink("header", "/docs", "site.documentation"))

    # The routes are complete at the first request.
    @cache
    def describe() -> dict[str, Any]:
        return write_document(app.routes, admin_routes, version=app.version, server_url=server_url)

    app.openapi = describe  # type: ignore[method-assign]

    @app.api_route("/openapi.json", methods=["GET", "HEAD"], include_in_schema=False)
    async def openapi() -> JSONResponse:
        return JSONResponse(describe())

    describe_in_place = cache(lambda: replace_references(describe()))

    @app.api_route("/docs", methods=["GET", "HEAD"], include_in_schema=False)
    async def docs(request: Request) -> Response:
        language = language_of(request, face.pages)
        translation = read_translation(face.pages.packages, language)
        facts: dict[str, Any] = {"schema": describe_in_place(), "problems": all_titles(), "translation": translation}
        return own_page(face.pages.render("docs", face.link, language, "docs.title", **facts), OWN_PAGE)
