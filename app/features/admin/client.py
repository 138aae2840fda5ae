"""Sends requests to a running proxy: to its admin API and to `/status`."""

from __future__ import annotations

import http.client
import json
import socket
from typing import Any, Final
from urllib.parse import quote, urlsplit

from app.errors import ConfigurationError, DoiProxyError
from app.features.redaction import redact

#: Timeout in seconds. A purge of everything, and a slow upstream, take a while.
TIMEOUT: Final = 120.0
#: Bytes of an answer. A record has at most a few MiB.
_MAX_ANSWER: Final = 64 * 1024 * 1024


#: The beginning of the address of a Unix socket.
UNIX: Final = "unix:"


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def open_connection(server: str, option: str, timeout: float = TIMEOUT) -> tuple[http.client.HTTPConnection, str, str]:
    """A connection, the path before every target, and the URL without secrets. Nothing is sent.

    `server` is a URL or `unix:` and the path of a socket. `timeout` limits each step, in seconds. Raises
    ConfigurationError for another value of `option`.
    """
    if server.startswith(UNIX):
        return _UnixConnection(server.removeprefix(UNIX), timeout), "", server
    parts = urlsplit(server)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationError(
            f"{option} {redact(server)}: not a URL such as http://127.0.0.1:8000, or unix:/run/doi-proxy/admin.sock"
        )
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    return kind(parts.hostname, parts.port, timeout=timeout), parts.path.rstrip("/"), redact(server)


class AdminClient:
    """A proxy at a base URL. Its certificate is checked."""

    def __init__(self, server: str, token: str | None) -> None:
        """`server` is a URL or `unix:` and the path of a socket. Raises ConfigurationError for another value."""
        self._connection, self._base, self._server = open_connection(server, "--server")
        self._token = token

    def show(self, name: str) -> dict[str, Any]:
        """GET the entry of a name."""
        return self._send("GET", f"/admin/entries/{quote(name, safe='/')}")

    def act(self, action: str, body: dict[str, Any]) -> dict[str, Any]:
        """POST an action of the admin API."""
        if self._token is None:
            raise ConfigurationError("the admin API needs a token: set DOI_PROXY_ADMIN_TOKEN_FILE to the proxy's own")
        return self._send("POST", f"/admin/{action}", body)

    def status(self) -> dict[str, Any]:
        """GET `/status`."""
        return self._send("GET", "/status?format=json")

    def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            self._connection.request(method, self._base + path, None if body is None else json.dumps(body), headers)
            answer = self._connection.getresponse()
            content = answer.read(_MAX_ANSWER)
            self._connection.close()
        except (OSError, http.client.HTTPException) as error:
            raise DoiProxyError(f"{self._server}: no answer: {error}; check the URL and that the proxy runs") from error
        return self._read(answer.status, content)

    def _read(self, status: int, content: bytes) -> dict[str, Any]:
        try:
            document = json.loads(content)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise DoiProxyError(
                f"{self._server}: status {status} without JSON: this is not a doi-proxy, or it has no admin API; set "
                "admin_token there"
            )
        if status == http.client.OK:
            return document
        if status == http.client.UNAUTHORIZED:
            raise DoiProxyError(
                f"{self._server}: the token is wrong; set DOI_PROXY_ADMIN_TOKEN_FILE to the proxy's own"
            )
        raise DoiProxyError(f"{self._server}: {document.get('detail', f'status {status}')}")
