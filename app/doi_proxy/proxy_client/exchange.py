"""HTTP requests of the commands to a running proxy. They block.

http.client is imported in a tenth of the time of httpx, which a command that sends one request would feel.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from email.message import Message
from math import inf
from typing import Final, Self

from doi_proxy.errors import DoiProxyError
from doi_proxy.proxy_client.server import ProxyServer
from doi_proxy.server.proxy_header import OWN_CONNECTION
from doi_proxy.system.redaction import MAX_SHOWN, redact
from doi_proxy.upstream.retry_after import read_retry_after

#: Limit of the timeout for connecting, in seconds.
_CONNECT_TIMEOUT: Final = 10.0
_PIECE_BYTES: Final = 65_536
_MAX_DETAIL: Final = 500
#: Answers of a server or a front proxy before the application, which have no problem details.
_TOO_LONG: Final = "the request is too long for it; shorten the arguments"
_HINTS: Final[Mapping[int, str]] = {414: _TOO_LONG, 431: _TOO_LONG}
_REDIRECTIONS: Final = range(300, 400)
#: Statuses after which the same request can succeed (RFC 9110, sections 15.5.9 and 15.6; RFC 6585, section 4).
TRANSIENT: Final = frozenset({408, 429, 500, 502, 503, 504})


class ProxyFailure(DoiProxyError):
    """A running proxy did not answer, or refused."""

    def __init__(
        self, message: str, *, is_transient: bool, http_status: int | None = None, retry_after: float | None = None
    ) -> None:
        """`is_transient` says whether the same request can succeed later, `retry_after` after how many seconds."""
        super().__init__(message)
        self.is_transient = is_transient
        self.http_status = http_status
        self.retry_after = retry_after


class Exchange:
    """A connection to a proxy, and its requests, one after the other. Redirects are not followed.

    The methods that send and read raise ProxyFailure without an answer. Another thread can end them by `interrupt`.
    """

    def __init__(self, server: ProxyServer, timeout: float, *, deadline: float = inf) -> None:
        """`timeout` limits each wait for bytes, `deadline` the time to the end of the exchange, in seconds."""
        self.server = server
        self._connection = _open(server, min(timeout, _CONNECT_TIMEOUT))
        self._socket: socket.socket | None = None
        self._timeout = timeout
        self._deadline = deadline
        self._timer = None if deadline == inf else threading.Timer(deadline, self.interrupt)
        self._is_interrupted = self._is_closed = False
        #: Held by the thread that uses the connection.
        self._in_use = threading.Lock()
        self._response: http.client.HTTPResponse | None = None
        #: The header fields of the answer.
        self.headers = Message()
        self._pieces: Iterator[bytes] = iter(())
        self._rest = b""
        #: The address of this machine that the connection has. Empty before the first request.
        self.local_address = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- The request ----------------------------------------------------------------------------------------------

    def send(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | Iterable[bytes] | None = None
    ) -> int:
        """Send a request and read the head of its answer. Returns the status.

        With pieces of a body, `headers` have its Content-Length.
        """
        with self._use():
            if self._connection.sock is None:
                self._connect()
            # Only what a caller names is sent, because probes show which fields arrive.
            self._connection.putrequest(method, self.server.path + target, skip_accept_encoding=True)
            fields = {} if self.server.credentials is None else {"Authorization": self.server.credentials}
            fields |= {"Content-Length": str(len(body))} if isinstance(body, bytes) else {}
            for name, value in {**fields, **headers}.items():
                self._connection.putheader(name, value)
            self._connection.endheaders(body)
            self._response = self._connection.getresponse()
            # http.client takes a head that ends early for a whole one.
            if self._is_interrupted:
                raise OSError("interrupted")
            self.headers = self._response.headers
            self._pieces, self._rest = self._read_pieces(self._response), b""
            return self._response.status

    def _connect(self) -> None:
        if self._timer is not None and self._timer.ident is None:
            self._timer.daemon = True
            self._timer.start()
        self._connection.connect()
        self._socket = self._connection.sock
        if self._is_interrupted:
            raise OSError("interrupted")
        self._socket.settimeout(self._timeout)
        self.local_address = str(self._socket.getsockname()[0]) if self.server.socket_path is None else ""

    # --- The answer -----------------------------------------------------------------------------------------------

    def read(self, most: int) -> bytes:
        """The rest of the answer. More than `most` bytes are a failure."""
        body = self._collect(most)
        if len(body) > most:
            raise self._too_large(f"the answer is larger than {most} bytes")
        return body

    def _collect(self, most: int) -> bytes:
        """The rest of the answer, or its beginning if it has more than `most` bytes."""
        body = bytearray(self._rest)
        with self._use():
            for piece in self._pieces:
                body += piece
                if len(body) > most:
                    break
        return bytes(body)

    def read_lines(self, most: int) -> list[bytes]:
        """The next lines that have arrived, none at the end. A line of more than `most` bytes is a failure.

        A last line without an end is not complete, so it is left out.
        """
        with self._use():
            for piece in self._pieces:
                *lines, self._rest = (self._rest + piece).split(b"\n")
                if max(map(len, (*lines, self._rest))) > most:
                    raise self._too_large(f"a line of the answer has more than {most} bytes")
                if lines := [line for line in lines if line.strip()]:
                    return lines
        return []

    def _too_large(self, reason: str) -> ProxyFailure:
        return ProxyFailure(f"{self.server.label}: {reason}; this is not a doi-proxy", is_transient=False)

    def _read_pieces(self, response: http.client.HTTPResponse) -> Iterator[bytes]:
        while piece := response.read1(_PIECE_BYTES):
            yield piece
        # http.client does not report a body that is shorter than its Content-Length.
        if self._is_interrupted or response.length:
            raise OSError("the answer ended early")

    def refusal(self, hints: Mapping[int, str]) -> ProxyFailure:
        """The error of an answer that is not 200, from its problem details and Retry-After.

        `hints` has messages by status. They replace the message of the proxy, and say more to the user of a command.
        """
        status = 0 if self._response is None else self._response.status
        message = hints.get(status) or _HINTS.get(status) or read_detail(self._collect(_PIECE_BYTES))
        if message is None:
            message = f"status {status}; this is not a doi-proxy, or an older one; check the URL"
        if status in _REDIRECTIONS:
            place = redact(self.headers.get("Location", "another URL"))[:MAX_SHOWN]
            message = f"redirects to {place!r}; if that is the proxy, give its URL"
        seconds = read_retry_after(self.headers.get("Retry-After", ""), time.time())
        return ProxyFailure(
            f"{self.server.label}: {message}",
            is_transient=status in TRANSIENT,
            http_status=status,
            retry_after=seconds,
        )

    # --- The end --------------------------------------------------------------------------------------------------

    def interrupt(self) -> None:
        """Make the methods that another thread runs fail now."""
        self._is_interrupted = True
        if self._socket is not None:
            with contextlib.suppress(OSError):
                # The method of an SSLSocket drops what the other thread reads with.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection. A thread that uses it closes it when it has failed."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self.interrupt()
        if self._in_use.acquire(blocking=False):
            self._close()
            self._in_use.release()

    def _close(self) -> None:
        self._connection.close()
        if self._response is not None:
            self._response.close()

    @contextmanager
    def _use(self) -> Iterator[None]:
        """Use the connection in this thread, and translate its errors."""
        try:
            with self._in_use:
                yield
        except (OSError, http.client.HTTPException) as error:
            raise self._failure(error) from error
        finally:
            if self._is_closed:
                self._close()

    def _failure(self, error: Exception) -> ProxyFailure:
        label = self.server.label
        if self._is_interrupted and self._deadline != inf and not self._is_closed:
            return ProxyFailure(f"{label}: the answer took longer than {self._deadline:g} s", is_transient=True)
        reason = str(error) or type(error).__name__
        return ProxyFailure(f"{label}: no answer: {reason}; check the URL and that the proxy runs", is_transient=True)


class _Connection(http.client.HTTPConnection):
    """HTTP over TCP, or over a Unix socket."""

    server: ProxyServer

    def connect(self) -> None:
        """Connect, and send the header of the PROXY protocol if the server needs one."""
        if self.server.socket_path is None:
            super().connect()
        else:
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.sock.settimeout(self.timeout)
            self.sock.connect(self.server.socket_path)
        if self.server.has_proxy_protocol:
            self.sock.sendall(OWN_CONNECTION)


class _TlsConnection(http.client.HTTPSConnection, _Connection):
    """HTTPS. `connect` of http.client calls that of _Connection, and begins TLS after it."""


def _open(server: ProxyServer, timeout: float) -> http.client.HTTPConnection:
    """A connection. Nothing is sent."""
    connection: _Connection
    if server.is_tls:
        context = ssl.create_default_context() if server.verifies else ssl._create_unverified_context()  # noqa: S323
        connection = _TlsConnection(server.host, server.port, timeout=timeout, context=context)
    else:
        connection = _Connection(server.host, server.port, timeout=timeout)
    connection.server = server
    return connection


def read_detail(content: bytes) -> str | None:
    """The member `detail` of problem details (RFC 9457, section 3.1.4). None if there is none."""
    try:
        return str(json.loads(content)["detail"])[:_MAX_DETAIL]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
