"""Who pays for what a peer does: the accounts of its client, and of the networks that contain it.

Every limit that counts by client uses these accounts, so many networks of one customer cannot have many times a limit.
"""

from __future__ import annotations

from collections.abc import Hashable
from ipaddress import IPv4Address, IPv6Address
from typing import Final

#: Prefix lengths of the networks above a client, in bits, by the version of IP. A provider has a /32 of IPv6, and a
#: customer a /48, a /56 or a /64 (RFC 6177, section 2).
LEVELS: Final = {4: (20,), 6: (32, 48, 56, 64)}
#: The client of all peers that can forge their address, as a sender of UDP can. What they do is charged to no network.
FORGEABLE: Final = "udp"
#: The rate of a network, as a multiple of a client's rate. A /48 has 65,536 clients, a /32 those of a whole provider.
_WIDTHS: Final = {20: 8, 32: 64, 48: 8, 56: 4, 64: 1}
_FORGEABLE_WIDTH: Final = 64


def find_accounts(client: str | None) -> tuple[Hashable, ...]:
    """The accounts that a client is charged to: the networks of LEVELS that contain it, widest first, and the client.

    A client is a network in CIDR notation. Any other text, and None, is a client without networks above it.
    """
    text, _, length = (client or "").partition("/")
    try:
        address = IPv6Address(text) if ":" in text else IPv4Address(text)  # Much faster than ip_network.
        longest = int(length or address.max_prefixlen)
    except ValueError:
        return (client,)
    number, bits, version = int(address), address.max_prefixlen, address.version
    return (*((version, level, number >> (bits - level)) for level in LEVELS[version] if level < longest), client)


def find_width(account: Hashable) -> int:
    """The rate of an account, as a multiple of a client's rate."""
    if isinstance(account, tuple):
        return _WIDTHS[account[1]]
    return _FORGEABLE_WIDTH if account == FORGEABLE else 1
