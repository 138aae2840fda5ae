"""The paths that are not names, which FastAPI and gates answer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final, Protocol

import fastapi
from fastapi import FastAPI, Response
from fastapi.responses import PlainTextResponse
from starlette.types import ASGIApp

from app.resolver.which_ra import WhichRa
from app.web.api import RestApi
from app.web.conditions import Conditions
from app.web.error_handlers import ErrorPages
from app.web.fastapi_errors import add_errors
from app.web.freshness import NO_STORE, STATIC_FILE, VARY_LANGUAGE
from app.web.header import Header
from app.web.languages import choose_language
from app.web.pages import Link, Pages
from app.web.redirect import Redirects
from app.web.request import Request
from app.web.responses import COMMON_HEADERS, HTML, NO_CORS_HEADERS, PAGE_POLICY, Message, Receive, Scope, Send
from app.web.route import STATIC_PATH, Paths

#: Crawlers must not fetch names: each one would be an upstream query.
ROBOTS: Final = "User-agent: *\nAllow: /$\nDisallow: /\n"

#: A browser can open an SVG logo as a page. Under this policy it loads nothing and runs nothing.
_FILE_POLICY: Final[Header] = (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'")

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


class Gate(Protocol):
    """Answers some paths of operation behind a check of its own: whole paths, and those with certain beginnings."""

    @property
    def paths(self) -> frozenset[bytes]:
        """The whole paths."""

    @property
    def below(self) -> tuple[bytes, ...]:
        """The beginnings."""

    def answers(self, path: bytes) -> bool:
        """Whether a path is behind this gate."""

    async def answer(self, request: Request, scope: Scope, send: Send) -> int:
        """Answer a request. Returns the status."""


@dataclass(frozen=True, slots=True)
class Face:
    """The parts that answer names, and the pages."""

    redirects: Redirects
    which_ra: WhichRa
    api: RestApi
    errors: ErrorPages
    pages: Pages
    link: Link
    conditions: Conditions


@dataclass(frozen=True, slots=True)
class Operations:
    """What answers the paths that are not names: FastAPI, and gates. `allow_of` returns the methods of such a path."""

    app: ASGIApp
    paths: Paths
    allow_of: Callable[[bytes], str | None]
    gates: Sequence[Gate] = ()

    async def answer(
        self, request: Request, receive: Receive, send: Send, wraps: Sequence[Callable[[Request, Send], Send]]
    ) -> int:
        """Let a gate or FastAPI answer, with the headers of every answer added. Returns the status.

        `wraps` are the stages that encode the answers of FastAPI.
        """
        scope = {**request.scope, "path": request.path.decode("latin-1"), "raw_path": request.path, "root_path": ""}
        for gate in self.gates:
            if gate.answers(request.path):
                return await gate.answer(request, scope, send)
        status = 500

        async def send_complete(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                common = NO_CORS_HEADERS if request.path in self.paths.private else COMMON_HEADERS
                message["headers"] = [*message.get("headers", ()), *common]
            elif request.head_only:
                message["body"] = b""
            await send(message)

        wrapped: Send = send_complete
        for wrap_send in wraps:
            wrapped = wrap_send(request, wrapped)
        await self.app(scope, receive, wrapped)
        return status


def create_operations(
    version: str,
    lifespan: Lifespan,
    face: Face,
    routes: Sequence[Callable[[FastAPI, Face], None]],
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
    add_errors(app, face.link.base)
    _add_files(app, face)
    for add in routes:
        add(app, face)
    return app


def language_of(request: fastapi.Request, pages: Pages) -> str:
    """The language of a page for a request."""
    return choose_language(request.headers.get("accept-language"), pages.languages)


def find_paths(app: FastAPI, own_api: Mapping[bytes, str], private: Collection[bytes], gates: Sequence[Gate]) -> Paths:
    """The paths that FastAPI and gates answer. `own_api` are JSON endpoints by path, each with its route.

    No page of another site may read the answers of `private` paths.
    """
    paths = {str(getattr(route, "path", "")).encode() for route in app.routes} - own_api.keys()
    below = tuple(path.partition(b"{")[0] for path in paths if b"{" in path)
    return Paths(
        operations=frozenset(path for path in paths if b"{" not in path),
        below=below,
        gated=frozenset(path for gate in gates for path in gate.paths),
        gated_below=tuple(path for gate in gates for path in gate.below),
        private=frozenset(private),
        own_api=own_api,
    )


def text_headers(*headers: Header) -> dict[str, str]:
    """Headers as Starlette takes them."""
    return {name.decode("ascii"): value.decode("ascii") for name, value in headers}


def own_page(body: bytes, freshness: Header, status: int = 200) -> Response:
    """A page that is not about a name."""
    headers = text_headers(HTML, *PAGE_POLICY, VARY_LANGUAGE, freshness)
    return Response(body, headers=headers, status_code=status)


def no_file(face: Face, request: fastapi.Request) -> Response:
    """The page of a path at which there is nothing."""
    language = language_of(request, face.pages)
    return own_page(face.pages.error(face.link, language, title_key="error_no_file", reason=""), NO_STORE, 404)


def _add_files(app: FastAPI, face: Face) -> None:
    """The static files, and what crawlers read. A reload can add and remove some static files."""

    @app.api_route("/robots.txt", methods=["GET", "HEAD"], include_in_schema=False)
    async def robots() -> PlainTextResponse:
        return PlainTextResponse(ROBOTS)

    @app.api_route("/favicon.ico", methods=["GET", "HEAD"], include_in_schema=False)
    @app.api_route(STATIC_PATH.decode() + "{file:path}", methods=["GET", "HEAD"], include_in_schema=False)
    async def static(request: fastapi.Request) -> Response:
        file = face.pages.files.get(request.scope["path"])
        if file is None:
            return no_file(face, request)
        headers = text_headers(STATIC_FILE, _FILE_POLICY)
        return Response(file.content, media_type=file.media_type, headers=headers)
