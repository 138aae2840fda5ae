"""Lists of networks: those of clients, one a line in a file, and the addresses that handle servers may have.

Any registrant can write any address into a site value. SPECIAL has the blocks of the IANA IPv4 and IPv6
Special-Purpose Address Registries (RFC 6890), and others that no public server has. Of ::ffff:0:0/96 and
64:ff9b::/96, the IPv4 address inside counts. The list of the standard library depends on the version of Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import IPV4LENGTH, IPV6LENGTH, IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from doi_proxy.errors import ConfigurationError
from doi_proxy.system.toml_text import FileProblem
from doi_proxy.web.request_path import read_address

#: The networks that have every client.
EVERYONE: Final = frozenset({IPv4Network("0.0.0.0/0"), IPv6Network("::/0")})


class NetworkList:
    """A set of networks. A search takes one step for each prefix length in the set, however many networks it has."""

    def __init__(self, networks: Iterable[IPv4Network | IPv6Network] = ()) -> None:
        self._networks: dict[tuple[int, int], set[int]] = {}
        for network in networks:
            # The bits of an address that its network does not fix.
            free_bits = network.max_prefixlen - network.prefixlen
            first = int(network.network_address) >> free_bits
            self._networks.setdefault((network.version, free_bits), set()).add(first)

    def __bool__(self) -> bool:
        """Whether there is a network in it."""
        return bool(self._networks)

    @property
    def has_everyone(self) -> bool:
        """Whether one of the networks has all addresses of IPv4, or all of IPv6."""
        return (4, IPV4LENGTH) in self._networks or (6, IPV6LENGTH) in self._networks

    def __contains__(self, address: str) -> bool:
        """Whether one of the networks contains the address. Text that is not an address is in none."""
        if not self._networks:
            return False
        parsed = read_address(address)
        if parsed is None:
            return False
        number = int(parsed)
        return any(
            version == parsed.version and number >> free_bits in networks
            for (version, free_bits), networks in self._networks.items()
        )


def parse_networks(texts: Mapping[str, str]) -> tuple[NetworkList, list[FileProblem]]:
    """The networks in the text of each file, one a line, and a problem for each line that is not a network."""
    networks, problems = list[IPv4Network | IPv6Network](), list[FileProblem]()
    for file, text in texts.items():
        for number, line in enumerate(text.split("\n"), 1):
            entry = line.partition("#")[0].strip()
            try:
                networks += [ip_network(entry)] if entry else []
            except ValueError as error:
                message = f"{entry[:80]!r} is not a network such as 192.0.2.0/24 or 2001:db8::/32 ({error})"
                problems.append(FileProblem(file, number, 1, message))
            if len(networks) > 100_000:
                problems.append(FileProblem(file, 0, 0, "more than 100000 networks; merge them into larger ones"))
            if len(networks) > 100_000 or len(problems) >= 100:
                break
    return NetworkList(networks), problems


def parse_denied(texts: Mapping[str, str]) -> tuple[NetworkList, list[FileProblem]]:
    """The denied networks, as `parse_networks` reads them. A list that denies every client is refused too."""
    denied, problems = parse_networks(texts)
    if denied.has_everyone:
        advice = "it denies every client; name smaller networks, or stop the service instead"
        problems.append(FileProblem(next(iter(texts)), 0, 0, advice))
    return denied, problems


Address = IPv4Address | IPv6Address

#: The name of each block in its registry, and its source.
SPECIAL: Final = {
    # iana.org/assignments/iana-ipv4-special-registry
    "0.0.0.0/8": "This network (RFC 791)",
    "10.0.0.0/8": "Private-Use (RFC 1918)",
    "100.64.0.0/10": "Shared Address Space (RFC 6598)",
    "127.0.0.0/8": "Loopback (RFC 1122)",
    "169.254.0.0/16": "Link Local (RFC 3927)",
    "172.16.0.0/12": "Private-Use (RFC 1918)",
    "192.0.0.0/24": "IETF Protocol Assignments, with DS-Lite, PCP, TURN and NAT64 discovery (RFC 6890)",
    "192.0.2.0/24": "Documentation, TEST-NET-1 (RFC 5737)",
    "192.31.196.0/24": "AS112-v4 (RFC 7535)",
    "192.52.193.0/24": "AMT (RFC 7450)",
    "192.88.99.0/24": "Deprecated 6to4 Relay Anycast (RFC 7526)",
    "192.168.0.0/16": "Private-Use (RFC 1918)",
    "192.175.48.0/24": "Direct Delegation AS112 Service (RFC 7534)",
    "198.18.0.0/15": "Benchmarking (RFC 2544)",
    "198.51.100.0/24": "Documentation, TEST-NET-2 (RFC 5737)",
    "203.0.113.0/24": "Documentation, TEST-NET-3 (RFC 5737)",
    "224.0.0.0/4": "Multicast (RFC 5771)",
    "240.0.0.0/4": "Reserved, with Limited Broadcast (RFC 1112, RFC 8190)",
    # iana.org/assignments/iana-ipv6-special-registry
    "::/128": "Unspecified Address (RFC 4291)",
    "::1/128": "Loopback Address (RFC 4291)",
    "64:ff9b:1::/48": "IPv4-IPv6 Translation for local use (RFC 8215)",
    "100::/64": "Discard-Only Address Block (RFC 6666)",
    "100:0:0:1::/64": "Dummy IPv6 Prefix (RFC 9780)",
    "2001::/23": "IETF Protocol Assignments, with Teredo, Benchmarking, AMT, ORCHID and DRIP (RFC 2928)",
    "2001:db8::/32": "Documentation (RFC 3849)",
    "2002::/16": "6to4 (RFC 3056)",
    "2620:4f:8000::/48": "Direct Delegation AS112 Service (RFC 7534)",
    "3fff::/20": "Documentation (RFC 9637)",
    "5f00::/16": "Segment Routing SIDs (RFC 9602)",
    "fc00::/7": "Unique-Local (RFC 4193)",
    "fe80::/10": "Link-Local Unicast (RFC 4291)",
    # In no special registry
    "::/96": "IPv4-Compatible Address, deprecated (RFC 4291, section 2.5.5.1)",
    "::ffff:0:0:0/96": "IPv4-translated address of SIIT (RFC 2765, section 2.1)",
    "3ffe::/16": "6bone, ended (RFC 3701)",
    "fec0::/10": "Site-Local Unicast, deprecated (RFC 3879)",
    "ff00::/8": "Multicast (RFC 4291)",
    # iana.org/assignments/ipv6-address-space: only 2000::/3 is Global Unicast
    "::/3": "Reserved by IETF",
    "4000::/2": "Reserved by IETF",
    "8000::/1": "Reserved by IETF",
}
#: A gateway turns its addresses into IPv4 addresses (RFC 6052, section 2.1).
_NAT64: Final = IPv6Network("64:ff9b::/96")
_32_BITS: Final = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True)
class AllowedAddresses:
    """Which servers are queried: those at `private` addresses too, if it is set."""

    private: bool
    #: Of servers behind a NAT, the address inside by the one outside, which site values have. The operator names them,
    #: so they can be private.
    inside: Mapping[Address, Address] = field(default_factory=dict)

    def __contains__(self, address: Address) -> bool:
        """Whether a server at this address is queried."""
        return self.private or is_public(address)

    def find(self, address: Address) -> Address | None:
        """The address at which a server of this address is queried. None if it is not queried."""
        return self.inside.get(address) or (address if address in self else None)


def read_inside(url: str) -> dict[Address, Address]:
    """The addresses inside a NAT by those outside, after the "?" of an upstream's URL. Raises ConfigurationError."""
    _, has_pairs, pairs = url.partition("?")
    inside: dict[Address, Address] = {}
    for pair in pairs.split("&") if has_pairs else ():
        first, _, second = pair.partition("=")
        try:
            inside[ip_address(first)] = ip_address(second)
        except ValueError as error:
            raise ConfigurationError(
                f"{url[:200]}: {pair[:100]!r} is not a pair of addresses; write OUTSIDE=INSIDE, such as "
                "203.0.113.7=10.0.0.7; see docs/native.md"
            ) from error
    return inside


# Addresses whose answer is remembered. One takes about 10 us.
@lru_cache(maxsize=1_024)
def is_public(address: Address) -> bool:
    """Whether a public server can have an address, also the IPv4 address inside an IPv6 address."""
    inside = _find_inside(address)
    if inside is not None:
        return is_public(inside)
    # The interface identifiers of ISATAP before their IPv4 address (RFC 5214, section 6.1).
    is_isatap = address.version == 6 and int(address) >> 32 & _32_BITS in (0x0000_5EFE, 0x0200_5EFE)
    return not is_isatap and str(address) not in _special_networks()


def _find_inside(address: Address) -> IPv4Address | None:
    """The IPv4 address to which packets for an IPv6 address go. None if there is none."""
    if isinstance(address, IPv4Address):
        return None
    return IPv4Address(int(address) & _32_BITS) if address in _NAT64 else address.ipv4_mapped


@lru_cache(maxsize=1)
def _special_networks() -> NetworkList:
    return NetworkList(map(ip_network, SPECIAL))
