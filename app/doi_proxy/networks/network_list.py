"""Reads lists of networks: one network a line in CIDR notation (RFC 4632, RFC 4291). `#` begins a comment."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPV4LENGTH, IPV6LENGTH, IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Final

from doi_proxy.errors import ConfigurationError
from doi_proxy.system.files import read_regular
from doi_proxy.web.client_network import read_address

#: Networks in one list.
MAX_NETWORKS: Final = 100_000
#: The largest list. A line of a network takes less than 50 bytes.
_MAX_BYTES: Final = 16 * 1024 * 1024


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


def read_network_file(path: Path) -> str:
    """Read the text of a file of networks. Raises ConfigurationError with the file."""
    try:
        return read_regular(path, _MAX_BYTES).decode("utf-8-sig")
    except OSError as error:
        raise ConfigurationError(f"{path}: the list of networks cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: the list of networks cannot be read: {error}") from error


def parse_allowed(text: str, path: Path) -> NetworkList:
    """The networks in the text of a file. Raises ConfigurationError with the file and the line."""
    networks: list[IPv4Network | IPv6Network] = []
    for number, line in enumerate(text.split("\n"), 1):
        text = line.partition("#")[0].strip()
        if text:
            networks.append(_read_network(text, path, number))
        if len(networks) > MAX_NETWORKS:
            raise ConfigurationError(f"{path}: more than {MAX_NETWORKS} networks; merge them into larger ones")
    return NetworkList(networks)


def _read_network(text: str, path: Path, number: int) -> IPv4Network | IPv6Network:
    try:
        return ip_network(text)
    except ValueError as error:
        raise ConfigurationError(
            f"{path}:{number}: {text[:80]!r} is not a network such as 192.0.2.0/24 or 2001:db8::/32 ({error})"
        ) from error


def parse_denied(text: str, path: Path) -> NetworkList:
    """The denied networks in a text, as `parse_allowed` reads them. A list that denies every client is refused too."""
    denied = parse_allowed(text, path)
    if denied.has_everyone:
        raise ConfigurationError(f"{path}: it denies every client; name smaller networks, or stop the service instead")
    return denied
