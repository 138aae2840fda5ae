"""Sends requests through a front proxy to the proxy behind it, and returns what arrived there."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any, Final

from doi_proxy.features.setup.probe import TOKEN_HEADER
from doi_proxy.features.setup.probe_path import PROBE_PATH
from doi_proxy.proxy_client.exchange import Exchange
from doi_proxy.proxy_client.server import ProxyServer

#: Seconds that one probe waits for its answer.
_TIMEOUT: Final = 20.0
#: Lists of names. A cached answer causes no query.
_LIST_PATH: Final = "/api/resolve?only=cached"
#: Seconds before each piece of a list.
_LIST_PAUSE: Final = 0.1
#: The largest body that is read, in bytes: an echo of the longest path.
_MAX_BODY_BYTES: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    """The answer to one probe. `echo` is empty if it does not come from the proxy."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    echo: Mapping[str, Any] = field(default_factory=dict)

    @property
    def server(self) -> str:
        """The name in the Server header."""
        return self.headers.get("server", "")


class Prober:
    """Sends probes to one public URL, each over its own connection.

    Every run has its own paths, so no earlier answer is in a cache.
    """

    def __init__(self, server: ProxyServer, token: str) -> None:
        self.server = server
        self._token = token
        #: Whether the last connection came from a loopback address.
        self.is_on_this_machine = False
        #: The path of all probes, without the sub-path.
        self.path = PROBE_PATH.decode() + secrets.token_hex(16) + "/"

    @property
    def scheme(self) -> str:
        """The scheme of the URL."""
        return "https" if self.server.is_tls else "http"

    def send(self, rest: str, method: str = "GET", **headers: str) -> ProbeAnswer:
        """Send `rest`, a raw path and query, below the path of probes. Raises ProxyFailure."""
        fields = {TOKEN_HEADER: self._token, **{name.replace("_", "-"): value for name, value in headers.items()}}
        return self._exchange(method, self.path + rest, fields)

    def send_plain(self, target: str) -> ProbeAnswer:
        """GET a path of the proxy as any client would. Raises ProxyFailure."""
        return self._exchange("GET", target, {"Accept": "application/json"})

    def send_list(self, pieces: Sequence[bytes]) -> ProbeAnswer:
        """POST a list of names in pieces, with a pause before each. Raises ProxyFailure."""
        fields = {"Content-Type": "text/plain", "Content-Length": str(sum(map(len, pieces)))}
        return self._exchange("POST", _LIST_PATH, fields, _pace(pieces))

    def _exchange(
        self, method: str, target: str, fields: Mapping[str, str], content: Iterable[bytes] | None = None
    ) -> ProbeAnswer:
        with Exchange(self.server, _TIMEOUT) as exchange:
            status = exchange.send(method, target, fields, content)
            self.is_on_this_machine = ip_address(exchange.local_address).is_loopback
            body = exchange.read(_MAX_BODY_BYTES)
            headers = {name.lower(): value for name, value in exchange.headers.items()}
        return ProbeAnswer(status, headers, body, _read_echo(body))


def _pace(pieces: Sequence[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        time.sleep(_LIST_PAUSE)
        yield piece


def _read_echo(body: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(body)
    except ValueError:
        return {}
    return document if isinstance(document, dict) and "id" in document else {}
