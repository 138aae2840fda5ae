"""One handle server that the operator named: `hdl://host:port`. No record leads to it, and none is looked up.

The server is queried at the port that the operator named, by every transport. After its first answer, the program
reads its site information, which names its other ports, such as that of the HTTP tunnel. No known key signs site
information. So it adds ports at the addresses of the host that the operator named, and nothing else: no address, no
key, and no server of the same site.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import Final, Protocol

from doi_proxy.errors import UpstreamUnreachable
from doi_proxy.features.native.errors import translated_errors
from doi_proxy.networks import Address
from doi_proxy.resolver.fetcher import SingleFlight
from doi_proxy.resolver.resolution import needs_proof
from doi_proxy.system.check import look_up
from doi_proxy.upstream.source import CONTROL_NAME, UpstreamQuery, Verification
from handle_protocol.client import Finder, read_response
from handle_protocol.errors import HandleProtocolError
from handle_protocol.exchange import ServiceClient
from handle_protocol.referral import (
    LONGEST_LIFETIME,
    SHORTEST_LIFETIME,
    Answer,
    HandleService,
    Question,
    ResponseCode,
    within,
)
from handle_protocol.wire import site_value
from handle_protocol.wire.message import UNKNOWN_SERIAL, Response, ResponseStatus

#: The operator names one port. Which transports the server offers there is learned.
_TRANSPORTS: Final = (
    site_value.TransportProtocol.UDP,
    site_value.TransportProtocol.TCP,
    site_value.TransportProtocol.HTTP,
)
_NO_SITE: Final = site_value.ServiceSite(UNKNOWN_SERIAL, ())

Asker = Callable[[HandleService, Question], Awaitable[Response]]
#: Asks a service for the site information of its server. Raises HandleProtocolError.
SiteReader = Callable[[HandleService], Awaitable[site_value.ServiceSite]]


@dataclass(frozen=True, slots=True)
class DirectLimits:
    """How long what is known about a server is used, in seconds."""

    #: For one request for site information.
    timeout: float
    address_lifetime: float = SHORTEST_LIFETIME
    site_lifetime: float = LONGEST_LIFETIME


@dataclass(frozen=True, slots=True)
class NamedServer:
    """The server that the operator named. `known` are sites whose keys are trusted."""

    host: str
    port: int
    limits: DirectLimits
    known: Sequence[site_value.ServiceSite] = ()


class DirectServer:
    """Queries one server about every handle. `clock` is monotonic.

    `may_ask_again` is awaited before a request for site information, which needs a token of the budget. `report` is
    called with site information that differs from the one before.
    """

    def __init__(
        self,
        named: NamedServer,
        ask: Asker,
        read_site: SiteReader,
        *,
        clock: Callable[[], float],
        may_ask_again: Callable[[], Awaitable[bool]],
        report: Callable[[site_value.ServiceSite], None],
    ) -> None:
        self._named = named
        self._limits = named.limits
        self._ask = ask
        self._read_site = read_site
        self._clock = clock
        self._may_ask_again = may_ask_again
        self._report = report
        self._addresses: list[Address] = []
        self._addresses_end = float("-inf")
        self._site = _NO_SITE
        self._site_ends = self._site_may_change = float("-inf")
        self._service = HandleService((), is_verified=False)
        self._reading: asyncio.Task[None] | None = None
        self._look_ups = SingleFlight[None]()

    async def resolve(self, question: Question) -> Response:
        """The server's answer, whatever it is. Raises HandleProtocolError."""
        if self._addresses_end <= self._clock():
            # It takes one of a few threads, for many seconds if no name server answers. Other work needs these threads
            # too, so concurrent callers share one look-up. One of them that goes away does not end it.
            task, _ = self._look_ups.join(self._named.host, lambda _: self._look_up())
            await asyncio.wait((task,))
            task.result()
        response = await self._ask(self._service, question)
        self._refresh(response.header.site_serial)
        return response

    async def probe(self, question: Question) -> Response:
        """The server's answer. Raises HandleProtocolError."""
        return await self.resolve(question)

    async def aclose(self) -> None:
        """Stop what is under way."""
        await self._look_ups.close()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def _look_up(self) -> None:
        self._addresses = await self._read_addresses()
        self._addresses_end = self._clock() + self._limits.address_lifetime
        self._rebuild()

    async def _read_addresses(self) -> list[Address]:
        """The addresses of the host, in the order of the system (RFC 6724). Those known are used if there is none."""
        host = self._named.host
        try:
            found = await look_up(host, self._named.port)
        except OSError as error:
            if self._addresses:
                return self._addresses
            raise UpstreamUnreachable(detail=f"{host}: {error}"[:200]) from error
        # Addresses of one host name. A name in use has one or two of each family.
        return [ip_address(result[4][0]) for result in found][:4]

    def _refresh(self, serial: int) -> None:
        """Read the site information if it is due, or if an answer has the serial number of another site."""
        now = self._clock()
        is_changed = serial != self._site.serial and self._site_may_change <= now
        if self._reading is None and (self._site_ends <= now or is_changed):
            self._site_ends = now + self._limits.site_lifetime
            # This bounds the requests to a server that announces one serial number here and another one there.
            self._site_may_change = now + self._limits.address_lifetime
            self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        try:
            async with asyncio.timeout(self._limits.timeout):
                if not await self._may_ask_again():
                    self._site_ends = self._site_may_change
                    return
                site = await self._read_site(self._service)
        except (HandleProtocolError, TimeoutError):
            # The server works without it. It is asked again when the site information is due.
            return
        finally:
            self._reading = None
        if site != self._site:
            self._report(site)
        self._site = site
        self._rebuild()

    def _rebuild(self) -> None:
        sites = tuple(self._to_site(site_value.pack_address(address)) for address in self._addresses)
        self._service = HandleService(sites, is_verified=False)

    def _to_site(self, address: bytes) -> site_value.ServiceSite:
        """The server at one address: the ports that it announced, then the one that the operator named."""
        named = tuple(
            site_value.Interface(site_value.Purpose.QUERY, protocol, self._named.port) for protocol in _TRANSPORTS
        )
        known, key = self._find_known(address)
        server = site_value.Server(1, address, key, self._find_interfaces(address) + named)
        # The operator named this server, so `auth` queries it too, whatever it says about its site.
        site = replace(_NO_SITE, serial=self._site.serial, attributes=self._site.attributes, servers=(server,))
        return replace(site, major=known.major, minor=known.minor)

    def _find_interfaces(self, address: bytes) -> tuple[site_value.Interface, ...]:
        servers = self._site.servers
        # Behind an address translator, the only server of a site announces an address that is not the one named here.
        here = servers if len(servers) == 1 else [server for server in servers if server.address == address]
        return tuple(interface for server in here for interface in server.interfaces)

    def _find_known(self, address: bytes) -> tuple[site_value.ServiceSite, bytes]:
        """The trusted site with a server at this address, and the key of the server."""
        servers = ((site, server) for site in self._named.known for server in site.servers)
        found = ((site, server.public_key) for site, server in servers if server.address == address)
        return next(found, (_NO_SITE, b""))


_LATE: Final = "The handle servers did not answer in time."
_CONTROL: Final = Question(CONTROL_NAME.text.encode())


class ProbedFinder(Finder, Protocol):
    """A Directory, a DirectServer or NamedSites."""

    async def probe(self, question: Question) -> Response | None:
        """Any server's answer to the question, which shows that servers can be reached. Raises HandleProtocolError."""


class NativeSource:
    """See Source. `total_timeout` is for a whole query with the lookups that lead to the server, in seconds."""

    def __init__(
        self,
        finder: ProbedFinder,
        exchange: ServiceClient,
        *,
        total_timeout: float,
        verification: Verification,
    ) -> None:
        self._finder = finder
        self._exchange = exchange
        self._total_timeout = total_timeout
        self._verification = verification

    async def fetch(self, query: UpstreamQuery) -> Answer:
        """The answer of the server that has the handle. Raises CouldNotVerify."""
        if query.leaves is not None:
            query.leaves()
        certified = needs_proof(query.certified, self._verification)
        question = Question(query.name.text.encode(), authoritative=query.authoritative, certified=certified)
        with translated_errors():
            response = await within(self._total_timeout, self._finder.resolve(question), _LATE)
            return read_response(response, is_verified=certified)

    async def probe(self) -> Answer:
        """Any answer shows that the server works, also one that it is not responsible. Raises CouldNotVerify."""
        with translated_errors():
            response = await within(self._total_timeout, self._finder.probe(_CONTROL), _LATE)
            if response is None or response.code == ResponseStatus.NOT_RESPONSIBLE:
                return Answer(ResponseCode.HANDLE_NOT_FOUND)
            return read_response(response, is_verified=False)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._finder.aclose()
        await self._exchange.aclose()
