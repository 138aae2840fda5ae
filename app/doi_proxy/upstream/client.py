"""The handle API of one upstream, queried with httpx, and the transports below it.

Every failure leaves here as a CouldNotVerify. HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY name an egress proxy.
SSL_CERT_FILE or SSL_CERT_DIR replace the certificate authorities that are trusted otherwise.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.request import getproxies, proxy_bypass

import aiohttp
import httpx
from aiohttp.abc import ResolveResult
from yarl import URL

from doi_names.presentation import encode
from doi_proxy import errors
from doi_proxy.errors import ConfigurationError, InvalidAnswer, OversizedAnswer
from doi_proxy.system.check import look_up, write_address
from doi_proxy.system.files import Gunzip, GzipLimits, explain_failure, require_regular
from doi_proxy.upstream.source import (
    CONTROL_NAME,
    LOOP_HEADER,
    ClientNetwork,
    UpstreamQuery,
    read_agencies,
    read_retry_after,
)
from handle_protocol.errors import ServerRefused, UnusableAnswer
from handle_protocol.referral import Answer, read_answer

_PROXY_SCHEMES: Final = ("http", "https")
_GZIP_CODINGS: Final = ("gzip", "x-gzip")
#: A body has a limit of its own.
_GZIP_LIMITS: Final = GzipLimits()


def load_authorities(ca_file: str | None) -> ssl.SSLContext:
    """The certificate authorities that are trusted, with those of a file (PEM). Raises ConfigurationError."""
    context = httpx.create_ssl_context()
    if ca_file is not None:
        try:
            # The largest file of certificate authorities. The public ones have 300 kB.
            require_regular(Path(ca_file), 16 * 1024 * 1024)
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
    except (httpx.InvalidURL, UnicodeError) as error:
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
        # Idle connections are closed before usual servers close them (60 to 75 s), which would cost a retry.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0,
                keepalive_timeout=30.0,
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


#: Redirects on the upstream's own origin that are followed for one query.
MAX_REDIRECTS: Final = 3
#: Names in one query about registration agencies. Its URL must be short enough for any server.
MAX_AGENCY_NAMES: Final = 50
#: Timeout for connecting to the upstream, in seconds.
CONNECT_TIMEOUT: Final = 3.0
#: The largest upstream answer. The values of a record have at most 262,144 bytes of JSON in any case.
MAX_ANSWER_BYTES: Final = 1024 * 1024
#: Of an egress proxy that wants a password (RFC 9110, section 15.5.8).
_EGRESS_LOGIN_REQUIRED: Final = 407
_REFUSALS: Final = (401, 403, _EGRESS_LOGIN_REQUIRED, 429)
#: Of a login portal (RFC 6585, section 6).
_LOGIN_REQUIRED: Final = 511
_SERVER_ERRORS: Final = 500
_SUCCESS: Final = 200
_NO_BODY: Final = httpx.ByteStream(b"")
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
#: The errors of a connection that the other side dropped.
_DROPPED: Final = (httpx.ProtocolError, httpx.ReadError, httpx.WriteError, httpx.CloseError)
_MAX_DETAIL: Final = 200
#: sub-delims, ":" and "@".
_LITERAL: Final = b"!$&'()*+,;=:@"
#: In a list of names a comma separates (DOI Handbook, "Which RA?"), so one inside a name is encoded.
_LITERAL_IN_LIST: Final = _LITERAL.replace(b",", b"")
_ENCODED_SLASH: Final = "%2F"


@dataclass(frozen=True, slots=True)
class _Reply:
    status: int
    body: bytes = b""
    location: str | None = None
    retry_after: float | None = None

    @property
    def is_refusal(self) -> bool:
        return self.status in _REFUSALS or (self.status >= _SERVER_ERRORS and self.status != _LOGIN_REQUIRED)


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """Who queries an upstream."""

    user_agent: str
    #: A URL or mailto: address for the User-Agent.
    contact: str | None
    #: It is in every query, and this resolver refuses requests with it.
    loop_id: str


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """How one upstream is queried. Timeouts are in seconds."""

    #: For a whole query with its retry and redirects.
    total_timeout: float
    connect_timeout: float = CONNECT_TIMEOUT
    #: A larger answer counts as unreadable.
    max_answer_bytes: int = MAX_ANSWER_BYTES
    #: The certificates of a private authority (PEM), which are trusted too.
    ca_file: str | None = None


class HandleClient:
    """One upstream: a Source and an AgencySource.

    `base_url` is http or https and may have a path; `clock` returns seconds since the epoch; `may_ask_again` is awaited
    before each further request of one query, which needs a token too. Raises ConfigurationError. The
    caller limits how many queries are in flight: none of them waits here.
    """

    def __init__(
        self,
        base_url: str,
        identity: ClientIdentity,
        options: HttpOptions,
        *,
        clock: Callable[[], float],
        may_ask_again: Callable[[], Awaitable[bool]],
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        base = _read_base(base_url)
        self._url = base.copy_with(raw_path=b"/", username=None, password=None)
        self._origin = _origin(base)
        self._path = base.raw_path.decode("ascii")
        self._headers = httpx.Headers(
            {
                "Host": self._url.netloc.decode("ascii"),
                "Accept": "application/json",
                # An answer in another content coding is not valid.
                "Accept-Encoding": "gzip",
                LOOP_HEADER: identity.loop_id,
                **identify(identity.user_agent, identity.contact),
                **_authorize(base),
            }
        )
        self._options = options
        self._clock = clock
        self._may_ask_again = may_ask_again
        self._is_closed = False
        proxy = read_egress_proxy(base.scheme, base.host)
        # An egress proxy can have an https URL too.
        is_tls = "https" in (base.scheme, httpx.URL(proxy or "").scheme)
        self._engine = transport or AiohttpTransport(
            options.connect_timeout, trusted=load_authorities(options.ca_file) if is_tls else None, proxy=proxy
        )

    async def fetch(self, query: UpstreamQuery) -> Answer:
        """The upstream's answer about one name. Raises CouldNotVerify."""
        if query.leaves is not None:
            query.leaves()
        reply = await self._get(
            handle_query_url(
                self._path,
                query.name.text,
                authoritative=query.authoritative,
                certified=query.certified,
            )
        )
        try:
            return read_answer(reply.body, query.name.text)
        except ServerRefused as error:
            raise errors.UpstreamRefused(
                error.message,
                upstream_status=reply.status,
                response_code=error.response_code,
                retry_after=reply.retry_after,
                detail=error.detail,
            ) from error
        except UnusableAnswer as error:
            if reply.is_refusal:
                raise _to_refusal(reply) from error
            _refuse_page(reply)
            message = f"{error.message} The HTTP status was {reply.status}."
            raise errors.as_unverified(type(error)(message, detail=error.detail)) from error

    async def probe(self) -> Answer:
        """Any answer shows that the upstream works. Raises CouldNotVerify."""
        return await self.fetch(UpstreamQuery(CONTROL_NAME))

    async def registration_agencies(self, names: Sequence[str], client: ClientNetwork = None) -> list[dict[str, str]]:
        """The upstream's Which RA service (at most MAX_AGENCY_NAMES names, else RequestTooLarge).

        Raises CouldNotVerify.
        """
        if not names:
            return []
        if len(names) > MAX_AGENCY_NAMES:
            raise errors.RequestTooLarge(
                f"Ask for the registration agencies of at most {MAX_AGENCY_NAMES} names at once."
            )
        reply = await self._get(agency_url(self._path, names))
        if reply.is_refusal:
            raise _to_refusal(reply)
        _refuse_page(reply)
        if reply.status != _SUCCESS:
            raise errors.InvalidAnswer(f"The upstream's Which RA service answered with HTTP status {reply.status}.")
        return read_agencies(reply.body, names)

    async def aclose(self) -> None:
        """Close the connections and open no more."""
        self._is_closed = True
        await self._engine.aclose()

    async def _get(self, target: str) -> _Reply:
        if self._is_closed:
            raise errors.UpstreamUnreachable(detail="the client is closed")
        try:
            async with asyncio.timeout(self._options.total_timeout):
                return await self._follow_redirects(target)
        except errors.CouldNotVerify:
            raise
        except Exception as error:
            # Catch everything: an exception missing from a list would not count as a failure of the upstream.
            raise translate_error(error) from error

    async def _follow_redirects(self, target: str) -> _Reply:
        """Get a target, retry once if the connection is dropped, and follow redirects on the upstream's own origin.

        GET is idempotent (RFC 9110, section 9.2.2).
        """
        for _ in range(MAX_REDIRECTS + 1):
            try:
                reply = await self._exchange(target)
            except _DROPPED:
                if not await self._may_ask_again():
                    raise
                reply = await self._exchange(target)
            # The status for a query of this resolver that arrived at the resolver itself.
            if reply.status == 508:
                raise errors.UpstreamLoop
            if reply.location is None:
                return reply
            url = self._url.copy_with(raw_path=target.encode("ascii")).join(reply.location)
            if _origin(url) != self._origin:
                raise errors.UpstreamRefused(
                    "The upstream redirects to another origin, which is not followed.",
                    upstream_status=reply.status,
                    detail=f"{url.scheme}://{url.netloc.decode()[:100]}",
                )
            if not await self._may_ask_again():
                break
            target = url.raw_path.decode("ascii")
        raise errors.UpstreamRefused(
            "The upstream redirects too often; see `upstream.url`.", upstream_status=reply.status
        )

    async def _exchange(self, target: str) -> _Reply:
        # The URL of every request is the same: httpx takes 45 us to read one, and its target is an extension.
        extensions = {"target": target.encode("ascii")}
        # Given Host and a stream, httpx prepares nothing: a request takes 12 us instead of 72.
        request = httpx.Request("GET", self._url, headers=self._headers, stream=_NO_BODY, extensions=extensions)
        response = await self._engine.handle_async_request(request)
        try:
            status, field = response.status_code, response.headers.get("Retry-After")
            if response.has_redirect_location:
                return _Reply(status, location=response.headers["Location"])
            reply = _Reply(status, retry_after=None if field is None else read_retry_after(field, self._clock()))
            try:
                body = await read_body(response, self._options.max_answer_bytes)
            except errors.InvalidAnswer:
                if reply.is_refusal:
                    return reply
                raise
            return _Reply(status, body, retry_after=reply.retry_after)
        finally:
            await response.aclose()


def translate_error(error: Exception) -> errors.CouldNotVerify:
    """Translate the error of a library."""
    if isinstance(error, (httpx.TimeoutException, TimeoutError)):
        return errors.UpstreamTimeout()
    if isinstance(error, httpx.DecodingError):
        return errors.InvalidAnswer()
    return errors.UpstreamUnreachable(detail=f"{type(error).__name__}: {error}"[:_MAX_DETAIL].rstrip(".: "))


def _to_refusal(reply: _Reply) -> errors.UpstreamRefused:
    who = "egress proxy" if reply.status == _EGRESS_LOGIN_REQUIRED else "upstream"
    return errors.UpstreamRefused(
        f"The {who} refused to answer, with HTTP status {reply.status}.",
        upstream_status=reply.status,
        retry_after=reply.retry_after,
    )


def _refuse_page(reply: _Reply) -> None:
    """Raise PageAnswer for HTML, and for the status that only a login portal sends."""
    # The first byte of HTML.
    if reply.status == _LOGIN_REQUIRED or reply.body.lstrip()[:1] == b"<":
        raise errors.PageAnswer(f"{errors.PageAnswer().message} The HTTP status was {reply.status}.")


def identify(user_agent: str, contact: str | None) -> dict[str, str]:
    """The header field that names this program and its operator. Raises ConfigurationError."""
    identified = f"{user_agent} (+{contact})" if contact else user_agent
    if not (identified.isascii() and identified.isprintable()):
        raise errors.ConfigurationError(
            "The contact for the upstream's User-Agent must be printable ASCII: a URL or mailto:."
        )
    return {"User-Agent": identified}


def _authorize(base: httpx.URL) -> dict[str, str]:
    """The user and the password of a base URL, as a header field (RFC 7617, section 2)."""
    if not (base.username or base.password):
        return {}
    pair = f"{base.username}:{base.password}".encode()
    return {"Authorization": f"Basic {b64encode(pair).decode('ascii')}"}


def _read_base(base_url: str) -> httpx.URL:
    try:
        url = httpx.URL(base_url)
    except (httpx.InvalidURL, UnicodeError) as error:
        raise errors.ConfigurationError(f"The upstream URL {base_url!r} is not a URL: {error}.") from error
    if url.scheme not in _DEFAULT_PORTS or not url.host or url.query or url.fragment:
        raise errors.ConfigurationError(f"The upstream URL {base_url!r} must be http(s)://host[:port][/path].")
    return url


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port or _DEFAULT_PORTS.get(url.scheme)


def handle_query_url(base: str, name: str, *, authoritative: bool = False, certified: bool = False) -> str:
    """The request target of a query about one handle: `{base}/api/handles/{name}`, with its flags.

    The path is the form of the "doi" URI scheme: bytes of the UTF-8 name in unreserved, sub-delims, ":" and "@"
    (RFC 3986, section 3.3) are literal. All others are percent-encoded, so a slash inside the suffix is "%2F".
    """
    flags = "&".join(f"{flag}=true" for flag, on in (("auth", authoritative), ("cert", certified)) if on)
    url = f"{base.rstrip('/')}/api/handles/{encode_name(name)}"
    return f"{url}?{flags}" if flags else url


def agency_url(base: str, names: Sequence[str]) -> str:
    """The URL of a query about the registration agencies of names or prefixes: `{base}/ra/{name},{name}…`."""
    listed = (encode_name(name, literal=_LITERAL_IN_LIST) for name in names)
    return f"{base.rstrip('/')}/ra/{','.join(listed)}"


def encode_name(name: str, *, literal: bytes = _LITERAL) -> str:
    """Encode a name as a URL path."""
    parts = name.split("/")
    # A leading slash belongs to the name. A literal one would be merged with the slash before it.
    slashes = ["/" if at == 0 and parts[0] else _ENCODED_SLASH for at in range(len(parts) - 1)]
    dots = [at for at, part in enumerate(parts) if part in (".", "..")]
    for at in dots:
        # Clients and proxies remove dot segments (RFC 3986, section 5.2.4). Joined to its neighbour, it is not one.
        if slashes:
            slashes[max(at - 1, 0)] = _ENCODED_SLASH
    if dots and not slashes:
        return name.replace(".", "%2E")
    encoded = [encode(part, literal) for part in parts]
    return encoded[0] + "".join(slash + part for slash, part in zip(slashes, encoded[1:], strict=True))
