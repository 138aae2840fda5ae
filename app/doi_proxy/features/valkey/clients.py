"""redis-py's clients of a store: of one server, of the primary that Sentinels name, and of a cluster.

All have the same limits on replies and the same timeouts. None retries, or waits for a free connection: see Node.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from redis.asyncio import (
    Connection,
    ConnectionPool,
    Redis,
    RedisCluster,
    Sentinel,
    SentinelConnectionPool,
    SSLConnection,
    UnixDomainSocketConnection,
)
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError

from doi_proxy.features.valkey.replies import LimitedParser
from doi_proxy.features.valkey.url import Address, StoreKind, StoreUrl

#: Connections of one process. At 40 us a command, they carry more commands than one event loop can send.
CONNECTIONS: Final = 32
#: What redis calls the files of a connection with TLS.
_TLS_FILES: Final = ("ca_certs", "ca_path", "certfile", "keyfile")


class ServerClient(Protocol):
    """Sends commands to one server."""

    async def execute_command(self, *words: str | bytes | float) -> Any:
        """The reply. Raises what redis-py raises."""


def connect_server(url: StoreUrl, timeout: float) -> Redis:
    """The client of a server, or of a primary that Sentinels name. No connection is opened yet.

    `timeout` limits a connection attempt and each command, in seconds. Raises ValueError or TypeError for an invalid
    option.
    """
    common = _common(timeout)
    if url.kind is not StoreKind.SENTINEL:
        return Redis.from_pool(_open_pool(url.addresses[0], {**common, **url.options}))
    manager = Sentinel([])  # type: ignore[no-untyped-call]
    manager.sentinels = [
        Redis.from_pool(_open_pool(address, {**common, **url.seed_options})) for address in url.addresses
    ]
    options, is_tls = _split_tls(url.options)
    limits = {**common, **options, "ssl": is_tls}
    return Redis.from_pool(SentinelConnectionPool(url.service, manager, **limits))  # type: ignore[no-untyped-call]


async def disconnect_server(client: Redis) -> None:
    """Close the connections of a client of `connect_server`."""
    pool = client.connection_pool
    await client.aclose(close_connection_pool=True)
    if isinstance(pool, SentinelConnectionPool):
        await pool.sentinel_manager.aclose()


def connect_cluster(url: StoreUrl, timeout: float) -> RedisCluster:
    """The client of a cluster. For `timeout` and errors see `connect_server`."""
    options, is_tls = _split_tls(url.options)
    parser = {"parser_class": LimitedParser}
    common = {name: value for name, value in _common(timeout).items() if name not in parser}
    # A redirection can send the commands of one server to another one.
    common["max_connections"] = 2 * CONNECTIONS
    nodes = [ClusterNode(address.host, address.port) for address in url.addresses]
    # A slot that has moved is looked up alone: a new search for all would close the connections that others use.
    more = {"require_full_coverage": False, "reinitialize_steps": 0}
    cluster = RedisCluster(startup_nodes=nodes, ssl=is_tls, **{**common, **more, **options})
    # Each command has one server, and its reply is that server's.
    cluster.result_callbacks.clear()
    # It has no argument for the parser. These are the arguments of all its connections.
    cluster.nodes_manager.connection_kwargs.update(parser)
    for node in cluster.nodes_manager.startup_nodes.values():
        node.connection_kwargs.update(parser)
        _check(node.connection_class(**node.connection_kwargs))
    return cluster


class PrimaryClient:
    """Sends commands to one primary of a cluster."""

    def __init__(self, cluster: RedisCluster, name: str) -> None:
        self._cluster = cluster
        self._name = name

    async def execute_command(self, *words: str | bytes | float) -> Any:
        """See ServerClient."""
        await self._cluster.initialize()
        node = self._cluster.get_node(node_name=self._name)
        if node is None:
            raise RedisConnectionError("it is not a node of the cluster any more")
        return await self._cluster.execute_command(*words, target_nodes=node)


def _common(timeout: float) -> dict[str, Any]:
    return {
        "max_connections": CONNECTIONS,
        "socket_timeout": timeout,
        "socket_connect_timeout": timeout,
        "retry": Retry(NoBackoff(), 0),
        # No handshake: a connection is ready as soon as it is open.
        "protocol": 2,
        "driver_info": None,
        "parser_class": LimitedParser,
    }


def _split_tls(options: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """The options without the class of a connection, and whether that is one with TLS."""
    others = {name: value for name, value in options.items() if name != "connection_class"}
    return others, options.get("connection_class") is SSLConnection


def _open_pool(address: Address, options: Mapping[str, Any]) -> ConnectionPool:
    place = {"host": address.host, "port": address.port} if address.port else {"path": address.host}
    kind = Connection if address.port else UnixDomainSocketConnection
    pool = ConnectionPool(**{"connection_class": kind, **place, **options})
    # This connection only checks the options. Otherwise a wrong option would fail every command.
    _check(pool.connection_class(**pool.connection_kwargs))
    return pool


def _check(connection: AbstractConnection) -> None:
    """Read the files of TLS. Raises ValueError if one cannot be used."""
    if isinstance(connection, SSLConnection):
        try:
            connection.ssl_context.get()
        except OSError as error:
            files = ", ".join(str(file) for name in _TLS_FILES if (file := getattr(connection.ssl_context, name)))
            raise ValueError(f"a file of its TLS options ({files}) cannot be used: {error}") from error
