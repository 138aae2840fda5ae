"""Connections for the HTTP tunnel: to the server itself, or through the egress proxy of HTTP_PROXY and HTTPS_PROXY."""

from __future__ import annotations

import asyncio
import re
import ssl
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, cast
from urllib.parse import quote, unquote, urlsplit

import httptools

from handle_protocol.errors import HandleProtocolError, ServerRefused, ServerUnreachable, UnusableAnswer
from handle_protocol.site import Candidate
from handle_protocol.transport import stream
from handle_protocol.wire.site_value import TransportProtocol


@dataclass(slots=True)
class HttpAnswer:
    """An answer. Names of header fields are in lower case; of several fields with one name, the last counts."""

    status: int = 0
    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: bytes = b""


class HttpConnection(stream.StreamConnection[HttpAnswer]):
    """Reads answers, of a body with more than `max_bytes` only the start.

    With `ends_at_head`, as for CONNECT, an answer has no body.
    """

    def __init__(self, max_bytes: int, *, ends_at_head: bool = False) -> None:
        super().__init__()
        self._max_bytes = max_bytes
        self._ends_at_head = ends_at_head
        self._parser = httptools.HttpResponseParser(self)
        self._current = HttpAnswer()
        self._body = bytearray()

    def prepare(self) -> None:
        """See StreamConnection."""
        self._current = HttpAnswer()
        self._body = bytearray()

    def receive(self, data: bytes) -> None:
        """See StreamConnection."""
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            # A port of the native protocol is not a port of HTTP. That concerns the interface, and not the name.
            self.fail(ServerUnreachable(detail=f"the answer is not HTTP: {error}"[:200]))
            return
        if len(self._body) > self._max_bytes:
            self._complete()
            self.close()
        elif self.received_bytes - len(self._body) > 64 * 1024:
            # What is not the body: the status line, the header fields and the framing of chunks.
            self.fail(UnusableAnswer("The head of the handle server's answer is longer than 65536 bytes."))

    def connection_lost(self, error: Exception | None) -> None:
        """See asyncio.Protocol. The end of the stream can be the end of the body (RFC 9112, section 6.3, item 8)."""
        if error is None and self._current.status:
            self._complete()
        super().connection_lost(error)

    # The callbacks of the parser.

    def on_message_begin(self) -> None:
        """The parser read the start of an answer, or of an interim answer."""
        self.prepare()
        if not self.is_waiting:
            self.close()  # A second answer follows the first.

    def on_header(self, name: bytes, value: bytes) -> None:
        """The parser read a header field."""
        self._current.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        """The parser read the whole head."""
        status = self._parser.get_status_code()
        # Answers below this status are interim (RFC 9110, section 15.2).
        if status >= 200:
            self._current.status = status
            if self._ends_at_head:
                self._complete()

    def on_body(self, data: bytes) -> None:
        """The parser read a part of the body."""
        self._body += data

    def on_message_complete(self) -> None:
        """The parser read the whole answer."""
        # The length and the end of a connection do not concern a tunnel (RFC 9110, section 9.3.6).
        if self._current.status and not self._ends_at_head:
            self._complete()
            if not self._parser.should_keep_alive():
                self.close()

    def _complete(self) -> None:
        self._current.body = bytes(self._body)
        self.finish(self._current)


_MAX_DETAIL: Final = 200


@dataclass(frozen=True, slots=True)
class EgressProxy:
    """A proxy. `authorization` is the value of Proxy-Authorization, if its URL has a user."""

    host: str
    port: int
    is_tls: bool
    authorization: str | None

    @property
    def field(self) -> str:
        """The header field that identifies the client to the proxy (RFC 9110, section 11.7.2); empty without a user."""
        return f"Proxy-Authorization: {self.authorization}\r\n" if self.authorization else ""


class Egress:
    """Opens connections, each within `connect_timeout` seconds. Answers have at most `max_bytes` of body.

    `find_proxy_url` returns the URL of the egress proxy for a scheme and a host. It raises ValueError. `trust_proxy`
    returns the context of TLS to a proxy.
    """

    def __init__(
        self,
        *,
        connect_timeout: float,
        max_bytes: int,
        find_proxy_url: Callable[[str, str], str | None] = lambda scheme, host: None,
        trust_proxy: Callable[[], ssl.SSLContext] = ssl.create_default_context,
    ) -> None:
        self._find_proxy_url = find_proxy_url
        self._trust_proxy = trust_proxy
        self._connect_timeout = connect_timeout
        self._max_bytes = max_bytes
        self._proxies: dict[tuple[str, str], EgressProxy | None] = {}

    def find_proxy(self, scheme: str, host: str) -> EgressProxy | None:
        """The egress proxy for a host. Raises ServerUnreachable if it is not a URL."""
        key = scheme, host
        if key not in self._proxies:
            # Hosts whose egress proxy is remembered. To read it takes longer than to query a server.
            if len(self._proxies) >= 1_000:
                self._proxies.clear()
            try:
                url = self._find_proxy_url(scheme, host)
                self._proxies[key] = None if url is None else _read_proxy(url)
            except ValueError as error:
                raise ServerUnreachable(detail=str(error)[:_MAX_DETAIL]) from error
        return self._proxies[key]

    async def connect(self, scheme: str, host: str, port: int, proxy: EgressProxy | None) -> HttpConnection:
        """A new connection. The certificate of the server is not checked. Raises HandleProtocolError."""
        try:
            async with asyncio.timeout(self._connect_timeout):
                if proxy is None:
                    return await self._open(host, port, self._server_tls if scheme == "https" else None)
                if scheme == "http":
                    return await self._open_proxy(proxy)
                return await self._connect_through(proxy, host, port)
        except HandleProtocolError:
            raise
        except Exception as error:
            # Catch everything: an exception missing from a list would not count as a failure of the server.
            raise stream.translate_socket_error(error) from error

    async def _open(
        self, host: str, port: int, tls: ssl.SSLContext | None, *, ends_at_head: bool = False
    ) -> HttpConnection:
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: HttpConnection(self._max_bytes, ends_at_head=ends_at_head), host, port, ssl=tls
        )
        return connection

    async def _open_proxy(self, proxy: EgressProxy, *, ends_at_head: bool = False) -> HttpConnection:
        tls = self._proxy_tls if proxy.is_tls else None
        try:
            return await self._open(proxy.host, proxy.port, tls, ends_at_head=ends_at_head)
        except OSError as error:
            detail = f"the egress proxy {proxy.host}:{proxy.port} cannot be reached: {error}"[:_MAX_DETAIL]
            raise ServerUnreachable(detail=detail) from error

    async def _connect_through(self, proxy: EgressProxy, host: str, port: int) -> HttpConnection:
        """TLS to the server inside a tunnel through the proxy (RFC 9110, section 9.3.6)."""
        outer = await self._open_proxy(proxy, ends_at_head=True)
        try:
            authority = write_authority(host, port)
            request = f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n{proxy.field}\r\n"
            status = (await outer.exchange(request.encode("latin-1"))).status
            if status != 200 or outer.transport is None:
                raise ServerUnreachable(detail=f"the egress proxy answered CONNECT with status {status}")
            inner = HttpConnection(self._max_bytes)
            transport = await asyncio.get_running_loop().start_tls(
                outer.transport, inner, self._server_tls, server_hostname=host
            )
        except BaseException:
            outer.close()
            raise
        if transport is None:
            raise ServerUnreachable(detail="the connection ended while TLS began")
        inner.connection_made(transport)
        return inner

    @cached_property
    def _server_tls(self) -> ssl.SSLContext:
        """TLS to handle servers. They sign their own certificates; see `key`."""
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
        return tls

    @cached_property
    def _proxy_tls(self) -> ssl.SSLContext:
        return self._trust_proxy()


def write_authority(host: str, port: int) -> str:
    """A host and its port, as in a URL (RFC 3986, section 3.2.2)."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def read_peer_certificate(connection: HttpConnection) -> bytes | None:
    """The certificate of the server (DER). None without TLS."""
    if connection.transport is None:
        return None
    tls = cast("ssl.SSLObject | None", connection.transport.get_extra_info("ssl_object"))
    return None if tls is None else tls.getpeercert(binary_form=True)


def _read_proxy(url: str) -> EgressProxy:
    parts = urlsplit(url)
    authorization = None
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = f"Basic {b64encode(pair.encode()).decode('ascii')}"
    return EgressProxy(
        parts.hostname or "",
        parts.port or {"http": 80, "https": 443}[parts.scheme],
        parts.scheme == "https",
        authorization,
    )


MESSAGE: Final = "application/x-hdl-message"
#: A host name in a site value comes from the network, and must not add fields to the request.
_HOST: Final = re.compile(rb"[A-Za-z0-9_.:\[\]-]{1,255}")


@dataclass(frozen=True, slots=True)
class _Route:
    """A server and how it is reached: connections of one route are alike."""

    scheme: str
    host: str
    port: int
    proxy: EgressProxy | None
    #: The key that the certificate was compared with.
    public_key: bytes


class TunnelTransport:
    """Posts messages with at most `max_bytes` of answer."""

    def __init__(
        self,
        egress: Egress,
        pool: stream.ConnectionPool[HttpAnswer],
        *,
        headers: Mapping[str, str],
        max_bytes: int,
    ) -> None:
        """`headers` identify this program."""
        self._egress = egress
        self._pool = pool
        fields = {**headers, "Content-Type": MESSAGE, "Accept": MESSAGE, "Accept-Encoding": "identity"}
        self._fields = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        self._max_bytes = max_bytes

    async def exchange(self, candidate: Candidate, handle: bytes, message: bytes) -> bytes:
        """See Transport."""
        route = self._find_route(candidate)
        request = self._write_request(route, candidate.host, handle, message)
        answer = await self._pool.exchange(
            route, lambda: self._connect(route), request, belongs=lambda answer: stream.has_id_of(message, answer.body)
        )
        return self._read(answer, message)

    async def aclose(self) -> None:
        """See Transport."""
        self._pool.close()

    def _find_route(self, candidate: Candidate) -> _Route:
        endpoint = candidate.endpoint
        is_tls = endpoint.protocol is TransportProtocol.HTTPS
        scheme, host = "https" if is_tls else "http", str(endpoint.address)
        key = candidate.public_key if is_tls else b""
        return _Route(scheme, host, endpoint.port, self._egress.find_proxy(scheme, host), key)

    async def _connect(self, route: _Route) -> HttpConnection:
        connection = await self._egress.connect(route.scheme, route.host, route.port, route.proxy)
        try:
            certificate = read_peer_certificate(connection)
            if certificate is not None and route.scheme == "https":
                # It imports a library that only a proxy with handle servers has.
                from handle_protocol.key import compare_certificate  # noqa: PLC0415

                compare_certificate(certificate, route.public_key)
        except BaseException:
            connection.close()
            raise
        return connection

    def _write_request(self, route: _Route, domain: bytes | None, handle: bytes, message: bytes) -> bytes:
        authority = write_authority(route.host, route.port)
        host = domain.decode("ascii") if domain and _HOST.fullmatch(domain) else authority
        target, proxy_field = f"/{quote(handle, safe='')}", ""
        if route.proxy is not None and route.scheme == "http":
            # A proxy gets the absolute form (RFC 9112, section 3.2.2), and the host of it: one that goes by the field
            # Host would connect to any machine that a site value names.
            host = authority
            target, proxy_field = f"http://{authority}{target}", route.proxy.field
        head = f"POST {target} HTTP/1.1\r\nHost: {host}\r\n{proxy_field}{self._fields}"
        return f"{head}Content-Length: {len(message)}\r\n\r\n".encode("latin-1") + message

    def _read(self, answer: HttpAnswer, message: bytes) -> bytes:
        headers = answer.headers
        if answer.status != 200:
            field = headers.get(b"retry-after")
            raise ServerRefused(
                f"The handle server refused to answer, with HTTP status {answer.status}.",
                http_status=answer.status,
                retry_after=None if field is None else field.decode("latin-1"),
            )
        if headers.get(b"content-type", b"").partition(b";")[0].strip().lower() != MESSAGE.encode():
            raise UnusableAnswer("The handle server's answer through HTTP is not a message of the Handle protocol.")
        if headers.get(b"content-encoding", b"identity").lower() != b"identity":
            raise UnusableAnswer("The handle server's answer has a content coding that was not offered.")
        stream.refuse_long(answer.body, message, self._max_bytes)
        return answer.body
