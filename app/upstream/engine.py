"""The engines under httpx, for HTTP/1.1 (`aiohttp_transport`) and for HTTP/2, and what they trust.

`docs/decisions/0012-engine-of-the-upstream-client.md` has the figures. Both take the path and query of a request from
its extension "target". So httpx need not parse the URL of every request, which takes 45 us.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Final
from urllib.request import getproxies, proxy_bypass

import httpx

from app.errors import ConfigurationError
from app.regular_file import explain_failure, require_regular

#: Idle connections are closed before usual servers close them (60 to 75 s), which would cost a retry.
KEEP_IDLE_SECONDS: Final = 30.0
#: The module of the engine for HTTP/1.1.
AIOHTTP_TRANSPORT: Final = "app.upstream.aiohttp_transport"
#: The largest file of certificate authorities. The public ones have 300 kB.
_MAX_AUTHORITIES_BYTES: Final = 16 * 1024 * 1024
_PROXY_SCHEMES: Final = ("http", "https")


@dataclass(frozen=True, slots=True)
class Route:
    """How an upstream is reached: through `proxy` if there is one, within `connect_timeout` seconds.

    `trusted` holds the certificate authorities of an https upstream. The caller limits the number of connections, and
    the time of a query.
    """

    connect_timeout: float
    trusted: ssl.SSLContext | None
    proxy: str | None

    async def open_http1(self) -> httpx.AsyncBaseTransport:
        """The engine for HTTP/1.1. A thread imports aiohttp, which takes 0.15 s, if nothing has imported it yet."""
        module = await asyncio.to_thread(import_module, AIOHTTP_TRANSPORT)
        opened: httpx.AsyncBaseTransport = module.AiohttpTransport(self.connect_timeout, self.trusted, self.proxy)
        return opened

    def open_http2(self) -> httpx.AsyncBaseTransport:
        """The engine for HTTP/2, which falls back to HTTP/1.1."""
        proxy = self.proxy
        return HttpcoreTransport(
            verify=self.trusted if self.trusted is not None else False,
            http2=True,
            limits=httpx.Limits(
                max_connections=None, max_keepalive_connections=None, keepalive_expiry=KEEP_IDLE_SECONDS
            ),
            proxy=None
            if proxy is None
            else httpx.Proxy(proxy, ssl_context=self.trusted if proxy.startswith("https:") else None),
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
