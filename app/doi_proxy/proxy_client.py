"""HTTP requests of the commands to a running proxy. They block.

http.client is imported in a tenth of the time of httpx, which a command that sends one request would feel.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from email.message import Message
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import SplitResult, unquote, urlencode, urlsplit

from doi_names.name import HandleName
from doi_names.presentation import url_path
from doi_proxy.errors import ConfigurationError, DoiProxyError
from doi_proxy.server.listening import UNIX
from doi_proxy.server.proxy_header import OWN_CONNECTION
from doi_proxy.system.options import MAX_SHOWN, Settings, redact
from doi_proxy.upstream.source import read_retry_after


@dataclass(frozen=True, slots=True)
class ProxyServer:
    """Where a proxy listens. `label` names it in messages, without secrets."""

    label: str
    host: str
    port: int | None = None
    is_tls: bool = False
    #: Whether the certificate is checked.
    verifies: bool = True
    #: The path before every target, without a slash at its end.
    path: str = ""
    socket_path: str | None = None
    #: `Authorization` for the user and the password in the URL (RFC 7617), for a front proxy that requests them.
    credentials: str | None = None
    #: Whether a connection begins with a header of the PROXY protocol.
    has_proxy_protocol: bool = False

    @property
    def netloc(self) -> str:
        """The host and the port, as `Host` has them: without the port of the scheme."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port in (None, 443 if self.is_tls else 80) else f"{host}:{self.port}"

    @property
    def url(self) -> str | None:
        """The URL without a user. None for a socket."""
        return None if self.socket_path else f"http{'s' * self.is_tls}://{self.netloc}{self.path}"


def parse_server(text: str, option: str, *, verifies: bool = True) -> ProxyServer:
    """The proxy at a URL, or at `unix:` and the path of a socket. Raises ConfigurationError, which names `option`."""
    if text.startswith(UNIX) and len(text) > len(UNIX):
        return ProxyServer(text, "localhost", socket_path=text.removeprefix(UNIX))
    try:
        return _read_url(text, verifies=verifies)
    except ValueError as error:
        shown = redact(text)[:MAX_SHOWN].encode("unicode_escape").decode()
        raise ConfigurationError(
            f"{option} {shown}: not a URL such as http://127.0.0.1:8000, or unix: and the path of a socket: {error}"
        ) from error


def _read_url(text: str, *, verifies: bool) -> ProxyServer:
    # urlsplit removes line breaks and tabs, and http.client refuses other control characters only when it sends them.
    if not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("a character is not allowed in a URL")
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("it does not begin with http:// or https:// and a host")
    if parts.query or parts.fragment:
        raise ValueError("it has a query or a fragment")
    if parts.port == 0:
        raise ValueError("port 0 cannot be connected to")
    # The names of hosts are looked up with IDNA, which refuses an empty label and one of more than 63 characters.
    parts.hostname.encode("idna")
    return ProxyServer(
        redact(text),
        parts.hostname,
        parts.port,
        parts.scheme == "https",
        verifies,
        parts.path.rstrip("/"),
        credentials=_read_credentials(parts),
    )


def _read_credentials(parts: SplitResult) -> str | None:
    if parts.username is None:
        return None
    text = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return f"Basic {base64.b64encode(text.encode()).decode()}"


def server_on_this_machine(host: str, port: int, *, is_tls: bool) -> ProxyServer:
    """The proxy that listens on an address of this machine.

    Its certificate is for the public host, not for this address, so it is not checked. No request leaves the machine.
    """
    if host.startswith(UNIX):
        return parse_server(host, "host")
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - read, not bound
    return ProxyServer(f"{host} port {port}", host, port, is_tls, verifies=False)


_PIECE_BYTES: Final = 65_536
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
        # Limit of the timeout for connecting, in seconds.
        self._connection = _open(server, min(timeout, 10.0))
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
        message = hints.get(status)
        if message is None and status in (414, 431):
            # Answers of a server or a front proxy before the application, which have no problem details.
            message = "the request is too long for it; shorten the arguments"
        message = message or read_detail(self._collect(_PIECE_BYTES))
        if message is None:
            message = f"status {status}; this is not a doi-proxy, or an older one; check the URL"
        if 300 <= status < 400:
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
        return str(json.loads(content)["detail"])[:500]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


#: Timeout in seconds. A purge of everything, and a slow upstream, take a while.
_TIMEOUT: Final = 120.0
_TOKEN_HINT: Final = "set DOI_PROXY_ADMIN_TOKEN_FILE to the proxy's own"  # noqa: S105 - a message


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

    def show(self, name: HandleName) -> dict[str, Any]:
        """GET the entry of a name."""
        return self._send("GET", f"/admin/entries?{urlencode({'doi': url_path(name)})}")

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
            raise exchange.refusal({http.client.UNAUTHORIZED: f"the token is wrong; {_TOKEN_HINT}"})
        try:
            # Bytes of an answer. A record has at most a few MiB.
            document = json.loads(exchange.read(64 * 1024 * 1024))
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
    # What the challenge of the admin API has (RFC 6750, section 3).
    return is_closed or (
        status == http.client.UNAUTHORIZED and 'realm="doi-proxy admin"' in exchange.headers.get("WWW-Authenticate", "")
    )


#: The folder with the sockets of instances that units start.
UNITS: Final = Path("/run/doi-proxy")


def find_server(settings: Settings, server: str | None) -> ProxyServer:
    """The proxy at a URL, or the one on this machine that these settings describe. Raises ConfigurationError."""
    if server is not None:
        return parse_server(server, "--server")
    here = server_on_this_machine(settings.host, settings.port, is_tls=settings.tls_cert is not None)
    return replace(here, has_proxy_protocol=settings.proxy_protocol)


def open_client(settings: Settings, server: str | None) -> AdminClient:
    """The same with the admin API, which can have a listener of its own. Raises ConfigurationError."""
    place, token = find_server(settings, server), settings.value("admin_token")
    address = _find_management(settings)
    if server is None and address is not None:
        place = parse_server(address if address.startswith(UNIX) else f"http://{address}", "management_listen")
    return AdminClient(place, token)


def find_running(settings: Settings, server: str | None) -> AdminClient | None:
    """The proxy of `--server`; else an instance of these settings that answers, if the token is known. Else None.

    It has the whole budget of upstream queries. Raises ConfigurationError.
    """
    if server is None and (settings.value("admin_token") is None or _find_management(settings) is None):
        return None
    client = open_client(settings, server)
    if server is None:
        try:
            client.settings()
        except DoiProxyError:
            return None
    return client


def _find_management(settings: Settings) -> str | None:
    """Where an instance has its admin API: at the first management address, or at the first socket of the units.

    The units set `management_listen` for each instance, and a command has the settings of the file alone.
    """
    first = next(iter(settings.management_listen), None)
    sockets = () if first is not None else sorted(UNITS.glob("*.sock"))
    return next((f"{UNIX}{path}" for path in sockets if path.is_socket()), first)


def may_read(settings: Settings) -> bool:
    """Whether a command may read at the admin API: it has the token, or the API has a Unix socket."""
    return settings.value("admin_token") is not None or (_find_management(settings) or "").startswith(UNIX)
