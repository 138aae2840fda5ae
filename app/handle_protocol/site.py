"""Which server of a service is queried about a handle, and at which of its interfaces."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest
from operator import itemgetter
from typing import Final, Protocol

from handle_protocol.health import ServerHealth
from handle_protocol.wire import site_value
from handle_protocol.wire.message import VERSION

_HASH_BYTES: Final = 4
_MAX_PORT: Final = 65_535
#: Servers whose interfaces are kept ready for queries. One takes about 2 kB; a hostile one has a key as long as a site
#: value can be, 64 KiB.
_CACHED_SERVERS: Final = 256
#: The prefix of prefix records.
_ROOT_PREFIX: Final = b"0.NA"
# Measured against the reference server: a kept tunnel answers 14,000 queries a second, UDP 7,000 to 10,000, and TCP
# 5,000, because TCP needs a connection for each query. The tunnel pays for its connection with a few queries.
_BUSY: Final = (
    site_value.TransportProtocol.HTTPS,
    site_value.TransportProtocol.HTTP,
    site_value.TransportProtocol.UDP,
    site_value.TransportProtocol.TCP,
)
_RARE: Final = (
    site_value.TransportProtocol.UDP,
    site_value.TransportProtocol.TCP,
    site_value.TransportProtocol.HTTPS,
    site_value.TransportProtocol.HTTP,
)
_SLOW: Final = (
    site_value.TransportProtocol.TCP,
    site_value.TransportProtocol.HTTPS,
    site_value.TransportProtocol.HTTP,
    site_value.TransportProtocol.UDP,
)


class AllowedServers(Protocol):
    """Which servers may be queried: anyone who has a prefix can write any address into a site value."""

    def find(self, address: site_value.Address) -> site_value.Address | None:
        """The address at which the server of a site is reached, inside a NAT another one. None if it is not allowed."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One interface of one server. It is the key under which its health is recorded."""

    address: site_value.Address
    protocol: site_value.TransportProtocol
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
        part = prefix if slash else _ROOT_PREFIX
    elif option == site_value.HashOption.SUFFIX and slash:
        part = suffix
    # RFC 3651 takes all bytes of the digest. Its erratum and the servers take the last four. `upper` changes ASCII
    # letters alone, as the servers do.
    digest = hashlib.md5(part.upper(), usedforsecurity=False).digest()
    return abs(int.from_bytes(digest[-_HASH_BYTES:], "big", signed=True))


def rank_candidates(
    sites: Sequence[site_value.ServiceSite],
    handle: bytes,
    *,
    authoritative: bool,
    allowed: AllowedServers,
    health: ServerHealth,
    now: float,
) -> list[Candidate]:
    """The endpoints for a query about a handle, in the order in which they are tried.

    Servers that answer fast come first. Each next endpoint is at another server, and has another transport if it can:
    whether a server is down or a firewall drops a transport, the second attempt avoids it. Endpoints that failed a
    moment ago come last. `authoritative` leaves out sites that only copy.
    `allowed` says which servers are queried, and at which address.
    """
    servers: dict[site_value.Address, dict[Endpoint, Candidate]] = {}
    for site in sites:
        server = select_server(site, handle)
        if server is None or (authoritative and not site.is_primary):
            continue
        address = allowed.find(server.ip)
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
    """The interfaces of one server: the transport that suits its load first, and those that rest last."""

    earlier: Counter[site_value.TransportProtocol] = Counter()
    ranked: list[tuple[tuple[bool, int, int], Candidate]] = []
    order = _RARE
    for candidate in candidates:
        endpoint = candidate.endpoint
        if not ranked and health.is_busy(endpoint.address, now):
            order = _BUSY
        elif not ranked and health.is_slow(endpoint.address):
            order = _SLOW
        # A second port of a transport comes after the other transports: a firewall that drops one drops both.
        place = health.rests(endpoint, now), earlier[endpoint.protocol], order.index(endpoint.protocol)
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


# Without the cache, this takes a quarter of the processor time of a query.
@lru_cache(maxsize=_CACHED_SERVERS)
def _list_interfaces(
    server: site_value.Server, address: site_value.Address, serial: int, host: bytes | None, version: tuple[int, int]
) -> tuple[Candidate, ...]:
    """The interfaces of a server that queries can be sent to, at this address."""
    key = server.public_key
    return tuple(
        Candidate(
            Endpoint(address, site_value.TransportProtocol(interface.protocol), interface.port),
            key,
            serial,
            host,
            version,
        )
        for interface in server.interfaces
        if _is_usable(interface)
    )


def _is_usable(interface: site_value.Interface) -> bool:
    is_known = interface.protocol in site_value.TransportProtocol.__members__.values()
    return is_known and bool(interface.purpose & site_value.Purpose.QUERY) and 0 < interface.port <= _MAX_PORT
