"""Resolves handles by the native Handle protocol, with neither a resolver nor a proxy between.

    root = read_bootstrap(Path("root.json").read_bytes())
    async with HandleResolver.from_root(root) as resolver:
        record = await resolver.resolve("10.1000/182", types=["URL"])

The root leads to the server of every handle (RFC 3652, section 3.1). `HandleResolver.of_sites` queries the servers of
one service alone, which the caller knows.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from ipaddress import IPv6Address, IPv6Network, ip_address
from types import TracebackType
from typing import Any, Final, Protocol, Self

from handle_protocol.directory import Directory
from handle_protocol.errors import HandleNotFound, ServerRefused, ServerUnreachable
from handle_protocol.exchange import Clocks, QueryLimits, ServiceClient
from handle_protocol.json_sites import write_json_values
from handle_protocol.referral import (
    Answer,
    DirectoryLimits,
    DirectoryObserver,
    HandleService,
    Lookups,
    Question,
    ResponseCode,
    within,
)
from handle_protocol.site import AllowServer, Candidate, RootKeeper, ServerHealth
from handle_protocol.transport.stream import TcpTransport, Transport
from handle_protocol.transport.udp import UdpTransport
from handle_protocol.value import Record, parse_record, read_values
from handle_protocol.wire import site_value
from handle_protocol.wire.message import UNKNOWN_SERIAL, Response, ResponseStatus, Values

#: Seconds for one handle, with the look-ups that lead to its server.
TIMEOUT: Final = 10.0
#: Seconds for one connection.
CONNECT_TIMEOUT: Final = 3.0
#: Bytes of one answer after its envelope.
MAX_BYTES: Final = 1024 * 1024
#: The port of handle servers (IANA: hdl-srv), for UDP and TCP. The HTTP tunnel has a port of its own, usually 8000.
PORT: Final = 2641
_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")


class Finder(Protocol):
    """Finds the server of a handle, and queries it."""

    async def resolve(self, question: Question) -> Response | None:
        """The server's answer. None if the prefix does not exist. Raises HandleProtocolError."""

    async def aclose(self) -> None:
        """Stop what is under way."""


class NamedSites:
    """Queries the servers of one service, by the hash of the handle (RFC 3651, section 3.2.2)."""

    def __init__(self, service: HandleService, ask: Callable[[HandleService, Question], Awaitable[Response]]) -> None:
        self._service = service
        self._ask = ask

    async def resolve(self, question: Question) -> Response:
        """The answer of the server that has the handle. Raises HandleProtocolError."""
        return await self._ask(self._service, question)

    async def probe(self, question: Question) -> Response:
        """The answer of a server. Raises HandleProtocolError."""
        return await self.resolve(question)

    async def aclose(self) -> None:
        """Nothing is under way."""


class HandleResolver:
    """Resolves handles in one event loop. Until it is closed it keeps connections, and what it learned of services."""

    def __init__(self, finder: Finder, exchange: ServiceClient, timeout: float) -> None:
        """See `from_root` and `of_sites`."""
        self._finder = finder
        self._exchange = exchange
        self._timeout = timeout

    @classmethod
    def from_root(cls, root: HandleService, *, timeout: float = TIMEOUT, private_servers: bool = False) -> Self:
        """A resolver of every handle. `root` are the sites of the root; see `json_sites.read_bootstrap`.

        `timeout` is in seconds. Site values come from the network: a private address in one is refused unless
        `private_servers` is set.
        """
        exchange = _open_exchange(allow_every if private_servers else allow_public)
        limits = DirectoryLimits(timeout=timeout)
        lookups = Lookups(exchange, _admit, limits, time.time, DirectoryObserver(), None, are_signed=False)
        return cls(Directory(RootKeeper(root), lookups), exchange, timeout)

    @classmethod
    def of_sites(cls, service: HandleService, *, timeout: float = TIMEOUT) -> Self:
        """A resolver that queries the servers of one service; see `service_at` and `json_sites.read_site_file`.

        No record leads elsewhere: a server answers for the handles that it has, and refuses others (ServerRefused).
        """
        exchange = _open_exchange(allow_every)
        return cls(NamedSites(service, exchange), exchange, timeout)

    async def resolve(
        self, handle: str, types: Sequence[str] = (), indexes: Sequence[int] = (), certified: bool = False
    ) -> Record:
        """The values of a handle that the public may read: those of these types or indexes, or all without both.

        A type "X." stands for "X" and each "X.y" (RFC 3652, section 3.2.1). With `certified`, a chain of signatures
        must lead from the keys of the root, or of the named service, to the answer; that needs `cryptography`. Aliases
        (HS_ALIAS) are values like others: the caller follows them.

        Raises HandleNotFound if the server of the handle says so, SignatureInvalid, ServiceNotFound, ServerTimeout,
        ServerUnreachable, ServerRefused, and UnusableAnswer.
        """
        question = Question(
            handle.encode(), tuple(item.encode() for item in types), tuple(indexes), certified=certified
        )
        answer = read_response(
            await within(self._timeout, self._finder.resolve(question), "The handle servers did not answer in time."),
            is_verified=certified,
        )
        if answer.code is ResponseCode.HANDLE_NOT_FOUND:
            raise HandleNotFound(f"The handle {handle[:200]} does not exist.")
        # A server that sends more than it was asked for does not decide what the caller gets.
        return read_values(answer.values).select(types, indexes)

    async def aclose(self) -> None:
        """Close the connections. The resolver is not used afterwards."""
        await self._finder.aclose()
        await self._exchange.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()


def read_response(response: Response | None, *, is_verified: bool) -> Answer:
    """The answer of a server as an HTTP API has it. Raises ServerRefused, and UnusableAnswer."""
    if response is None or response.code == ResponseStatus.HANDLE_NOT_FOUND:
        return Answer(ResponseCode.HANDLE_NOT_FOUND, is_verified=is_verified)
    if response.code == ResponseStatus.VALUES_NOT_FOUND:
        return Answer(ResponseCode.VALUES_NOT_FOUND, is_verified=is_verified)
    if response.code != ResponseStatus.SUCCESS or not isinstance(response.body, Values):
        raise ServerRefused(
            f"The handle server did not answer about this name, response code {response.code}.",
            response_code=response.code,
        )
    values = write_json_values(response.body.values)
    if not parse_record(values).values:
        return Answer(ResponseCode.VALUES_NOT_FOUND, is_verified=is_verified)
    return Answer(ResponseCode.SUCCESS, values, is_verified=is_verified)


def allow_public(address: site_value.Address) -> site_value.Address | None:
    """Only global unicast addresses: a site value can name any machine in the client's network."""
    if not address.is_global or address.is_multicast:
        return None
    # 2000::/3 is what is assigned as Global Unicast (RFC 4291, section 2.4). 6to4 has an IPv4 address inside.
    if isinstance(address, IPv6Address) and (address not in _GLOBAL_UNICAST or address.sixtofour is not None):
        return None
    return address


def allow_every(address: site_value.Address) -> site_value.Address:
    """Any address."""
    return address


def service_at(address: str, port: int = PORT, *, http_port: int = 0, public_key: bytes = b"") -> HandleService:
    """A service of one server at an address of IPv4 or IPv6. Raises ValueError for another text.

    With `http_port`, the tunnel is used too. `public_key` (the data of an HS_PUBKEY value) verifies its answers.
    """
    ports = {
        site_value.TransportProtocol.UDP: port,
        site_value.TransportProtocol.TCP: port,
        site_value.TransportProtocol.HTTP: http_port,
    }
    interfaces = tuple(
        site_value.Interface(site_value.Purpose.QUERY, protocol, number) for protocol, number in ports.items() if number
    )
    server = site_value.Server(1, site_value.pack_address(ip_address(address)), public_key, interfaces)
    return HandleService((site_value.ServiceSite(UNKNOWN_SERIAL, (server,)),), is_verified=bool(public_key))


class _LateTunnel:
    """The HTTP tunnel. aiohttp takes a tenth of a second to import, and is needed by nothing else."""

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._transport: Transport | None = None

    async def exchange(self, candidate: Candidate, handle: bytes, message: bytes) -> bytes:
        """See Transport."""
        if self._transport is None:
            try:
                from handle_protocol.transport.tunnel import TunnelTransport  # noqa: PLC0415
            except ImportError as error:
                raise ServerUnreachable(detail="the HTTP tunnel needs the package aiohttp") from error
            self._transport = TunnelTransport(**self._options)
        return await self._transport.exchange(candidate, handle, message)

    async def aclose(self) -> None:
        """See Transport."""
        if self._transport is not None:
            await self._transport.aclose()


def open_transports(
    *,
    may_ask_again: Callable[[], Awaitable[bool]],
    connect_timeout: float,
    max_bytes: int,
    headers: Mapping[str, str],
    find_proxy_url: Callable[[str, str], str | None] = lambda scheme, host: None,
    trust_proxy: Callable[[], ssl.SSLContext] = ssl.create_default_context,
) -> dict[site_value.TransportProtocol, Transport]:
    """All transports; see TunnelTransport for what only the tunnel needs."""
    tunnel = _LateTunnel(
        may_ask_again=may_ask_again,
        connect_timeout=connect_timeout,
        max_bytes=max_bytes,
        headers=headers,
        find_proxy_url=find_proxy_url,
        trust_proxy=trust_proxy,
    )
    return {
        site_value.TransportProtocol.UDP: UdpTransport(max_bytes=max_bytes),
        site_value.TransportProtocol.TCP: TcpTransport(connect_timeout=connect_timeout, max_bytes=max_bytes),
        site_value.TransportProtocol.HTTP: tunnel,
        site_value.TransportProtocol.HTTPS: tunnel,
    }


def _open_exchange(allow: AllowServer) -> ServiceClient:
    transports = open_transports(
        may_ask_again=_may_ask_again,
        connect_timeout=CONNECT_TIMEOUT,
        max_bytes=MAX_BYTES,
        headers={"User-Agent": "handle_protocol"},
    )
    return ServiceClient(
        transports,
        ServerHealth(),
        QueryLimits(allow),
        clocks=Clocks(time.time, time.monotonic),
        may_ask_again=_may_ask_again,
    )


async def _may_ask_again() -> bool:
    return True


async def _admit() -> None:
    """Admit a further query. The limits of a directory bound their number."""
