"""Sends requests through a front proxy to the proxy behind it, and returns what arrived there."""

from __future__ import annotations

import http.client
import json
import secrets
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

from app.errors import ConfigurationError
from app.features.setup.probe import TOKEN_HEADER
from app.features.setup.probe_path import PROBE_PATH

#: Seconds that one probe waits for its answer.
_TIMEOUT: Final = 20.0
#: The largest body that is read, in bytes: an echo of the longest path.
_MAX_BODY_BYTES: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Answer:
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
    """Sends probes to one public URL. Every run has its own paths, so no earlier answer is in a cache."""

    def __init__(self, url: str, token: str, *, verify: bool) -> None:
        """`verify` checks the certificate of the front proxy. Raises ConfigurationError."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ConfigurationError(f"--url {url[:80]!r} is not a URL; write https://doi.example.org")
        self.scheme, self.host, self.netloc = parts.scheme, parts.hostname, parts.netloc.rpartition("@")[2]
        self._port = parts.port
        self._tls = ssl.create_default_context() if verify else ssl._create_unverified_context()  # noqa: S323
        self._token = token
        self._base = parts.path.rstrip("/")
        #: Whether the last connection came from a loopback address.
        self.is_on_this_machine = False
        #: The path of all probes, without the sub-path.
        self.path = PROBE_PATH.decode() + secrets.token_hex(16) + "/"

    def send(self, rest: str, method: str = "GET", **headers: str) -> Answer:
        """Send `rest`, a raw path and query, below the path of probes. Raises OSError."""
        return self.send_all([rest], method, **headers)[0]

    def send_plain(self, target: str) -> Answer:
        """GET a path of the proxy as any client would. Raises OSError."""
        connection = self._connect()
        try:
            connection.connect()
            self.is_on_this_machine = ip_address(connection.sock.getsockname()[0]).is_loopback
            connection.request("GET", self._base + target, headers={"Accept": "application/json"})
            answer = connection.getresponse()
            headers = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, headers, answer.read(_MAX_BODY_BYTES))
        except http.client.HTTPException as error:
            raise OSError(f"the answer is not HTTP: {error!r}") from error
        finally:
            connection.close()

    def send_all(self, rests: list[str], method: str = "GET", **headers: str) -> list[Answer]:
        """Send several requests over one connection, if the front proxy keeps it."""
        connection = self._connect()
        fields = {TOKEN_HEADER: self._token, **{name.replace("_", "-"): value for name, value in headers.items()}}
        try:
            return [self._exchange(connection, method, rest, fields) for rest in rests]
        except http.client.HTTPException as error:
            raise OSError(f"the answer is not HTTP: {error!r}") from error
        finally:
            connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        if self.scheme == "https":
            return http.client.HTTPSConnection(self.host, self._port, timeout=_TIMEOUT, context=self._tls)
        return http.client.HTTPConnection(self.host, self._port, timeout=_TIMEOUT)

    def _exchange(
        self, connection: http.client.HTTPConnection, method: str, rest: str, fields: Mapping[str, str]
    ) -> Answer:
        connection.putrequest(method, self._base + self.path + rest, skip_accept_encoding=True)
        for name, value in fields.items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        body = answer.read(_MAX_BODY_BYTES)
        headers = {name.lower(): value for name, value in answer.getheaders()}
        return Answer(answer.status, headers, body, _read_echo(body))


def _read_echo(body: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(body)
    except ValueError:
        return {}
    return document if isinstance(document, dict) and "id" in document else {}
