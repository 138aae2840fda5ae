"""The paths that are not names, which FastAPI and gates answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from doi_proxy.resolver.which_ra import WhichRa
from doi_proxy.web import responses
from doi_proxy.web.api import RestApi
from doi_proxy.web.error_handlers import ErrorPages
from doi_proxy.web.pages import Link, Pages
from doi_proxy.web.redirect import Redirects
from doi_proxy.web.request import Request
from doi_proxy.web.route import Paths
from doi_proxy.web.stage import Encoder, Stages


class Gate(Protocol):
    """Answers paths of operation behind a check of its own: all below certain beginnings, and requests with a token."""

    @property
    def below(self) -> tuple[bytes, ...]:
        """The beginnings."""

    def answers(self, request: Request) -> bool:
        """Whether a request is for this gate."""

    async def answer(self, request: Request, scope: responses.Scope, send: responses.Send) -> int:
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
    stages: Stages
    #: Paths whose answers no page of another site may read.
    private: set[bytes] = field(default_factory=set)
    #: JSON endpoints for which the limits of clients hold, each with its route.
    own_api: dict[bytes, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Operations:
    """What answers the paths that are not names: FastAPI, and gates. `allow_of` returns the methods of such a path."""

    app: Callable[[responses.Scope, responses.Receive, responses.Send], Awaitable[None]]
    paths: Paths
    allow_of: Callable[[bytes], str | None]
    gates: Sequence[Gate] = ()

    async def answer(self, request: Request, receive: responses.Receive, send: responses.Send, encoder: Encoder) -> int:
        """Let a gate or FastAPI answer, with the headers of every answer added. Returns the status.

        `encoder` encodes the answers of FastAPI.
        """
        scope = {**request.scope, "path": request.path.decode("latin-1"), "raw_path": request.path, "root_path": ""}
        for gate in self.gates:
            if gate.answers(request):
                return await gate.answer(request, scope, send)
        status = 500

        async def send_complete(message: responses.Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                common = responses.NO_CORS_HEADERS if request.path in self.paths.private else responses.COMMON_HEADERS
                message["headers"] = [*message.get("headers", ()), *common]
            elif request.head_only:
                message["body"] = b""
            await send(message)

        await self.app(scope, receive, encoder.wrap_send(request, send_complete))
        return status
