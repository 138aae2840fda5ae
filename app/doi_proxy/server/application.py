"""The application as the server sees it: an ASGI application that can also answer without a task."""

from __future__ import annotations

from typing import Any, Final, Protocol, cast

from doi_proxy.server.connections import Connections
from doi_proxy.web.application import Preparation
from doi_proxy.web.request import Fields

#: Middlewares that a server puts around an application.
_MAX_WRAPPERS: Final = 5


class ServedApplication(Protocol):
    """An ASGI application with two shortcuts."""

    @property
    def prepared(self) -> Preparation | None:
        """The prepared answers. None if they are switched off."""

    @property
    def connections(self) -> Connections:
        """The connections of the process; the application carries them to the server and does not use them."""

    @property
    def base(self) -> str:
        """The path of this resolver without a slash at its end, for the links of a refusal."""

    def answer_now(self, scope: Any, default_headers: bytes, fields: Fields | None) -> bytes | None:
        """The whole answer to a request, if it needs no I/O; otherwise None. `fields` are its headers, if read."""


def application_of(app: Any) -> ServedApplication | None:
    """The application, which the server may have wrapped in middleware; None if there is none with Connections."""
    for _ in range(_MAX_WRAPPERS):
        if isinstance(getattr(app, "connections", None), Connections):
            return cast(ServedApplication, app)
        app = getattr(app, "app", None)
    return None
