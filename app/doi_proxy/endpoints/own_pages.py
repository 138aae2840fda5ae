"""The pages of FastAPI's paths, which are not about a name."""

from __future__ import annotations

from fastapi import Request, Response

from doi_proxy.web.freshness import NO_STORE, VARY_LANGUAGE
from doi_proxy.web.header import Header
from doi_proxy.web.languages import choose_language
from doi_proxy.web.operations import Face
from doi_proxy.web.pages import Pages
from doi_proxy.web.responses import HTML, PAGE_POLICY


def language_of(request: Request, pages: Pages) -> str:
    """The language of a page for a request."""
    return choose_language(request.headers.get("accept-language"), pages.languages)


def text_headers(*headers: Header) -> dict[str, str]:
    """Headers as Starlette takes them."""
    return {name.decode("ascii"): value.decode("ascii") for name, value in headers}


def own_page(body: bytes, freshness: Header, status: int = 200) -> Response:
    """A page that is not about a name."""
    headers = text_headers(HTML, *PAGE_POLICY, VARY_LANGUAGE, freshness)
    return Response(body, headers=headers, status_code=status)


def no_file(face: Face, request: Request) -> Response:
    """The page of a path at which there is nothing."""
    language = language_of(request, face.pages)
    return own_page(face.pages.error(face.link, language, title_key="error_no_file"), NO_STORE, 404)
