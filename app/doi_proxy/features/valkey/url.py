"""The URL of a Valkey or Redis store: one server, a Unix socket, a cluster, or a primary that Sentinel names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

from redis.asyncio.connection import parse_url


class StoreKind(Enum):
    """What a store URL names. The value is the second part of the scheme."""

    SERVER = ""
    SOCKET = "unix"
    CLUSTER = "cluster"
    SENTINEL = "sentinel"


@dataclass(frozen=True, slots=True)
class Address:
    """Host and port of a server, or the path of a socket with the port 0."""

    host: str
    port: int

    def __str__(self) -> str:
        """As it is written in a URL."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}" if self.port else self.host


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """The parts of a store URL.

    `addresses` has one server, or the servers that know the primaries: nodes of a cluster, or Sentinels. `options` are
    the arguments of a connection to a server with records, `seed_options` those of a connection to one of `addresses`.
    Neither contains the address. `service` is the name of the primary at its Sentinels.
    """

    kind: StoreKind
    addresses: tuple[Address, ...]
    options: Mapping[str, Any]
    seed_options: Mapping[str, Any]
    service: str = ""


#: The first part of a scheme, and the scheme of the library with the same meaning.
_SPELLINGS: Final = {"redis": "redis", "valkey": "redis", "rediss": "rediss", "valkeys": "rediss"}
_TLS: Final = "rediss"
_PORT: Final = 6379
_SENTINEL_PORT: Final = 26379
#: Options of a server with records that Sentinels do not have.
_OF_RECORDS: Final = frozenset({"db", "username", "password"})


def parse_store_url(url: str) -> StoreUrl:
    """Read a URL whose scheme is an opener's. Raises ValueError, without the password in its message."""
    parts = urlsplit(url)
    first, _, kind = parts.scheme.partition("+")
    return _READERS[StoreKind(kind)](_SPELLINGS[first], parts)


def _read_socket(_: str, parts: SplitResult) -> StoreUrl:
    options = _read_options("unix", parts, parts.path)
    path = options.pop("path", "")
    if parts.netloc.rpartition("@")[2] or not path.startswith("/") or path.endswith("/"):
        raise ValueError("it needs three slashes and the path of a socket, as in valkey+unix:///run/valkey/valkey.sock")
    return StoreUrl(StoreKind.SOCKET, (Address(path, 0),), options, options)


def _read_server(scheme: str, parts: SplitResult) -> StoreUrl:
    if parts.path.strip("/") and not parts.path.strip("/").isdigit():
        raise ValueError("its path is not a database number")
    address = _read_address(parts.netloc.rpartition("@")[2], _PORT)
    options = _read_options(scheme, parts, parts.path)
    return StoreUrl(StoreKind.SERVER, (address,), options, options)


def _read_cluster(scheme: str, parts: SplitResult) -> StoreUrl:
    if parts.path.strip("/") not in ("", "0"):
        raise ValueError("a cluster has the database 0 alone")
    options = _read_options(scheme, parts, "")
    if options.pop("db", 0):
        raise ValueError("a cluster has the database 0 alone")
    return StoreUrl(StoreKind.CLUSTER, _read_addresses(parts, _PORT), options, options)


def _read_sentinel(scheme: str, parts: SplitResult) -> StoreUrl:
    service, _, database = parts.path.strip("/").partition("/")
    if not service or not (database.isdigit() or not database):
        raise ValueError("it needs the name of the primary, as in valkey+sentinel://host1,host2/NAME")
    options = _read_options(scheme, parts, f"/{database}")
    seed_options = {name: value for name, value in options.items() if name not in _OF_RECORDS}
    for name in ("username", "password"):
        if f"sentinel_{name}" in options:
            seed_options[name] = seed_options.pop(f"sentinel_{name}")
            del options[f"sentinel_{name}"]
    return StoreUrl(StoreKind.SENTINEL, _read_addresses(parts, _SENTINEL_PORT), options, seed_options, unquote(service))


def _read_addresses(parts: SplitResult, default_port: int) -> tuple[Address, ...]:
    hosts = parts.netloc.rpartition("@")[2].split(",")
    return tuple(dict.fromkeys(_read_address(host, default_port) for host in hosts))


def _read_address(text: str, default_port: int) -> Address:
    parts = urlsplit(f"//{text}")
    if not parts.hostname or parts.port == 0:
        raise ValueError("it has no host, or port 0")
    return Address(parts.hostname, parts.port or default_port)


def _read_options(scheme: str, parts: SplitResult, path: str) -> dict[str, Any]:
    userinfo = parts.netloc.rpartition("@")[0]
    at = "@" if userinfo else ""
    return dict(parse_url(f"{scheme}://{userinfo}{at}{path}?{parts.query}"))


_READERS: Final = {
    StoreKind.SERVER: _read_server,
    StoreKind.SOCKET: _read_socket,
    StoreKind.CLUSTER: _read_cluster,
    StoreKind.SENTINEL: _read_sentinel,
}
