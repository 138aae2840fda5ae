"""The servers of a service: their health, the root that leads to them, and which one is queried at which interface."""

from __future__ import annotations

import asyncio
import hashlib
import zlib
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from itertools import zip_longest
from operator import itemgetter
from pathlib import PurePosixPath
from struct import error as StructError
from typing import Final, TypeVar
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile

from handle_protocol import errors, referral
from handle_protocol.errors import InvalidSite
from handle_protocol.referral import Lookups, within
from handle_protocol.wire import site_value
from handle_protocol.wire.message import VERSION, Response, Values
from handle_protocol.wire.site_value import TransportProtocol

Known = TypeVar("Known")


@dataclass(frozen=True, slots=True)
class HealthLimits:
    """The bounds of a ServerHealth. Times are in seconds."""

    #: The pause after the first failure of an interface. It doubles with each further failure in a row.
    first_pause: float = 5.0
    longest_pause: float = 600.0
    #: Mean seconds of a server's answers from which it counts as slow: UDP repeats a message after so long.
    slow_seconds: float = 0.5
    #: Interfaces, and servers, that are remembered. The one that was used least recently is forgotten.
    entries: int = 10_000


@dataclass(frozen=True, slots=True)
class _Interface:
    failures: int = 0
    rests_until: float = 0.0


class ServerHealth:
    """The health of interfaces and of servers, by keys that the caller chooses. The caller passes the time."""

    def __init__(self, limits: HealthLimits | None = None) -> None:
        self._limits = limits or HealthLimits()
        self._interfaces: OrderedDict[Hashable, _Interface] = OrderedDict()
        #: The mean seconds of the answers of servers.
        self._servers: OrderedDict[Hashable, float] = OrderedDict()

    def record_answer(self, interface: Hashable, server: Hashable, seconds: float) -> None:
        """A server answered at an interface after `seconds`."""
        self.record_recovery(interface)
        mean = self._servers.get(server, seconds)
        # Weight of the newest answer in the mean of a server's times.
        self._remember(self._servers, server, mean + 0.2 * (seconds - mean))

    def record_recovery(self, interface: Hashable) -> None:
        """Forget the failures of an interface."""
        if self._interfaces:
            self._interfaces.pop(interface, None)

    def record_failure(self, interface: Hashable, now: float) -> None:
        """An interface refused the connection, or stayed silent."""
        failures = self._interfaces.get(interface, _Interface()).failures + 1
        # The exponent is bounded: 2.0 ** 1024 overflows.
        pause = min(self._limits.first_pause * 2.0 ** min(failures - 1, 32), self._limits.longest_pause)
        self._remember(self._interfaces, interface, _Interface(failures, now + pause))

    def rests(self, interface: Hashable, now: float) -> bool:
        """Whether an interface failed and its pause is not over. It is still tried if all others rest."""
        if not self._interfaces:
            return False  # This is usual. The hash of an address takes longer than all the rest.
        known = self._interfaces.get(interface)
        return known is not None and now < known.rests_until

    def round_trip(self, server: Hashable) -> float:
        """The mean time of a server's answers; 0 for a new server, which is tried first."""
        return self._servers.get(server, 0.0)

    def is_slow(self, server: Hashable) -> bool:
        """Whether a server is slower than UDP waits, which would send each message several times."""
        return self.round_trip(server) > self._limits.slow_seconds

    def _remember(self, known: OrderedDict[Hashable, Known], key: Hashable, value: Known) -> None:
        known[key] = value
        known.move_to_end(key)
        if len(known) > self._limits.entries:
            known.popitem(last=False)


_LATE: Final = "The root of the handle system did not answer in time."


class RootKeeper:
    """Keeps the root in memory. A subclass keeps it across restarts. `service` are the sites known at the start."""

    def __init__(self, service: referral.HandleService) -> None:
        self.service = service

    async def keep(self, response: Response) -> None:
        """Keep the signed answer that replaced the root."""


class Root:
    """Queries the root, refreshes its sites, and leaves it alone after several failures."""

    def __init__(self, keeper: RootKeeper, lookups: Lookups) -> None:
        self._keeper = keeper
        self._service = keeper.service
        self._ask = lookups.ask
        self._limits = lookups.limits
        self._clock = lookups.clock
        self._observer = lookups.observer
        self._admit_query = lookups.admit_query
        self._breaker = lookups.breaker
        self._failed_at: float | None = None
        self._due_at = 0.0
        self._refresh: asyncio.Task[None] | None = None

    async def aclose(self) -> None:
        """Stop a refresh that is under way."""
        if self._refresh is not None:
            self._refresh.cancel()
            await asyncio.gather(self._refresh, return_exceptions=True)

    def has_failed(self, now: float) -> bool:
        """Whether the last query failed, a moment ago."""
        return self._failed_at is not None and now < self._failed_at + self._limits.shortest_lifetime

    async def query(self, question: referral.Question, *, is_needed: bool) -> Response:
        """The root's answer. If the sites are due, they are refreshed meanwhile. Raises HandleProtocolError.

        Without `is_needed`, names of known prefixes can be resolved without the root. Its failure then concerns the
        names of one prefix, and several prefixes do not wait for it in vain.
        """
        now = self._clock()
        if self._breaker is not None:
            if not is_needed and (seconds := self._breaker.retry_after(now)) > 0:
                raise errors.RootPaused(retry_after=seconds)
            self._breaker.allow(now)
        if self._due_at <= now:
            self._due_at = now + self._limits.shortest_lifetime
            self._refresh = asyncio.create_task(self._refresh_service())
        try:
            return await within(None if is_needed else self._limits.lookup_timeout, self._query(question), _LATE)
        except errors.ServerTimeout as error:
            self._record_failure(question)
            raise errors.ServerTimeout(_LATE) from error
        except errors.ServerUnreachable as error:
            self._record_failure(question)
            raise error if is_needed else errors.ServiceUnreachable(detail=error.detail) from error

    async def _query(self, question: referral.Question) -> Response:
        if question.certified and not self._service.is_verified:
            raise errors.SignatureInvalid("No chain of signatures: the bootstrap file has no key of the root.")
        response = await self._ask(self._service, question)
        if self._breaker is not None:
            self._breaker.record_answer()
        self._failed_at = None
        return response

    def _record_failure(self, question: referral.Question) -> None:
        self._failed_at = self._clock()
        if self._breaker is not None:
            self._breaker.record_failure(question.handle.decode("latin-1"), self._failed_at)

    async def _refresh_service(self) -> None:
        """Read the root's sites at the root. Only an answer that a key of the known root signed replaces them."""
        try:
            await self._admit_query()
            question = referral.Question(referral.ROOT_HANDLE, referral.SERVICE_TYPES, certified=True, is_lookup=True)
            response = await within(self._limits.timeout, self._query(question), _LATE)
            now = self._clock()
            lead = referral.read_lead(response.body.values, now) if isinstance(response.body, Values) else None
            if lead is None or not lead.sites:
                raise errors.ServiceNotFound(
                    detail=f"the record of the root has no sites, response code {response.code}"
                )
        except errors.HandleProtocolError as error:
            self._observer.record_refresh(error)
            return
        if lead.sites != self._service.sites:
            await self._keeper.keep(response)
        self._service = referral.HandleService(lead.sites, is_verified=True)
        self._due_at = now + self._limits.bound(lead.lifetime)
        self._observer.record_refresh(None)


#: The description of the site in the archive that a server's setup makes for its registrar. The first one counts.
_MEMBERS: Final = ("siteinfo.json", "siteinfo.bin")
_ERRORS: Final = (BadZipFile, EOFError, NotImplementedError, OSError, RuntimeError, StructError, ValueError, zlib.error)


def unpack_bundle(content: bytes, most: int) -> bytes:
    """The description of the site in a sitebndl.zip, of at most `most` bytes. Another file is returned as it is.

    Raises InvalidSite.
    """
    if not content.startswith(b"PK\x03\x04"):
        return content
    try:
        with ZipFile(BytesIO(content)) as archive:
            members = {PurePosixPath(member.filename).name: member for member in archive.infolist()}
            member = next((members[name] for name in _MEMBERS if name in members), None)
            if member is None:
                raise InvalidSite(f"the archive has no {' and no '.join(_MEMBERS)}")
            if member.flag_bits & 1 or member.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
                raise InvalidSite(f"{member.filename[:100]!r} is encrypted or compressed by an unusual method")
            with archive.open(member) as file:
                found = file.read(most + 1)
    except _ERRORS as error:
        raise InvalidSite(f"the archive cannot be read: {str(error)[:200]}") from error
    if len(found) > most:
        raise InvalidSite(f"{member.filename[:100]!r} in the archive has over {most} bytes")
    return found


#: By the processor time of a query, here and at the server: UDP takes the least at both.
_ORDER: Final = (TransportProtocol.UDP, TransportProtocol.TCP, TransportProtocol.HTTPS, TransportProtocol.HTTP)

#: The address at which a server is reached, inside a NAT another one. None for a server that may not be queried: anyone
#: who has a prefix can write any address into a site value.
AllowServer = Callable[[site_value.Address], site_value.Address | None]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One interface of one server. It is the key under which its health is recorded."""

    address: site_value.Address
    protocol: TransportProtocol
    port: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """An endpoint that a query can be sent to, with what the answer is checked against."""

    endpoint: Endpoint
    #: The data of an HS_PUBKEY value; empty if the server does not sign.
    public_key: bytes
    site_serial: int
    #: The host name for the HTTP tunnel, if the site has one.
    host: bytes | None
    #: The version of the protocol that the site speaks.
    version: tuple[int, int] = VERSION


def select_server(site: site_value.ServiceSite, handle: bytes) -> site_value.Server | None:
    """The server of a site that has the records of a handle. None if the site has no servers."""
    if not site.servers:
        return None
    return site.servers[_hash(handle, site.hash_option) % len(site.servers)]


def _hash(handle: bytes, option: int) -> int:
    prefix, slash, suffix = handle.partition(b"/")
    part = handle
    if option == site_value.HashOption.PREFIX:
        # The prefix of prefix records.
        part = prefix if slash else b"0.NA"
    elif option == site_value.HashOption.SUFFIX and slash:
        part = suffix
    # RFC 3651 takes all bytes of the digest. Its erratum and the servers take the last four. `upper` changes ASCII
    # letters alone, as the servers do.
    digest = hashlib.md5(part.upper(), usedforsecurity=False).digest()
    return abs(int.from_bytes(digest[-4:], "big", signed=True))


def rank_candidates(
    sites: Sequence[site_value.ServiceSite],
    handle: bytes,
    *,
    authoritative: bool,
    allow: AllowServer,
    health: ServerHealth,
    now: float,
) -> list[Candidate]:
    """The endpoints for a query about a handle, in the order in which they are tried.

    Servers that answer fast come first. Each next endpoint is at another server, and has another transport if it can:
    whether a server is down or a firewall drops a transport, the second attempt avoids it. Endpoints that failed a
    moment ago come last. `authoritative` leaves out sites that only copy.
    """
    servers: dict[site_value.Address, dict[Endpoint, Candidate]] = {}
    for site in sites:
        server = select_server(site, handle)
        if server is None or (authoritative and not site.is_primary):
            continue
        address = allow(server.ip)
        if address is None:
            continue
        host, version = site.attribute(b"domain") or None, (site.major, site.minor)
        for candidate in _list_interfaces(server, address, site.serial, host, version):
            servers.setdefault(address, {}).setdefault(candidate.endpoint, candidate)
    # Sorting is stable: equal servers keep the order of their sites.
    fastest_first = sorted(servers, key=lambda address: (health.rests(address, now), health.round_trip(address)))
    lists = [_order_interfaces(servers[address].values(), health, now) for address in fastest_first]
    return sorted(_alternate(lists), key=lambda candidate: health.rests(candidate.endpoint, now))


def _order_interfaces(candidates: Iterable[Candidate], health: ServerHealth, now: float) -> list[Candidate]:
    """The interfaces of one server: those that rest last, and UDP behind the others if the server is slow."""
    earlier: Counter[TransportProtocol] = Counter()
    ranked: list[tuple[tuple[bool, int, bool, int], Candidate]] = []
    for candidate in candidates:
        endpoint = candidate.endpoint
        is_late = endpoint.protocol is TransportProtocol.UDP and health.is_slow(endpoint.address)
        # A second port of a transport comes after the other transports: a firewall that drops one drops both.
        place = health.rests(endpoint, now), earlier[endpoint.protocol], is_late, _ORDER.index(endpoint.protocol)
        ranked.append((place, candidate))
        earlier[endpoint.protocol] += 1
    return [candidate for _, candidate in sorted(ranked, key=itemgetter(0))]


def _alternate(lists: Sequence[list[Candidate]]) -> list[Candidate]:
    """One candidate of each server in turn. The second server begins with its second transport, and so on."""
    turns = zip_longest(*(_rotate(items, number) for number, items in enumerate(lists)))
    return [candidate for turn in turns for candidate in turn if candidate is not None]


def _rotate(items: list[Candidate], places: int) -> list[Candidate]:
    start = places % len(items)
    return items[start:] + items[:start]


# Without the cache, this takes a quarter of the processor time of a query. An entry takes about 2 kB; that of a
# hostile server has a key as long as a site value can be, 64 KiB.
@lru_cache(maxsize=256)
def _list_interfaces(
    server: site_value.Server, address: site_value.Address, serial: int, host: bytes | None, version: tuple[int, int]
) -> tuple[Candidate, ...]:
    """The interfaces of a server that queries can be sent to, at this address."""
    key = server.public_key
    return tuple(
        Candidate(
            Endpoint(address, TransportProtocol(interface.protocol), interface.port),
            key,
            serial,
            host,
            version,
        )
        for interface in server.interfaces
        if _is_usable(interface)
    )


def _is_usable(interface: site_value.Interface) -> bool:
    is_known = interface.protocol in TransportProtocol.__members__.values()
    return is_known and bool(interface.purpose & site_value.Purpose.QUERY) and 0 < interface.port <= 65_535
