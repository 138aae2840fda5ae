"""Sends requests to a running proxy: to its admin API and to `/status`."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final
from urllib.parse import quote, urlencode

from doi_proxy.errors import ConfigurationError, DoiProxyError
from doi_proxy.proxy_client.exchange import Exchange
from doi_proxy.proxy_client.server import ProxyServer

#: Timeout in seconds. A purge of everything, and a slow upstream, take a while.
_TIMEOUT: Final = 120.0
#: Bytes of an answer. A record has at most a few MiB.
_MAX_ANSWER: Final = 64 * 1024 * 1024
_TOKEN_HINT: Final = "set DOI_PROXY_ADMIN_TOKEN_FILE to the proxy's own"  # noqa: S105 - a message
#: What the challenge of the admin API has (RFC 6750, section 3).
_REALM: Final = 'realm="doi-proxy admin"'
_HINTS: Final = {http.client.UNAUTHORIZED: f"the token is wrong; {_TOKEN_HINT}"}


@contextmanager
def send_request(
    connect: Callable[[], Exchange],
    token: str | None,
    method: str,
    target: str,
    headers: Mapping[str, str],
    body: bytes | None = None,
) -> Iterator[tuple[int, Exchange]]:
    """The status and the exchange of a request, which is sent with the token only after the challenge of the admin API.

    Another program may listen at the address of a proxy that does not run. `connect` makes an exchange for each try.
    """
    with connect() as exchange:
        status = exchange.send(method, target, headers, body)
        if token is None or not _requests_token(status, exchange):
            yield status, exchange
            return
    with connect() as exchange:
        yield exchange.send(method, target, {**headers, "Authorization": f"Bearer {token}"}, body), exchange


class AdminClient:
    """The admin API of a proxy."""

    def __init__(self, server: ProxyServer, token: str | None) -> None:
        self._server = server
        self._token = token

    @property
    def label(self) -> str:
        """The proxy in messages."""
        return self._server.label

    def show(self, name: str) -> dict[str, Any]:
        """GET the entry of a name."""
        return self._send("GET", f"/admin/entries/{quote(name, safe='/')}")

    def act(self, action: str, body: dict[str, Any]) -> dict[str, Any]:
        """POST an action of the admin API."""
        if self._token is None:
            raise ConfigurationError(f"the admin API needs a token: {_TOKEN_HINT}")
        return self._send("POST", f"/admin/{action}", json.dumps(body).encode())

    def explain(self, parameters: Mapping[str, str]) -> dict[str, Any]:
        """GET the decisions about a request."""
        query = urlencode(parameters, errors="surrogateescape")
        return self._send("GET", f"/admin/explain?{query}")

    def settings(self) -> dict[str, Any]:
        """GET the settings in force, with secrets masked."""
        return self._send("GET", "/admin/settings")

    def status(self) -> dict[str, Any]:
        """GET `/status`."""
        return self._send("GET", "/status?format=json")

    def _send(self, method: str, target: str, body: bytes | None = None) -> dict[str, Any]:
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        connect = partial(Exchange, self._server, _TIMEOUT)
        with send_request(connect, self._token, method, target, headers, body) as (status, exchange):
            return self._read(status, exchange)

    def _read(self, status: int, exchange: Exchange) -> dict[str, Any]:
        if status != http.client.OK:
            raise exchange.refusal(_HINTS)
        try:
            document = json.loads(exchange.read(_MAX_ANSWER))
        except (ValueError, RecursionError):
            raise self._unusable_answer("is not JSON") from None
        if not isinstance(document, dict):
            raise self._unusable_answer("is JSON, but not an object")
        return document

    def _unusable_answer(self, fault: str) -> DoiProxyError:
        return DoiProxyError(
            f"{self.label}: its answer {fault}: this is not a doi-proxy, or it has no admin API; set admin_token there"
        )


def _requests_token(status: int, exchange: Exchange) -> bool:
    """Whether an answer is the challenge of the admin API, or the refusal of `/status`."""
    is_closed = status == http.client.FORBIDDEN and exchange.headers.get_content_type() == "application/problem+json"
    return is_closed or (status == http.client.UNAUTHORIZED and _REALM in exchange.headers.get("WWW-Authenticate", ""))
