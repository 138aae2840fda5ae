"""What lies before the paths of operators, and the log of what they do there: one line for each action."""

from __future__ import annotations

import json
import logging
from typing import Any, Final

from fastapi import FastAPI, Request

from doi_proxy.web.request import Request as WebRequest
from doi_proxy.web.responses import Scope, Send

#: The member of the ASGI scope with the client's network.
CLIENT: Final = "doi_proxy.client"
log = logging.getLogger(__name__)


class OperatorGate:
    """The gate before an application of FastAPI for operators. See Gate."""

    #: The application behind the gate.
    app: FastAPI
    #: Whether the gate is on an address of its own, and not on that of the service.
    has_listener: bool
    below: tuple[bytes, ...]

    def add_path(self, path: bytes) -> None:
        """Answer another path, if a request has a token."""
        raise NotImplementedError

    def answers(self, request: WebRequest) -> bool:
        """See Gate."""
        raise NotImplementedError

    async def answer(self, request: WebRequest, scope: Scope, send: Send) -> int:
        """See Gate."""
        raise NotImplementedError


def audit(request: Request, action: str, what: dict[str, Any], result: str) -> None:
    """Log an action of an operator."""
    # JSON escapes line breaks, so one action is one line.
    client = request.scope.get(CLIENT, "")
    log.warning("admin: client %s, %s %s: %s", client, action, json.dumps(what), json.dumps(result)[1:-1])
