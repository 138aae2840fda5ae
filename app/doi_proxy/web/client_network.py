"""Which client a request comes from: the network of its address. A host with many addresses is one client."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address
from socket import AF_INET, AF_INET6, inet_ntop, inet_pton
from typing import Final

#: The client of a request without a readable address, as over a Unix socket; all of them share it.
UNKNOWN_CLIENT: Final = "unknown"
#: The lengths in bits of the prefixes that make addresses one client (RFC 4632, section 3.1; RFC 4291, section 2.3): a
#: campus network, and a household, which has a /64.
IPV4_PREFIX: Final = 24
IPV6_PREFIX: Final = 64
#: The beginning of an IPv4 address in IPv6 (RFC 4291, section 2.5.5.2).
_MAPPED: Final = bytes(10) + b"\xff\xff"
_IPV4_BYTES: Final = 4


def client_of(address: str, ipv6_prefix: int = IPV6_PREFIX) -> str:
    """The network of an address in CIDR notation; UNKNOWN_CLIENT where it cannot be read."""
    # No cache: it would keep whole addresses. This takes a fifth of the time of ipaddress.
    packed = _read_bytes(address)
    if packed is None:
        return UNKNOWN_CLIENT
    family, prefix = (AF_INET, IPV4_PREFIX) if len(packed) == _IPV4_BYTES else (AF_INET6, ipv6_prefix)
    free_bits = 8 * len(packed) - prefix
    network = int.from_bytes(packed) >> free_bits << free_bits
    return f"{inet_ntop(family, network.to_bytes(len(packed)))}/{prefix}"


def read_address(address: str) -> IPv4Address | IPv6Address | None:
    """The address of a client as a socket or a proxy shows it; None where it cannot be read."""
    packed = _read_bytes(address)
    return None if packed is None else ip_address(packed)


def _read_bytes(address: str) -> bytes | None:
    """The 4 or 16 bytes of an address."""
    # A zone identifier names an interface of this host, not the client (RFC 4007, section 11).
    text, _, _ = address.partition("%")
    try:
        return inet_pton(AF_INET, text)
    except (OSError, ValueError):
        pass
    try:
        packed = inet_pton(AF_INET6, text)
    except (OSError, ValueError):
        return None
    # A dual-stack socket shows IPv4 clients so (RFC 4291, section 2.5.5.2).
    return packed.removeprefix(_MAPPED)
