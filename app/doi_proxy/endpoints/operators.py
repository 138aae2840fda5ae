"""What lies before the paths of operators, and the log of what they do there: one line for each action."""

from __future__ import annotations

import json
import logging
from typing import Any, Final, Protocol

from fastapi import FastAPI, Request

from doi_proxy.web.operations import Gate

#: The member of the ASGI scope with the client's network.
CLIENT: Final = "doi_proxy.client"
log = logging.getLogger(__name__)


class OperatorGate(Gate, Protocol):
    """The gate before an application of FastAPI for operators."""

    @property
    def app(self) -> FastAPI:
        """The application behind the gate."""

    @property
    def has_listener(self) -> bool:
        """Whether the gate is on an address of its own, and not on that of the service."""

    def add_path(self, path: bytes) -> None:
        """Answer another path, if a request has a token."""


def audit(request: Request, action: str, what: dict[str, Any], result: str) -> None:
    """Log an action of an operator."""
    # JSON escapes line breaks, so one action is one line.
    client = request.scope.get(CLIENT, "")
    log.warning("admin: client %s, %s %s: %s", client, action, json.dumps(what), json.dumps(result)[1:-1])
