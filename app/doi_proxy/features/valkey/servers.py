"""The servers of a store, and which one has a key. redis-py finds them, and follows a failover; see clients.py."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol

from redis.asyncio import Redis, RedisCluster

from doi_proxy.errors import StoreError
from doi_proxy.features.valkey.clients import (
    PrimaryClient,
    ServerClient,
    connect_cluster,
    connect_server,
    disconnect_server,
)
from doi_proxy.features.valkey.node import Access, Node, Result, Work
from doi_proxy.features.valkey.url import StoreKind, StoreUrl

#: Shortest timeout of a late read, in seconds. On a machine with more work than cores, a reply can take that long.
_LATE_TIMEOUT: Final = 1.0


class Servers(Protocol):
    """The servers of a store. Every method but `label` may raise StoreError."""

    #: What an operator calls the store.
    label: str

    async def find(self, slot: int, access: Access) -> Node:
        """The server that has the hash slot, for work of this kind."""

    async def primaries(self) -> tuple[Node, ...]:
        """The servers that have keys."""

    async def close(self) -> None:
        """Close the connections."""


async def call(servers: Servers, slot: int, work: Work[Result], access: Access) -> Result:
    """Do `work` on the server that has the hash slot; see Node.call."""
    return await (await servers.find(slot, access)).call(work, access)


async def query_each(servers: Servers, works: Sequence[tuple[int, Work[Result]]]) -> list[Result | StoreError]:
    """The results of reads, each on the server of its slot. The result of a failed server is its StoreError."""

    async def query(slot: int, work: Work[Result]) -> Result | StoreError:
        try:
            return await call(servers, slot, work, Access.READ)
        except StoreError as error:
            return error

    return await asyncio.gather(*(query(slot, work) for slot, work in works))


def open_servers(url: StoreUrl, *, clock: Callable[[], float], timeout: float) -> Servers:
    """The servers of a URL. No connection is opened yet. `clock` gives seconds; for `timeout` see Node.

    A late read has at least _LATE_TIMEOUT, and connections of its own: on others, it would wait behind commands that
    time out. Raises ValueError or TypeError for an invalid option.
    """
    late_timeout = max(timeout, _LATE_TIMEOUT)
    if url.kind is StoreKind.CLUSTER:
        return Cluster(url, connect_cluster(url, timeout), connect_cluster(url, late_timeout), clock)
    return OneServer(url, connect_server(url, timeout), connect_server(url, late_timeout), clock)


class OneServer:
    """One server, or the primary that Sentinels name. It has every key."""

    def __init__(self, url: StoreUrl, usual: Redis, late: Redis, clock: Callable[[], float]) -> None:
        names = ", ".join(map(str, url.addresses))
        is_primary = url.kind is StoreKind.SENTINEL
        self.label = f"Valkey primary {url.service!r} of {names}" if is_primary else f"Valkey server {names}"
        self._clients = usual, late
        self._node = Node(f"primary {url.service!r} of {names}" if is_primary else names, usual, late, clock=clock)

    async def find(self, slot: int, access: Access) -> Node:
        """See Servers."""
        return self._node

    async def primaries(self) -> tuple[Node, ...]:
        """See Servers."""
        return (self._node,)

    async def close(self) -> None:
        """See Servers."""
        for client in self._clients:
            await self._node.guard(partial(disconnect_server, client))


class Cluster:
    """The primaries of a cluster. Each fails and rests on its own, and so does the search for them."""

    def __init__(self, url: StoreUrl, usual: RedisCluster, late: RedisCluster, clock: Callable[[], float]) -> None:
        names = ", ".join(map(str, url.addresses))
        self.label = f"Valkey cluster {names}"
        self._usual, self._late, self._clock = usual, late, clock
        self._search = Node(f"cluster {names}", _Search(usual), _Search(late), clock=clock)
        self._nodes: dict[str, Node] = {}

    async def find(self, slot: int, access: Access) -> Node:
        """See Servers."""
        cluster = self._late if access is Access.LATE else self._usual
        await self._search.call(_do_nothing, access)
        found = cluster.nodes_manager.slots_cache.get(slot)
        if not found:
            raise StoreError(f"The store failed: no primary of the {self.label} has the slot {slot}.")
        return self._open(found[0].name)

    async def primaries(self) -> tuple[Node, ...]:
        """See Servers."""
        await self._search.call(_do_nothing, Access.READ)
        return tuple(self._open(name) for name in sorted(node.name for node in self._usual.get_primaries()))

    async def close(self) -> None:
        """See Servers."""
        for cluster in (self._usual, self._late):
            await self._search.guard(cluster.aclose)

    def _open(self, name: str) -> Node:
        if name not in self._nodes:
            known = {node.name for cluster in (self._usual, self._late) for node in cluster.get_nodes()}
            self._nodes = {name: node for name, node in self._nodes.items() if name in known}
            clients = (PrimaryClient(cluster, name) for cluster in (self._usual, self._late))
            self._nodes[name] = Node(name, *clients, clock=self._clock)
        return self._nodes[name]


class _Search:
    """Finds the primaries of a cluster when a command is sent, if they are not known. It sends no command."""

    def __init__(self, cluster: RedisCluster) -> None:
        self._cluster = cluster

    async def execute_command(self, *words: str | bytes | float) -> Any:
        """See ServerClient."""
        await self._cluster.initialize()


async def _do_nothing(client: ServerClient) -> None:
    await client.execute_command()
