"""One request to `POST /api/resolve` of a running proxy. Its methods block, so they run in a thread."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from typing import Final
from urllib.parse import urlsplit

from app.errors import ConfigurationError, DoiProxyError
from app.features.lists.verdict import Row, read_row
from app.features.redaction import redact

#: Timeout for connecting, in seconds.
_CONNECT_TIMEOUT: Final = 10.0
#: Seconds that `close` waits for the thread that reads. Its socket is shut down, so it ends immediately.
_CLOSE_TIMEOUT: Final = 1.0
#: Limit of a row, in bytes.
_MAX_ROW_BYTES: Final = 4 * 1024 * 1024
_READ_BYTES: Final = 65_536
_NDJSON: Final = "application/x-ndjson"
#: Statuses after which the same request can succeed: of an answer, and of an error after its first row.
_TRANSIENT: Final = frozenset({408, 429, 500, 502, 503, 504})


class TransientFailure(DoiProxyError):
    """The request can be sent again."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Endpoint:
    """`/api/resolve` of a proxy at a base URL.

    `query` has the parameters of its requests. `timeout` limits the seconds between two rows.
    """

    def __init__(self, server: str, query: str, timeout: float) -> None:
        """Raises ConfigurationError for a URL that cannot be used."""
        parts = urlsplit(server)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigurationError(f"--server {redact(server)}: not a URL such as http://127.0.0.1:8000")
        self.label = redact(server)
        self.timeout = timeout
        self.target = f"{parts.path.rstrip('/')}/api/resolve{query}"
        self._host, self._port, self._is_tls = parts.hostname, parts.port, parts.scheme == "https"

    def connect(self) -> http.client.HTTPConnection:
        """A connection that is opened by its first request. The certificate of the server is checked."""
        kind = http.client.HTTPSConnection if self._is_tls else http.client.HTTPConnection
        return kind(self._host, self._port, timeout=_CONNECT_TIMEOUT)


class Exchange:
    """One request and its answer.

    Its methods raise TransientFailure if the request can be sent again, and DoiProxyError if not.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._connection = endpoint.connect()
        self._response: http.client.HTTPResponse | None = None
        #: Held by the thread that uses the connection.
        self._in_use = threading.Lock()
        self._rest = b""

    def send(self, body: bytes) -> None:
        """Send the names, one JSON string a line, and read the head of the answer."""
        try:
            with self._in_use:
                self._request(body)
        except (OSError, http.client.HTTPException) as error:
            raise _no_answer(error) from error

    def _request(self, body: bytes) -> None:
        self._connection.connect()
        self._connection.sock.settimeout(self._endpoint.timeout)
        headers = {"Content-Type": _NDJSON, "Accept": _NDJSON}
        self._connection.request("POST", self._endpoint.target, body, headers)
        self._response = self._connection.getresponse()
        if self._response.status != http.client.OK:
            raise self._refusal(self._response)

    def read_rows(self) -> list[Row]:
        """The next rows that have arrived, after `send`. Empty at the end of the answer."""
        rows: list[Row] = []
        while self._response is not None and not rows:
            try:
                with self._in_use:
                    data = self._response.read1(_READ_BYTES)
            except (OSError, http.client.HTTPException) as error:
                raise _no_answer(error) from error
            if not data:
                break
            *lines, self._rest = (self._rest + data).split(b"\n")
            rows = [self._read_row(line) for line in lines if line.strip()]
            if len(self._rest) > _MAX_ROW_BYTES:
                raise DoiProxyError(f"{self._endpoint.label}: a row is too long; this is not a doi-proxy")
        return rows

    def interrupt(self) -> None:
        """Make `send` and `read_rows` of another thread fail now. The server ends its work on the request."""
        if self._connection.sock is not None:
            with contextlib.suppress(OSError):
                self._connection.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection."""
        self.interrupt()
        if self._in_use.acquire(timeout=_CLOSE_TIMEOUT):
            self._connection.close()
            if self._response is not None:
                self._response.close()
            self._in_use.release()

    def _refusal(self, response: http.client.HTTPResponse) -> DoiProxyError:
        detail = _read_detail(response.read(_READ_BYTES)) or f"status {response.status}"
        if response.status in _TRANSIENT:
            return TransientFailure(detail, _read_seconds(response.headers.get("Retry-After")))
        if response.status in (http.client.NOT_FOUND, http.client.METHOD_NOT_ALLOWED):
            detail = "it has no /api/resolve; check the URL and the version of that proxy"
        return DoiProxyError(f"{self._endpoint.label}: {detail}")

    def _read_row(self, line: bytes) -> Row:
        try:
            members = json.loads(line)
            if "error" not in members:
                return read_row(members)
            # The list ended early (docs/batch.md, Errors).
            is_transient, detail = members["error"]["status"] in _TRANSIENT, str(members["error"]["detail"])
        except (ValueError, KeyError, TypeError) as error:
            raise DoiProxyError(
                f"{self._endpoint.label}: a row cannot be read; check that it is a doi-proxy of this version"
            ) from error
        if is_transient:
            raise TransientFailure(detail)
        raise DoiProxyError(f"{self._endpoint.label}: {detail}")


def _no_answer(error: Exception) -> TransientFailure:
    return TransientFailure(f"no answer: {str(error) or type(error).__name__}")


def _read_seconds(text: str | None) -> float | None:
    """Retry-After in seconds (RFC 9110, section 10.2.3). A doi-proxy sends no date."""
    return float(text) if text is not None and text.isascii() and text.isdecimal() else None


def _read_detail(content: bytes) -> str | None:
    """The member `detail` of a problem document (RFC 9457)."""
    try:
        document = json.loads(content)
    except ValueError:
        return None
    detail = document.get("detail") if isinstance(document, dict) else None
    return detail if isinstance(detail, str) else None
