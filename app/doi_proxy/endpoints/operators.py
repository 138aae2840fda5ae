"""Who sees the paths for operators, and the log of what they do there: one line for each action."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from ipaddress import ip_network
from typing import Any, Final
from urllib.parse import urlsplit

from fastapi import FastAPI, Request

from doi_proxy.networks.network_list import EVERYONE, NetworkList
from doi_proxy.web.client_network import read_address
from doi_proxy.web.operations import Face
from doi_proxy.web.request import Request as WebRequest
from doi_proxy.web.responses import Scope, Send

#: The member of the ASGI scope with the client's network.
CLIENT: Final = "doi_proxy.client"
log = logging.getLogger(__name__)


class OperatorPath:
    """A path for operators: no page of another site may read it, and clients of some networks see it.

    They have to name this service in `Host`: a page of a site whose name leads to this machine for a moment is not an
    operator (DNS rebinding).
    """

    def __init__(self, face: Face, path: str, networks: Sequence[str], public_url: str | None) -> None:
        """`networks` are in CIDR notation."""
        face.private.add(path.encode())
        self._public_host = urlsplit(public_url or "").hostname
        listed = [ip_network(network) for network in networks]
        self._is_public, self._seeing = EVERYONE.issubset(listed), NetworkList(listed)
        #: The listed networks without those that have every client.
        self.trusted = NetworkList(network for network in listed if network not in EVERYONE)

    def is_seen(self, request: Request) -> bool:
        """Whether the client of a request sees the path."""
        if self._is_public:
            return True
        return (
            request.client is not None and request.client.host in self._seeing and self._is_named(request.url.hostname)
        )

    def _is_named(self, host: str | None) -> bool:
        """Whether a host is an address, the host of this service, or a name without a dot, as no other site has one."""
        return not host or "." not in host or host == self._public_host or read_address(host) is not None


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
