"""The engines under httpx: the transport of `aiohttp_transport` for HTTP/1.1, and httpx's own for HTTP/2.

`docs/decisions/0012-engine-of-the-upstream-client.md` has the figures. Both take the path and query of a request from
its extension "target". So httpx need not parse the URL of every request, which takes 45 us.
"""

from __future__ import annotations

import asyncio
import ssl
import zlib
from importlib import import_module
from pathlib import Path
from typing import Final
from urllib.request import getproxies, proxy_bypass

import httpx

from app.errors import AnswerTooLarge, ConfigurationError, InvalidAnswer
from app.regular_file import explain_failure, require_regular

#: Idle connections are closed before usual servers close them (60 to 75 s), which would cost a retry.
KEEP_IDLE_SECONDS: Final = 30.0
#: The module of the engine for HTTP/1.1.
AIOHTTP_TRANSPORT: Final = "app.upstream.aiohttp_transport"
#: The largest file of certificate authorities. The public ones have 300 kB.
_MAX_AUTHORITIES_BYTES: Final = 16 * 1024 * 1024
_PROXY_SCHEMES: Final = ("http", "https")
#: The content coding that is offered to the upstream. An answer in another one is not valid.
ACCEPT_ENCODING: Final = "gzip"
_GZIP_CODINGS: Final = ("gzip", "x-gzip")
#: Tells zlib to expect a gzip header and trailer (zlib manual, inflateInit2).
_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS


def open_engine(
    *, http2: bool, connect_timeout: float, trusted: ssl.SSLContext | None, proxy: str | None
) -> httpx.AsyncBaseTransport:
    """The transport to one upstream, through `proxy` if there is one; the timeout in seconds.

    `trusted` holds the certificate authorities of an https upstream. The caller limits the number of
    connections, and the time of a query.
    """
    if not http2:
        return LateTransport(connect_timeout, trusted, proxy)
    return HttpcoreTransport(
        verify=trusted if trusted is not None else False,
        http2=True,
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=KEEP_IDLE_SECONDS),
        proxy=None
        if proxy is None
        else httpx.Proxy(proxy, ssl_context=trusted if proxy.startswith("https:") else None),
    )


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


class HttpcoreTransport(httpx.AsyncHTTPTransport):
    """HTTP/2, or HTTP/1.1 if the upstream has no HTTP/2."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """The response, its body unread. Raises httpx.TransportError."""
        # httpcore has this extension too, but would also send it to an egress proxy in place of the absolute form.
        target = request.extensions.pop("target", None)
        if target is not None:
            request.url = request.url.copy_with(raw_path=target)
        return await super().handle_async_request(request)


class LateTransport(httpx.AsyncBaseTransport):
    """HTTP/1.1 with aiohttp, whose import takes 0.15 s: a thread imports it, at the latest for the first query."""

    def __init__(self, connect_timeout: float, trusted: ssl.SSLContext | None, proxy: str | None) -> None:
        self._options = (connect_timeout, trusted, proxy)
        #: The transport, once it is open.
        self._opened: list[httpx.AsyncBaseTransport] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """The response, its body unread. Raises httpx.TransportError."""
        if not self._opened:
            module = await asyncio.to_thread(import_module, AIOHTTP_TRANSPORT)
            # A query that came later may have opened one meanwhile. That one is used.
            self._opened.append(module.AiohttpTransport(*self._options))
        return await self._opened[0].handle_async_request(request)

    async def aclose(self) -> None:
        """Close the connections. The transport is not used afterwards."""
        for transport in self._opened:
            await transport.aclose()


async def read_body(response: httpx.Response, most: int) -> bytes:
    """The whole body, decompressed. Raises InvalidAnswer if it exceeds `most` bytes or cannot be decompressed."""
    coding = response.headers.get("Content-Encoding", "").strip().lower()
    if coding not in ("", "identity", *_GZIP_CODINGS):
        raise InvalidAnswer(f"The upstream's answer has the content coding {coding[:40]!r}, which was not offered.")
    inflater = zlib.decompressobj(_GZIP_WINDOW) if coding in _GZIP_CODINGS else None
    received, body = 0, bytearray()
    async for chunk in response.aiter_raw():
        received += len(chunk)
        # One byte more than the limit shows that the body is too long. A decompression bomb expands no further.
        body += chunk if inflater is None else _inflate(inflater, chunk, most - len(body) + 1)
        if len(body) > most or received > most:
            raise AnswerTooLarge.over(most)
    if inflater is not None and received and not inflater.eof:
        raise InvalidAnswer("The upstream's answer is incomplete: its compressed data have no end.")
    return bytes(body)


def _inflate(inflater: zlib._Decompress, chunk: bytes, room: int) -> bytes:
    try:
        return inflater.decompress(chunk, room)
    except zlib.error as error:
        raise InvalidAnswer("The upstream's answer cannot be decompressed.", detail=str(error)) from error
