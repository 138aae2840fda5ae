"""Which client a request comes from: the network of its address. A host with many addresses is one client."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

#: The client of a request without a readable address, as over a Unix socket; all of them share it.
UNKNOWN_CLIENT: Final = "unknown"


@dataclass(frozen=True, slots=True)
class ClientNetworks:
    """The prefix lengths, in bits, that make addresses one client (RFC 4632, section 3.1; RFC 4291, section 2.3)."""

    #: A campus network.
    ipv4_prefix: int = 24
    #: A household has a /64.
    ipv6_prefix: int = 64

    def client_of(self, address: str) -> str:
        """The network of an address in CIDR notation; UNKNOWN_CLIENT where it cannot be read."""
        return _network(address, self.ipv4_prefix, self.ipv6_prefix)


def read_address(address: str) -> IPv4Address | IPv6Address | None:
    """The address of a client as a socket or a proxy shows it; None where it cannot be read."""
    try:
        # A zone identifier names an interface of this host, not the client (RFC 4007, section 11).
        read = ip_address(address.partition("%")[0])
    except ValueError:
        return None
    if isinstance(read, IPv6Address) and read.ipv4_mapped is not None:
        # A dual-stack socket shows IPv4 clients so (RFC 4291, section 2.5.5.2).
        return read.ipv4_mapped
    return read


@lru_cache(maxsize=4096)
def _network(address: str, ipv4_prefix: int, ipv6_prefix: int) -> str:
    read = read_address(address)
    if read is None:
        return UNKNOWN_CLIENT
    return str(ip_network((read, ipv4_prefix if read.version == 4 else ipv6_prefix), strict=False))
