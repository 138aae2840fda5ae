"""Opens the servers that a store URL names."""

from __future__ import annotations

from collections.abc import Callable

from app.cache.valkey.layout import Layout, one_partition, partitions_of_cluster
from app.cache.valkey.node import Node
from app.cache.valkey.servers import FoundServers, Servers, SingleServer, search_cluster, search_sentinel
from app.cache.valkey.url import Address, Kind, StoreUrl


def open_servers(url: StoreUrl, *, clock: Callable[[], float], timeout: float) -> tuple[Servers, Layout]:
    """The servers and the layout of their keys. No connection is opened yet.

    Raises ValueError or TypeError for an invalid option.
    """

    def connect(address: Address) -> Node:
        return Node(address, url.options, clock=clock, timeout=timeout, redirects=redirects)

    redirects = url.kind in (Kind.CLUSTER, Kind.SENTINEL)
    # An invalid option is an error now, not when the first primary is known.
    connect(url.addresses[0])
    seeds = [Node(address, url.seed_options, clock=clock, timeout=timeout) for address in url.addresses]
    names = ", ".join(map(str, url.addresses))
    if url.kind is Kind.CLUSTER:
        return FoundServers(f"Valkey cluster {names}", seeds, search_cluster, connect, clock), partitions_of_cluster()
    if url.kind is Kind.SENTINEL:
        label, search = f"Valkey primary {url.service!r} of {names}", search_sentinel(url.service)
        return FoundServers(label, seeds, search, connect, clock), one_partition()
    return SingleServer(seeds[0]), one_partition()
