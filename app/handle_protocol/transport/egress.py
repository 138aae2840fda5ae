"""Connections for the HTTP tunnel: to the server itself, or through the egress proxy of HTTP_PROXY and HTTPS_PROXY."""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final, cast
from urllib.parse import unquote, urlsplit

from handle_protocol.errors import HandleProtocolError, ServerUnreachable
from handle_protocol.transport.base import translate_socket_error
from handle_protocol.transport.http import HttpConnection

#: Hosts whose egress proxy is remembered. To read it takes longer than to query a server.
_MAX_HOSTS: Final = 1_000
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_CONNECTED: Final = 200
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
            if len(self._proxies) >= _MAX_HOSTS:
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
            raise translate_socket_error(error) from error

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
            if status != _CONNECTED or outer.transport is None:
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
        parts.hostname or "", parts.port or _DEFAULT_PORTS[parts.scheme], parts.scheme == "https", authorization
    )
