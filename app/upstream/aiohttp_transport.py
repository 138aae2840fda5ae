"""A transport for httpx that speaks HTTP/1.1 with aiohttp."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator

import aiohttp
import httpx
from yarl import URL

from app.upstream.engine import KEEP_IDLE_SECONDS


class AiohttpTransport(httpx.AsyncBaseTransport):
    """HTTP/1.1 for httpx. Raises only httpx's errors. Follows no redirect, stores no cookie, retries nothing."""

    def __init__(self, connect_timeout: float, trusted: ssl.SSLContext | None, proxy: str | None) -> None:
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
                keepalive_timeout=KEEP_IDLE_SECONDS,
                ssl=self._trusted if self._trusted is not None else True,
            ),
            timeout=self._timeout,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            middlewares=(_translate,),
        )
        return self._session


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
        raise _to_httpx(error) from error


def _to_httpx(error: Exception) -> httpx.TransportError:
    text = str(error)
    if isinstance(error, TimeoutError):
        return httpx.TimeoutException(text)
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return httpx.ProxyError(text)
    if isinstance(error, aiohttp.ClientConnectorError):
        return httpx.ConnectError(text)
    if isinstance(error, aiohttp.ClientResponseError):
        return httpx.RemoteProtocolError(text)
    return httpx.ReadError(text)
