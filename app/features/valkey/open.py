"""Opens the servers that a store URL names."""

from __future__ import annotations

from collections.abc import Callable

from app.features.valkey.layout import Layout, one_partition, partitions_of_cluster
from app.features.valkey.node import Node
from app.features.valkey.servers import FoundServers, Search, Servers, SingleServer, search_cluster, search_sentinel
from app.features.valkey.url import Address, Kind, StoreUrl


def open_servers(url: StoreUrl, *, clock: Callable[[], float], timeout: float) -> tuple[Servers, Layout]:
    """The servers and the layout of their keys. No connection is opened yet.

    Raises ValueError or TypeError for an invalid option.
    """

    def connect(address: Address) -> Node:
        return Node(address, url.options, clock=clock, timeout=timeout, redirects=redirects)

    def connect_guide(address: Address) -> Node:
        return Node(address, url.seed_options, clock=clock, timeout=timeout)

    redirects = url.kind in (Kind.CLUSTER, Kind.SENTINEL)
    # An invalid option is an error now, not when the first primary is known.
    connect(url.addresses[0])
    names = ", ".join(map(str, url.addresses))
    search: Search
    if url.kind is Kind.CLUSTER:
        label, search, layout = f"Valkey cluster {names}", search_cluster, partitions_of_cluster()
    elif url.kind is Kind.SENTINEL:
        label, search = f"Valkey primary {url.service!r} of {names}", search_sentinel(url.service)
        layout = one_partition()
    else:
        return SingleServer(connect_guide(url.addresses[0])), one_partition()
    return FoundServers(label, url.addresses, search, connect, connect_guide, clock), layout
