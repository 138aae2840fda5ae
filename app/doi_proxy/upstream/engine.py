"""The engine under httpx: a transport that speaks HTTP/1.1 with aiohttp.

`docs/decisions/0012-engine-of-the-upstream-client.md` has the figures. The path and query of a request are its
extension "target". So httpx need not parse the URL of every request, which takes 45 us.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final
from urllib.request import getproxies, proxy_bypass

import aiohttp
import httpx
from aiohttp.abc import ResolveResult
from yarl import URL

from doi_proxy.errors import ConfigurationError, InvalidAnswer, OversizedAnswer
from doi_proxy.system.files import explain_failure, require_regular
from doi_proxy.system.gunzip import Gunzip, GzipLimits
from doi_proxy.system.host_lookup import look_up, write_address

#: Idle connections are closed before usual servers close them (60 to 75 s), which would cost a retry.
_KEEP_IDLE_SECONDS: Final = 30.0
#: The largest file of certificate authorities. The public ones have 300 kB.
_MAX_AUTHORITIES_BYTES: Final = 16 * 1024 * 1024
_PROXY_SCHEMES: Final = ("http", "https")
#: The content coding that is offered to the upstream. An answer in another one is not valid.
ACCEPT_ENCODING: Final = "gzip"
_GZIP_CODINGS: Final = ("gzip", "x-gzip")
#: A body has a limit of its own.
_GZIP_LIMITS: Final = GzipLimits()


def load_authorities(ca_file: str | None) -> ssl.SSLContext:
    """The certificate authorities that are trusted, with those of a file (PEM). Raises ConfigurationError."""
    context = httpx.create_ssl_context()
    if ca_file is not None:
        try:
            require_regular(Path(ca_file), _MAX_AUTHORITIES_BYTES)
            context.load_verify_locations(cafile=ca_file)
        except OSError as error:
            reason = explain_failure(error)
            raise ConfigurationError(f"The certificates in {ca_file!r} cannot be read: {reason}.") from error
    return context


def read_egress_proxy(scheme: str, host: str) -> str | None:
    """The proxy that HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY name for a host. Raises ConfigurationError."""
    proxies = getproxies()
    proxy = proxies.get(scheme) or proxies.get("all")
    if not proxy or proxy_bypass(host):
        return None
    # "host:port" without a scheme is usual in these variables.
    url = proxy if "://" in proxy else f"http://{proxy}"
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ConfigurationError(f"The proxy in {scheme.upper()}_PROXY or ALL_PROXY is not a URL: {error}.") from error
    if parsed.scheme not in _PROXY_SCHEMES or not parsed.host:
        raise ConfigurationError(
            f"The proxy in {scheme.upper()}_PROXY or ALL_PROXY has the scheme {parsed.scheme!r}. "
            "Use http://host:port or https://host:port."
        )
    return url


class AiohttpTransport(httpx.AsyncBaseTransport):
    """HTTP/1.1 for httpx. Raises only httpx's errors. Follows no redirect, stores no cookie, retries nothing.

    It is for one upstream. The caller limits the number of connections, and the time of a query.
    """

    def __init__(self, connect_timeout: float, *, trusted: ssl.SSLContext | None, proxy: str | None) -> None:
        """`connect_timeout` is in seconds. `trusted` holds the certificate authorities of an https upstream."""
        self._timeout = aiohttp.ClientTimeout(total=None, connect=connect_timeout)
        self._trusted = trusted
        self._proxy = proxy
        # A session belongs to an event loop, so it opens with the first request.
        self._session: aiohttp.ClientSession | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """The response, its body unread. Raises httpx.TransportError."""
        session = self._session or self._open_session()
        url = request.url
        target = request.extensions.get("target", url.raw_path)
        # Without `encoded`, yarl would decode and encode the path again.
        address = URL(f"{url.scheme}://{url.netloc.decode('ascii')}{target.decode('ascii')}", encoded=True)
        try:
            response = await session.request(
                request.method,
                address,
                headers=request.headers,
                allow_redirects=False,
                proxy=self._proxy,
            )
        except (aiohttp.ClientError, OSError) as error:
            raise _to_httpx(error) from error
        return httpx.Response(response.status, headers=response.raw_headers, stream=_Body(response), request=request)

    async def aclose(self) -> None:
        """Close the connections. The transport is not used afterwards."""
        if self._session is not None:
            await self._session.close()

    def _open_session(self) -> aiohttp.ClientSession:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0,
                keepalive_timeout=_KEEP_IDLE_SECONDS,
                ssl=self._trusted if self._trusted is not None else True,
                resolver=HostResolver(),
            ),
            timeout=self._timeout,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            middlewares=(_translate,),
        )
        return self._session


class HostResolver(aiohttp.ThreadedResolver):
    """Looks up hosts with `look_up`. aiohttp looks up one host once at a time."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The addresses. Raises OSError."""
        found = await look_up(host, port, family, socket.AI_ADDRCONFIG)
        is_numeric = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
        return [
            ResolveResult(
                hostname=host, host=write_address(at), port=port, family=kind, proto=protocol, flags=is_numeric
            )
            for kind, _, protocol, _, at in found
        ]


class _Body(httpx.AsyncByteStream):
    """The body of a response, as it is received."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._response.content.iter_any():
                yield chunk
        except (aiohttp.ClientError, OSError) as error:
            raise _to_httpx(error) from error

    async def aclose(self) -> None:
        # A connection with an unread body is closed and not reused.
        self._response.release()


async def _translate(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Translate errors before aiohttp sees them: it would repeat the request without a token of the budget."""
    try:
        return await send(request)
    except (aiohttp.ClientError, OSError) as error:
        raise _to_httpx(error, request.proxy) from error


def _to_httpx(error: Exception, proxy: URL | None = None) -> httpx.TransportError:
    text = str(error)
    if isinstance(error, TimeoutError):
        return httpx.TimeoutException(text)
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return httpx.ProxyError(f"the egress proxy answered CONNECT with status {error.status}")
    if isinstance(error, aiohttp.ClientConnectorError):
        # The text repeats the address, and the words of OpenSSL would be cut.
        reason = getattr(error.os_error, "verify_message", "") or error.strerror or text
        # Only the address tells a host without an address in the DNS: aiohttp raises the same error for both.
        if proxy is not None and (error.host, error.port) == (proxy.host, proxy.port):
            return httpx.ProxyError(f"the egress proxy {proxy.host}:{proxy.port} cannot be reached: {reason}")
        return httpx.ConnectError(reason)
    if isinstance(error, aiohttp.ClientResponseError):
        return httpx.RemoteProtocolError(text)
    return httpx.ReadError(text)


async def read_body(response: httpx.Response, most: int) -> bytes:
    """The whole body, decompressed. Raises InvalidAnswer if it exceeds `most` bytes or cannot be decompressed."""
    coding = response.headers.get("Content-Encoding", "").strip().lower()
    if coding not in ("", "identity", *_GZIP_CODINGS):
        raise InvalidAnswer(f"The upstream's answer has the content coding {coding[:40]!r}, which was not offered.")
    gunzip = Gunzip(_GZIP_LIMITS, _refuse_gzip) if coding in _GZIP_CODINGS else None
    received, body = 0, bytearray()
    async for chunk in response.aiter_raw():
        received += len(chunk)
        for piece in (chunk,) if gunzip is None else gunzip.feed(chunk):
            body += piece
            if len(body) > most:
                break
        if len(body) > most or received > most:
            raise OversizedAnswer.over(most)
    if gunzip is not None:
        gunzip.end()
    return bytes(body)


def _refuse_gzip(reason: str) -> InvalidAnswer:
    return InvalidAnswer("The upstream's answer cannot be decompressed.", detail=reason)
