"""Opens the servers that a store URL names."""

from __future__ import annotations

from collections.abc import Callable

from app.cache.valkey.layout import Layout, one_partition, partitions_of_cluster
from app.cache.valkey.node import Node
from app.cache.valkey.servers import FoundServers, Servers, SingleServer, search_cluster
from app.cache.valkey.url import Address, Kind, StoreUrl


def open_servers(url: StoreUrl, *, clock: Callable[[], float], timeout: float) -> tuple[Servers, Layout]:
    """The servers and the layout of their keys. No connection is opened yet.

    Raises ValueError or TypeError for an invalid option.
    """

    def connect(address: Address) -> Node:
        return Node(address, url.options, clock=clock, timeout=timeout, redirects=url.kind is Kind.CLUSTER)

    nodes = [connect(address) for address in url.addresses]
    if url.kind is Kind.CLUSTER:
        label = f"Valkey cluster {', '.join(map(str, url.addresses))}"
        return FoundServers(label, nodes, search_cluster, connect, clock), partitions_of_cluster()
    return SingleServer(nodes[0]), one_partition()
