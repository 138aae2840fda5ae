"""From a store URL to redis-py's client: of a server, of the primary that Sentinels name, or of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from redis._parsers import _AsyncRESP2Parser
from redis.asyncio import ConnectionPool, Redis, RedisCluster, Sentinel, SentinelConnectionPool, SSLConnection
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import AbstractConnection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import InvalidResponse

_MAX_BYTES: Final = 16 * 1024 * 1024
_TEXT: Final = b"$"


class LimitedParser(_AsyncRESP2Parser):
    """Refuses a reply by the lengths that it announces, before it is read.

    hiredis makes room for all elements at once: `*2000000000` took 6 s of processor time in one turn of the event loop.
    A look-up takes 191 us with this parser, and 184 us with hiredis.
    """

    async def read_response(self, disable_decoding: bool = False) -> Any:
        """See the base class. Raises InvalidResponse."""
        # Elements of all arrays of one reply, and bytes of all its texts.
        self._elements_left, self._bytes_left = 100_000, _MAX_BYTES
        return await super().read_response(disable_decoding)

    async def _readline(self) -> bytes:
        line: bytes = await super()._readline()
        kind = line[:1]
        if kind == b"*":
            self._elements_left -= int(line[1:])
        elif kind == _TEXT:
            self._bytes_left -= int(line[1:])
        if self._elements_left < 0 or self._bytes_left < 0:
            raise InvalidResponse(f"Its reply is too long: {line[:20]!r}")
        return line


Client = Redis | RedisCluster
#: Host and port.
Address = tuple[str, int]

#: Connections to one server. At 40 us a command, they carry more commands than one event loop can send.
CONNECTIONS: Final = 32
_PORT: Final = 6379
_SENTINEL_PORT: Final = 26379
#: The schemes of ours with TLS.
_WITH_TLS: Final = ("rediss", "valkeys")
#: What redis calls the files of a connection with TLS.
_TLS_FILES: Final = ("ca_certs", "ca_path", "certfile", "keyfile")


def open_redis(url: str, timeout: float) -> tuple[Client, str]:
    """The client of a store, and its name in messages. No connection is opened yet.

    `timeout` limits a connection attempt and each command, in seconds. Raises ValueError or TypeError for an invalid
    URL, without the password in the message.
    """
    parts = urlsplit(url)
    spelling, _, kind = parts.scheme.partition("+")
    parts = parts._replace(scheme="rediss" if spelling in _WITH_TLS else "redis")
    options = {
        "socket_timeout": timeout,
        "socket_connect_timeout": timeout,
        # A connection that the server has closed since its last command, or that leads to a former primary.
        "retry": Retry(NoBackoff(), 1),
        # No handshake: a connection is ready as soon as it is open.
        "protocol": 2,
        "driver_info": None,
    }
    match kind:
        case "unix":
            return _connect_socket(parts, options)
        case "cluster":
            return _connect_cluster(parts, options)
        case "sentinel":
            return _connect_primary(parts, options)
        case _:
            return _connect_server(parts, options)


async def close_redis(client: Client) -> None:
    """Close the connections of a client."""
    await client.aclose()
    if isinstance(client, Redis) and isinstance(pool := client.connection_pool, SentinelConnectionPool):
        await pool.sentinel_manager.aclose()


def _connect_socket(parts: SplitResult, options: Mapping[str, Any]) -> tuple[Client, str]:
    path = unquote(parts.path)
    if parts.netloc.rpartition("@")[2] or not path.startswith("/") or path.endswith("/"):
        raise ValueError("it needs three slashes and the path of a socket, as in valkey+unix:///run/valkey/valkey.sock")
    return _open(parts._replace(scheme="unix").geturl(), options), path


def _connect_server(parts: SplitResult, options: Mapping[str, Any]) -> tuple[Client, str]:
    address = _read_address(parts.netloc.rpartition("@")[2], _PORT)
    if (path := parts.path.strip("/")) and not path.isdigit():
        raise ValueError("its path is not a database number")
    return _open(parts.geturl(), options), _describe([address])


def _open(url: str, options: Mapping[str, Any]) -> Redis:
    client = Redis.from_url(url, max_connections=CONNECTIONS, parser_class=LimitedParser, **options)
    _check(client.connection_pool)
    return client


def _connect_primary(parts: SplitResult, options: Mapping[str, Any]) -> tuple[Client, str]:
    addresses = _read_addresses(parts, _SENTINEL_PORT)
    service, _, database = parts.path.strip("/").partition("/")
    if not service or not (database.isdigit() or not database):
        raise ValueError("it needs the name of the primary, as in valkey+sentinel://host1,host2/NAME")
    user, at, _ = parts.netloc.rpartition("@")
    given: dict[str, Any] = dict(parse_url(f"{parts.scheme}://{user}{at}/{database}?{parts.query}"))
    of_sentinels = {name: given.pop(f"sentinel_{name}", None) for name in ("username", "password")}
    common = {**options, "max_connections": CONNECTIONS, "parser_class": LimitedParser}
    # The Sentinels are queried in turn, so none is queried twice.
    seed = {**common, **given, **of_sentinels, "db": 0, "retry": Retry(NoBackoff(), 0)}
    manager = Sentinel([])  # type: ignore[no-untyped-call]
    for host, port in addresses:
        manager.sentinels.append(Redis.from_pool(ConnectionPool(host=host, port=port, **seed)))
    _check(manager.sentinels[0].connection_pool)
    is_tls = given.pop("connection_class", None) is SSLConnection
    client: Redis = manager.master_for(unquote(service), ssl=is_tls, **common, **given)
    return client, f"primary {unquote(service)!r} of {_describe(addresses)}"


def _connect_cluster(parts: SplitResult, options: Mapping[str, Any]) -> tuple[Client, str]:
    addresses = _read_addresses(parts, _PORT)
    if parts.path.strip("/") not in ("", "0") or parse_qs(parts.query).get("db", ["0"]) != ["0"]:
        raise ValueError("a cluster has the database 0 alone")
    user, at, hosts = parts.netloc.rpartition("@")
    first = parts._replace(netloc=f"{user}{at}{hosts.partition(',')[0]}", path="")
    cluster = RedisCluster.from_url(
        first.geturl(),
        startup_nodes=[ClusterNode(host, port) for host, port in addresses],
        # A redirection can send the commands of one server to another one.
        max_connections=2 * CONNECTIONS,
        require_full_coverage=False,
        # A slot that has moved is looked up alone: a new search for all would close connections in use.
        reinitialize_steps=0,
        **options,
    )
    # A command for each primary has one reply for each, which are not added up.
    cluster.result_callbacks.clear()
    # It has no argument for the parser. These are the arguments of all its connections.
    manager = cluster.nodes_manager
    manager.connection_kwargs["parser_class"] = LimitedParser
    for node in manager.startup_nodes.values():
        node.connection_kwargs["parser_class"] = LimitedParser
        _check_files(node.connection_class(**node.connection_kwargs))
    return cluster, f"cluster {_describe(addresses)}"


def _read_addresses(parts: SplitResult, default_port: int) -> list[Address]:
    hosts = parts.netloc.rpartition("@")[2].split(",")
    return [_read_address(host, default_port) for host in hosts]


def _read_address(text: str, default_port: int) -> Address:
    parts = urlsplit(f"//{text}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        # The error quotes the port: after a slash in a password, that is a part of the password.
        raise ValueError("it has no valid port, or its password has characters that must be percent-encoded") from None
    if not host or port == 0:
        raise ValueError("it has no host, or port 0")
    return host, port or default_port


def _describe(addresses: list[Address]) -> str:
    return ", ".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in addresses)


def _check(pool: ConnectionPool) -> None:
    """Create a connection, which is not opened. Otherwise a wrong option would fail every command."""
    _check_files(pool.connection_class(**pool.connection_kwargs))


def _check_files(connection: AbstractConnection) -> None:
    """Read the files of TLS. Raises ValueError if one cannot be used."""
    if isinstance(connection, SSLConnection):
        try:
            connection.ssl_context.get()
        except OSError as error:
            files = ", ".join(str(file) for name in _TLS_FILES if (file := getattr(connection.ssl_context, name)))
            raise ValueError(f"a file of its TLS options ({files}) cannot be used: {error}") from error
