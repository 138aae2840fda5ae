"""Which client a request comes from: the network of its address. A host with many addresses is one client."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from socket import AF_INET, AF_INET6, AddressFamily, inet_ntop, inet_pton
from typing import Final

#: The client of a request without a readable address, as over a Unix socket; all of them share it.
UNKNOWN_CLIENT: Final = "unknown"
#: The beginning of an IPv4 address in IPv6 (RFC 4291, section 2.5.5.2).
_MAPPED: Final = bytes(10) + b"\xff\xff"


@dataclass(frozen=True, slots=True)
class ClientNetworks:
    """The prefix lengths, in bits, that make addresses one client (RFC 4632, section 3.1; RFC 4291, section 2.3)."""

    #: A campus network.
    ipv4_prefix: int = 24
    #: A household has a /64.
    ipv6_prefix: int = 64

    def client_of(self, address: str) -> str:
        """The network of an address in CIDR notation; UNKNOWN_CLIENT where it cannot be read."""
        # No cache: it would keep whole addresses. This takes a fifth of the time of ipaddress.
        read = _read_bytes(address)
        if read is None:
            return UNKNOWN_CLIENT
        family, packed = read
        prefix = self.ipv4_prefix if family == AF_INET else self.ipv6_prefix
        free_bits = 8 * len(packed) - prefix
        network = int.from_bytes(packed) >> free_bits << free_bits
        return f"{inet_ntop(family, network.to_bytes(len(packed)))}/{prefix}"


def _read_bytes(address: str) -> tuple[AddressFamily, bytes] | None:
    """The same as `read_address`, as bytes."""
    try:
        return AF_INET, inet_pton(AF_INET, address)
    except (OSError, ValueError):
        pass
    try:
        packed = inet_pton(AF_INET6, address.partition("%")[0])
    except (OSError, ValueError):
        return None
    return (AF_INET, packed[12:]) if packed.startswith(_MAPPED) else (AF_INET6, packed)


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
