"""Fetches CSL JSON from the address that a record names. Any owner of a prefix can write any address into it.

So only public addresses are queried, as for handle servers. A name is compared after it was looked up, and the
connection goes to the address that was compared. An egress proxy looks names up itself; it gets no private address.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Final
from urllib.parse import urljoin, urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from doi_proxy.networks import AllowedAddresses
from doi_proxy.resolver.resolution import MEDIA_TYPES
from doi_proxy.upstream.client import HostResolver, load_authorities, read_egress_proxy
from doi_proxy.upstream.source import read_retry_after

#: Seconds for an answer with its redirects. Some agencies take two.
FETCH_TIMEOUT: Final = 8.0
#: The largest answer. The CSL JSON of a paper with 3,000 authors has 200 KB.
MAX_BYTES: Final = 256 * 1024
CSL: Final = MEDIA_TYPES["csl"]


class ServerFailure(Exception):
    """The server did not answer: this says nothing about the name. `retry_after` are the seconds that it asked for."""

    def __init__(self, reason: str, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


class _Refused(OSError):
    """An address that is not queried."""


class _PublicResolver(AbstractResolver):
    """Looks hosts up, and returns only the addresses that may be queried."""

    def __init__(self, allowed: AllowedAddresses) -> None:
        self._allowed = allowed
        self._system = HostResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """See AbstractResolver. Raises OSError."""
        found = await self._system.resolve(host, port, family)
        public = [result for result in found if _is_allowed(result["host"], self._allowed)]
        if not public:
            raise _Refused("the host has no address that is queried")
        return public

    async def close(self) -> None:
        """Nothing is open."""


def _is_allowed(host: str, allowed: AllowedAddresses) -> bool:
    """Whether an address may be queried. A zone names an interface of this machine."""
    try:
        return "%" not in host and ip_address(host) in allowed
    except ValueError:
        return False


class MetadataClient:
    """Fetches metadata. `identity` are the header fields that name this program."""

    def __init__(self, allowed: AllowedAddresses, identity: Mapping[str, str], ca_file: str | None) -> None:
        self._allowed = allowed
        self._headers = {**identity, "Accept": CSL, "Accept-Encoding": "identity"}
        self._ca_file = ca_file
        self._trusted: ssl.SSLContext | None = None
        #: Sessions for servers, and for an egress proxy, which may have a private address; those without and with TLS.
        self._sessions: dict[tuple[bool, bool], aiohttp.ClientSession] = {}

    async def fetch(self, url: str) -> bytes | None:
        """The body of the answer, None if there is none about this name. Raises ServerFailure."""
        try:
            async with asyncio.timeout(FETCH_TIMEOUT):
                return await self._follow(url)
        except ServerFailure:
            raise
        except Exception as error:
            # Catch everything: an exception missing from a list would turn a record page into a failure.
            raise ServerFailure(f"{type(error).__name__}: {error}"[:200]) from error

    async def aclose(self) -> None:
        """Close the connections."""
        for session in self._sessions.values():
            await session.close()
        self._sessions.clear()

    async def _follow(self, url: str) -> bytes | None:
        for _ in range(4):  # three redirects
            self._check(url)
            proxy = read_egress_proxy(urlsplit(url).scheme, urlsplit(url).hostname or "")
            if self._trusted is None and "https" in (urlsplit(url).scheme, urlsplit(proxy or "").scheme):
                # It takes 20 ms to read the authorities.
                self._trusted = await asyncio.to_thread(load_authorities, self._ca_file)
            session = self._open_session(is_direct=proxy is None, is_tls=self._trusted is not None)
            async with session.get(url, headers=self._headers, allow_redirects=False, proxy=proxy) as response:
                # The server refuses or cannot answer now. Any other status is about the name.
                if response.status >= 500 or response.status in {401, 403, 407, 408, 429}:
                    wait = read_retry_after(response.headers.get("Retry-After", ""), time.time())
                    raise ServerFailure(f"HTTP status {response.status}", wait)
                if response.status not in {301, 302, 303, 307, 308}:
                    return await self._read(response) if response.status == 200 else None
                url = urljoin(url, response.headers.get("Location", ""))
        return None

    def _check(self, url: str) -> None:
        """Raise OSError if a URL is not queried. The connector looks up no address that is written as a number."""
        parts = urlsplit(url)
        host = parts.hostname or ""
        if parts.scheme not in ("http", "https") or not host or parts.username is not None:
            raise _Refused("the address of the metadata is not queried")
        # A host whose last label begins with a digit is an IPv4 address in some form, such as 0x7f.1 (WHATWG URL, 3.5).
        last = host.rstrip(".").rpartition(".")[2]
        is_number = ":" in host or last[:1].isdigit()
        if (is_number and not _is_allowed(host, self._allowed)) or (last == "localhost" and not self._allowed.private):
            raise _Refused("the address of the metadata is not public")

    async def _read(self, response: aiohttp.ClientResponse) -> bytes | None:
        if not response.content_type.endswith("json") or "Content-Encoding" in response.headers:
            return None
        body = bytearray()
        async for block in response.content.iter_chunked(16_384):
            body += block
            if len(body) > MAX_BYTES:
                return None
        return bytes(body)

    def _open_session(self, *, is_direct: bool, is_tls: bool) -> aiohttp.ClientSession:
        session = self._sessions.get((is_direct, is_tls))
        if session is None:
            connector = aiohttp.TCPConnector(
                limit=0,
                keepalive_timeout=30.0,
                ssl=self._trusted or True,
                resolver=_PublicResolver(self._allowed) if is_direct else None,
            )
            session = self._sessions[is_direct, is_tls] = aiohttp.ClientSession(
                connector=connector,
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                middlewares=(_send_once,),
            )
        return session


async def _send_once(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Translate errors before aiohttp sees them: it would repeat the request."""
    try:
        return await send(request)
    except (aiohttp.ClientError, OSError) as error:
        raise ServerFailure(type(error).__name__) from error
