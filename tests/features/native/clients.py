"""The client of handle servers for tests. It waits long, so a busy machine causes no further query."""

from __future__ import annotations

import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final

from doi_names.name import HandleName
from doi_proxy.features.native.direct import DirectLimits, DirectServer, NamedServer, NativeSource, ProbedFinder
from doi_proxy.features.native.opening import find_proxy_url
from doi_proxy.features.native.root_file import DirectoryLog, RootFile
from doi_proxy.networks import AllowedAddresses
from doi_proxy.upstream.guard import Breaker
from doi_proxy.upstream.source import UpstreamQuery, Verification
from handle_protocol.directory import Directory
from handle_protocol.errors import HandleProtocolError, QueryNotAdmitted
from handle_protocol.exchange import Clocks, Purpose, QueryLimits, ServiceClient
from handle_protocol.referral import DirectoryLimits, HandleService, Lookups
from handle_protocol.site import Candidate, Endpoint, HealthLimits, ServerHealth
from handle_protocol.transport.stream import TcpTransport, Transport
from handle_protocol.transport.tunnel import TunnelTransport
from handle_protocol.transport.udp import UdpTransport
from handle_protocol.wire.site_value import ServiceSite, TransportProtocol
from tests.handle_protocol.server import HandleServer

MAX_BYTES: Final = 1024 * 1024
#: Seconds that no answer takes. Only a test about silence has shorter waits: to another test, each would be a race.
LONG: Final = 60.0
UDP, TCP, HTTP = TransportProtocol.UDP, TransportProtocol.TCP, TransportProtocol.HTTP
HTTPS = TransportProtocol.HTTPS
PROTOCOLS: Final = (UDP, TCP, HTTP)
LIMITS: Final = DirectoryLimits(
    queries=20,
    services=100,
    shortest_lifetime=60.0,
    longest_lifetime=3600.0,
    grace=86_400.0,
    lookup_timeout=LONG,
    timeout=60.0,
)
HEALTH: Final = HealthLimits(first_pause=60.0, longest_pause=600.0, entries=100)


def _now() -> float:
    """The time of the loop of the test, in virtual time too."""
    return time.monotonic()


def _epoch() -> float:
    return time.time()


class Exchanges:
    """The exchanges that an observer saw, in order."""

    def __init__(self) -> None:
        #: The exchanges about names.
        self.seen: list[tuple[str, bool]] = []
        self.purposes: Counter[str] = Counter()
        self.rests: list[str] = []

    def record_exchange(self, transport: str, purpose: Purpose, *, is_answered: bool) -> None:
        """See ExchangeObserver."""
        self.purposes[purpose] += 1
        if purpose == "name":
            self.seen.append((transport, is_answered))

    def record_rest(self, transport: str) -> None:
        """See ExchangeObserver."""
        self.rests.append(transport)


class Reports(DirectoryLog):
    """What a directory reported."""

    def __init__(self) -> None:
        super().__init__(time.monotonic)
        self.refreshes: list[HandleProtocolError | None] = []
        self.overdue: list[HandleProtocolError] = []

    def record_refresh(self, error: HandleProtocolError | None) -> None:
        """See DirectoryLog."""
        self.refreshes.append(error)

    def record_overdue(self, error: HandleProtocolError) -> None:
        """See DirectoryLog."""
        self.overdue.append(error)


def breaker() -> Breaker:
    """The breaker of a root."""
    return Breaker(failures=3, cooldown=60.0)


class Tokens:
    """The budget: how many further messages are allowed."""

    def __init__(self, left: int = 1_000) -> None:
        self.left = left

    async def __call__(self) -> bool:
        """Take a token."""
        self.left -= 1
        return self.left >= 0

    async def spend(self) -> None:
        """Take a token. Raises QueryNotAdmitted."""
        if not await self():
            raise QueryNotAdmitted


def open_transports(
    protocols: Sequence[TransportProtocol],
    max_bytes: int = MAX_BYTES,
    tokens: Tokens | None = None,
    connect_timeout: float = LONG,
    udp_wait: float = LONG,
) -> dict[Any, Transport]:
    """The transports of a client."""
    tunnel = TunnelTransport(
        may_ask_again=tokens or Tokens(),
        connect_timeout=connect_timeout,
        max_bytes=max_bytes,
        headers={},
        find_proxy_url=find_proxy_url,
        trust_proxy=ssl.create_default_context,
    )
    every: dict[Any, Transport] = {
        UDP: UdpTransport(first_wait=udp_wait, tries=3, max_bytes=max_bytes),
        TCP: TcpTransport(connect_timeout=connect_timeout, max_bytes=max_bytes),
        HTTP: tunnel,
        HTTPS: tunnel,
    }
    return {protocol: every[protocol] for protocol in protocols}


def open_exchange(
    protocols: Sequence[TransportProtocol] = PROTOCOLS,
    *,
    tokens: Tokens | None = None,
    observer: Exchanges | None = None,
    head_start: float = LONG,
    udp_wait: float = LONG,
    health: HealthLimits = HEALTH,
    private_servers: bool = True,
    monotonic: Callable[[], float] = _now,
) -> ServiceClient:
    """An exchange with all or some transports."""
    return ServiceClient(
        open_transports(protocols, tokens=tokens, udp_wait=udp_wait),
        ServerHealth(health),
        QueryLimits(AllowedAddresses(private_servers).find, head_start),
        clocks=Clocks(_epoch, monotonic),
        may_ask_again=tokens or Tokens(),
        observer=observer,
    )


def direct_server(
    server: HandleServer,
    exchange: ServiceClient,
    *,
    host: str = "",
    port: int = 0,
    known: Sequence[ServiceSite] = (),
    tokens: Tokens | None = None,
    clock: Callable[[], float] = _now,
    report: Callable[[ServiceSite], None] = lambda site: None,
) -> DirectServer:
    """A finder of one server."""
    return DirectServer(
        NamedServer(
            host or server.host,
            port or server.port,
            DirectLimits(address_lifetime=60.0, site_lifetime=3600.0, timeout=LONG),
            known,
        ),
        exchange,
        exchange.read_site,
        clock=clock,
        may_ask_again=tokens or Tokens(),
        report=report,
    )


@asynccontextmanager
async def client_of(
    server: HandleServer,
    *,
    known: Sequence[ServiceSite] | None = None,
    from_root: bool = False,
    verification: Verification = "when-asked",
    total_timeout: float = LONG,
    clock: Callable[[], float] = _epoch,
    lookup_timeout: float = LONG,
    direct: dict[str, Any] | None = None,
    **options: Any,
) -> AsyncIterator[NativeSource]:
    """A source that queries one server, or with `from_root`, the services that this server, as the root, leads to."""
    exchange = open_exchange(**options)
    sites = (server.site(),) if known is None else tuple(known)
    finder: ProbedFinder = direct_server(server, exchange, known=sites, **(direct or {}))
    if from_root:
        root = RootFile(None, HandleService(sites, is_verified=True))
        limits = replace(LIMITS, lookup_timeout=lookup_timeout)
        finder = Directory(
            root, Lookups(exchange, Tokens().spend, limits, clock, Reports(), breaker(), verification == "lookups")
        )
    source = NativeSource(finder, exchange, total_timeout=total_timeout, verification=verification)
    try:
        yield source
    finally:
        await source.aclose()


def query(name: str, **options: Any) -> UpstreamQuery:
    """A query about a name."""
    return UpstreamQuery(HandleName(name), **options)


def candidate(server: HandleServer, protocol: TransportProtocol) -> Candidate:
    """An interface of a server."""
    return Candidate(Endpoint(server.site().servers[0].ip, protocol, server.port), b"", 1, None)
