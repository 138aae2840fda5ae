"""Messages through the HTTP tunnel: to the server itself, or through the egress proxy of HTTP_PROXY and HTTPS_PROXY."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any, Final
from urllib.parse import quote

import aiohttp
from aiohttp.client_proto import ResponseHandler
from yarl import URL

from handle_protocol.errors import HandleProtocolError, ServerRefused, ServerUnreachable, UnusableAnswer
from handle_protocol.site import Candidate
from handle_protocol.transport.stream import MESSAGE, has_id_of, refuse_long, translate_socket_error
from handle_protocol.wire.message import ENVELOPE_BYTES
from handle_protocol.wire.site_value import TransportProtocol

#: A host name in a site value comes from the network, and must not add fields to the request.
_HOST: Final = re.compile(rb"[A-Za-z0-9_.:\[\]-]{1,255}")


@dataclass(frozen=True)
class ServerKey(aiohttp.Fingerprint):
    """Compares the certificate of a new connection before anything is sent. Equal values share kept connections."""

    #: The data of an HS_PUBKEY value.
    public_key: bytes
    #: How many answers belonged to another message.
    foreign_answers: int

    def check(self, transport: asyncio.Transport) -> None:
        """See aiohttp.Fingerprint. Raises ServerUnreachable."""
        # It imports a library that only a proxy with handle servers has.
        from handle_protocol.key import compare_certificate  # noqa: PLC0415

        try:
            certificate = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
            compare_certificate(certificate or b"", self.public_key)
        except BaseException:
            transport.abort()
            raise


class _BoundedAnswer(ResponseHandler):
    """Ends an answer with over 64 KiB beside its body. aiohttp has no such limit for interim answers and chunks.

    3 MB of them would take a turn of 3.5 s.
    """

    _received_bytes = 0

    def set_response_params(self, **params: Any) -> None:
        """A request is sent. See ResponseHandler."""
        self._received_bytes = 0
        super().set_response_params(**params)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol. aiohttp calls it without data to resume after a pause."""
        for start in range(0, len(data) or 1, 16_384):
            self._received_bytes += len(data[start : start + 16_384])
            super().data_received(data[start : start + 16_384])
            payload = self._payload
            if self._received_bytes - (payload.total_bytes if payload is not None else 0) > 65_536:
                error = UnusableAnswer("The handle server's answer through HTTP has over 65536 bytes beside its body.")
                self.set_exception(error)
                if payload is not None:
                    payload.set_exception(error)
                if self.transport is not None:
                    self.transport.abort()
                return


class _Connector(aiohttp.TCPConnector):
    def __init__(self) -> None:
        # Servers and firewalls that keep connections do so for a minute or more.
        super().__init__(limit=0, keepalive_timeout=30.0)
        # aiohttp has no option for it.
        self._factory = partial(_BoundedAnswer, loop=asyncio.get_running_loop())  # type: ignore[assignment]


class TunnelTransport:
    """Posts messages with at most `max_bytes` of answer. `connect_timeout` is in seconds.

    `may_ask_again` is awaited before a message is repeated. `headers` identify this program. `find_proxy_url` returns
    the URL of the egress proxy for a scheme and a host. It raises ValueError. `trust_proxy` returns the context of TLS
    to a proxy.
    """

    def __init__(
        self,
        *,
        may_ask_again: Callable[[], Awaitable[bool]],
        connect_timeout: float,
        max_bytes: int,
        headers: Mapping[str, str],
        find_proxy_url: Callable[[str, str], str | None],
        trust_proxy: Callable[[], ssl.SSLContext],
    ) -> None:
        self._may_ask_again = may_ask_again
        self._timeout = aiohttp.ClientTimeout(total=None, connect=connect_timeout)
        self._max_bytes = max_bytes
        self._headers = {**headers, "Content-Type": MESSAGE, "Accept": MESSAGE, "Accept-Encoding": "identity"}
        # To read the environment takes longer than to query a server.
        self._find_proxy_url = lru_cache(maxsize=1_000)(find_proxy_url)
        self._trust_proxy = trust_proxy
        self._foreign_answers = 0

    async def exchange(self, candidate: Candidate, handle: bytes, message: bytes) -> bytes:
        """See Transport."""
        proxy = None
        try:
            host = str(candidate.endpoint.address)
            scheme = "https" if candidate.endpoint.protocol is TransportProtocol.HTTPS else "http"
            proxy_url = self._find_proxy_url(scheme, host)
            proxy = None if proxy_url is None else URL(proxy_url)
            authority = f"[{host}]:{candidate.endpoint.port}" if ":" in host else f"{host}:{candidate.endpoint.port}"
            # Without `encoded`, yarl would decode and encode the path again.
            url = URL(f"{scheme}://{authority}/{quote(handle, safe='')}", encoded=True)
            tls: ServerKey | ssl.SSLContext = ServerKey(candidate.public_key, self._foreign_answers)
            if proxy is not None and proxy.scheme == "https":
                if scheme == "https":
                    # A request has one value of TLS, and the key would be compared with the proxy's certificate.
                    raise ServerUnreachable(detail="HTTPS interfaces are not queried through an https egress proxy")
                tls = self._proxy_tls
            # A proxy gets the address: one that goes by the field Host would connect to any machine that a site value
            # names.
            if proxy is None and candidate.host and _HOST.fullmatch(candidate.host):
                authority = candidate.host.decode("ascii")
            headers = {**self._headers, "Host": authority}
            try:
                return await self._post(url, message, headers, proxy, tls)
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientConnectionResetError) as error:
                # The server closed the connection, perhaps while it was idle. It can have read the message, so the
                # second one needs a token. A server that began to answer gets no second message.
                has_begun = not isinstance(getattr(error, "message", ""), str)
                if has_begun or not await self._may_ask_again():
                    raise
            return await self._post(url, message, headers, proxy, tls)
        except HandleProtocolError:
            raise
        except Exception as error:
            # Catch everything: an exception missing from a list would not count as a failure of the server.
            raise _translate(error, proxy) from error

    async def aclose(self) -> None:
        """See Transport."""
        if "_session" in self.__dict__:
            await self._session.close()

    async def _post(
        self, url: URL, message: bytes, headers: Mapping[str, str], proxy: URL | None, tls: ServerKey | ssl.SSLContext
    ) -> bytes:
        async with self._session.post(
            url, data=message, headers=headers, proxy=proxy, ssl=tls, allow_redirects=False
        ) as response:
            if response.status < 200:
                raise ServerUnreachable(detail=f"the server switches to another protocol, status {response.status}")
            if response.status != 200:
                raise ServerRefused(
                    f"The handle server refused to answer, with HTTP status {response.status}.",
                    http_status=response.status,
                    retry_after=response.headers.get("Retry-After"),
                )
            if response.content_type != MESSAGE:
                text = "The handle server's answer through HTTP is not a message of the Handle protocol."
                raise UnusableAnswer(text)
            if response.headers.get("Content-Encoding", "identity").lower() != "identity":
                raise UnusableAnswer("The handle server's answer has a content coding that was not offered.")
            body = bytearray()
            async for part in response.content.iter_any():
                body += part
                if len(body) > ENVELOPE_BYTES + self._max_bytes:
                    break
        answer = bytes(body)
        if not has_id_of(message, answer):
            # Each answer of this connection could be that to the message before, so no kept one is used again.
            self._foreign_answers += 1
        refuse_long(answer, message, self._max_bytes)
        return answer

    @cached_property
    def _session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=_Connector(),
            timeout=self._timeout,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("User-Agent",),
            trust_env=False,
        )

    @cached_property
    def _proxy_tls(self) -> ssl.SSLContext:
        return self._trust_proxy()


def _translate(error: Exception, proxy: URL | None) -> HandleProtocolError:
    detail = f"{type(error).__name__}: {error}"
    if isinstance(error, aiohttp.ClientHttpProxyError):
        detail = f"the egress proxy answered CONNECT with status {error.status}"
    elif (
        isinstance(error, aiohttp.ClientConnectorError)
        and proxy
        and (error.host, error.port)
        == (
            proxy.host,
            proxy.port,
        )
    ):
        detail = f"the egress proxy {proxy.host}:{proxy.port} cannot be reached: {error.os_error}"
    elif isinstance(error, aiohttp.ClientResponseError):
        # A port of the native protocol is not a port of HTTP. That concerns the interface, and not the name.
        detail = f"the answer is not HTTP: {error.message}"
    elif isinstance(error, TimeoutError):
        return translate_socket_error(error)
    return ServerUnreachable(detail=detail[:200])
