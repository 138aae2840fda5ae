"""Lines of waiting queries, one for each client, served in turn (round-robin): networks first, then their clients.

This module uses no clock and no I/O. Each place in a line costs constant time: see `app/doi_proxy/rationing/shares.py`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

from doi_proxy.rationing.shares import ShareTree
from doi_proxy.upstream.source import ClientNetwork

Query = TypeVar("Query", bound=Hashable)


class FairQueue(Generic[Query]):
    """Queries that wait, in the line of each client that wants the answer. The first turn serves a query for all.

    `most` bounds the places in all lines together, `most_of_client` those in the line of one client.
    """

    def __init__(self, most: int, most_of_client: int) -> None:
        self._most = most
        self.most_of_client = most_of_client
        self._lines = ShareTree[Query]()
        #: The queries that wait, with the clients in whose lines each stands.
        self.queries: dict[Query, dict[ClientNetwork, None]] = {}
        self._places = 0

    @property
    def clients(self) -> int:
        """The clients with a query."""
        return self._lines.clients

    def length(self, client: ClientNetwork) -> int:
        """The queries in the line of a client."""
        return self._lines.count(client)

    def is_full(self, client: ClientNetwork) -> bool:
        """Whether the line of a client is full. The service's own work has no limit."""
        return client is not None and self.length(client) >= self.most_of_client

    def has_room(self, client: ClientNetwork) -> bool:
        """Whether `join` takes another query of a client."""
        if self.is_full(client):
            return False
        # An eviction must leave the newcomer the smaller share, or the two would evict each other in turn.
        if self._places < self._most:
            return True
        fullest = self._lines.find_fullest(client)
        return fullest is not None and fullest.lead > 1

    def join(self, client: ClientNetwork, query: Query) -> Query | None:
        """Put a query at the end of a client's line, where `has_room`.

        The client with the largest share loses its newest query when all places are taken. Returns that query if it
        now stands in no line.
        """
        clients = self.queries.setdefault(query, {})
        if client in clients:
            return None
        evicted = self._evict(client) if self._places >= self._most else None
        clients[client] = None
        self._lines.add(client, query)
        self._places += 1
        return evicted

    def leave(self, query: Query) -> None:
        """Take a query out of every line."""
        for client in self.queries.pop(query, ()):
            self._remove(client, query)

    def turns(self) -> Iterator[tuple[ClientNetwork, Query]]:
        """See ShareTree."""
        return self._lines.turns()

    def serve(self, client: ClientNetwork, query: Query) -> None:
        """Take a query out of every line and let `client`, whose turn it was, wait for all others."""
        self._lines.end_turn(client)
        self.leave(query)

    def _evict(self, newcomer: ClientNetwork) -> Query | None:
        fullest = self._lines.find_fullest(newcomer)
        if fullest is None:
            return None
        query = next(reversed(fullest.items))
        self._remove(fullest.client, query)
        del self.queries[query][fullest.client]
        if self.queries[query]:
            return None
        del self.queries[query]
        return query

    def _remove(self, client: ClientNetwork, query: Query) -> None:
        self._lines.remove(client, query)
        self._places -= 1
