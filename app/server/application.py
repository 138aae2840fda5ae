"""The application as the server sees it: an ASGI application that can also answer without a task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol, cast

from app.server.connections import Connections

#: Middlewares that a server puts around an application.
_MAX_WRAPPERS: Final = 5


class Lane(Protocol):
    """Answers requests from their bytes."""

    def answer(self, request: bytes, default_headers: bytes, client_of: Callable[[bytes | None], str]) -> bytes | None:
        """The whole answer to one whole request without a body; None if the application has to answer.

        `default_headers` are the lines that the server puts first. `client_of` returns the address of the client, given
        the value of X-Forwarded-For.
        """


class Application(Protocol):
    """An ASGI application with two shortcuts."""

    @property
    def express(self) -> Lane | None:
        """The express lane, if there is one."""

    @property
    def connections(self) -> Connections:
        """The connections of the process; the application carries them to the server and does not use them."""

    def answer_now(self, scope: Any, default_headers: bytes) -> bytes | None:
        """The whole answer to a request, if it needs no I/O; otherwise None."""


def application_of(app: Any) -> Application | None:
    """The application, which the server may have wrapped in middleware; None if there is none with Connections."""
    for _ in range(_MAX_WRAPPERS):
        if isinstance(getattr(app, "connections", None), Connections):
            return cast(Application, app)
        app = getattr(app, "app", None)
    return None
