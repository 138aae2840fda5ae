"""Lines of waiting queries, one for each client, served in turn (round-robin).

There is no clock and no I/O. Each place in a line costs constant time: if a step took longer with more clients, a flood
of clients could use that as an attack.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

from app.upstream.source import ClientNetwork

Query = TypeVar("Query", bound=Hashable)


class FairQueue(Generic[Query]):
    """Queries that wait, in the line of each client that wants the answer. The first turn serves a query for all.

    `most` bounds the places in all lines together, `most_of_client` those in the line of one client.
    """

    def __init__(self, most: int, most_of_client: int) -> None:
        self._most = most
        self.most_of_client = most_of_client
        #: In the order of turns. OrderedDict finds its first key in constant time; a dict used as a queue does not.
        self._lines: OrderedDict[ClientNetwork, OrderedDict[Query, None]] = OrderedDict()
        #: The queries that wait, with the clients in whose lines each stands.
        self.queries: dict[Query, dict[ClientNetwork, None]] = {}
        self._by_length: dict[int, dict[ClientNetwork, None]] = {}
        self._longest = 0
        self._places = 0

    @property
    def clients(self) -> int:
        """The clients with a query."""
        return len(self._lines)

    def length(self, client: ClientNetwork) -> int:
        """The queries in the line of a client."""
        return len(self._lines.get(client, ()))

    def is_full(self, client: ClientNetwork) -> bool:
        """Whether the line of a client is full. The service's own work has no limit."""
        return client is not None and self.length(client) >= self.most_of_client

    def has_room(self, client: ClientNetwork) -> bool:
        """Whether `join` takes another query of a client."""
        if self.is_full(client):
            return False
        # An eviction must leave the newcomer's line the shorter one, or the two would evict each other in turn.
        return self._places < self._most or self._longest > self.length(client) + 1

    def join(self, client: ClientNetwork, query: Query) -> Query | None:
        """Put a query at the end of a client's line, where `has_room`.

        The longest line loses its newest query when all places are taken. Returns that query if it now stands in
        no line.
        """
        clients = self.queries.setdefault(query, {})
        if client in clients:
            return None
        clients[client] = None
        self._lines.setdefault(client, OrderedDict())[query] = None
        self._places += 1
        self._count(client, self.length(client) - 1)
        return self._evict() if self._places > self._most else None

    def leave(self, query: Query) -> None:
        """Take a query out of every line."""
        for client in self.queries.pop(query, ()):
            self._remove(client, query)

    def turns(self) -> Iterator[tuple[ClientNetwork, Query]]:
        """The clients in the order of their turns, each with its first query."""
        for client, line in self._lines.items():
            yield client, next(iter(line))

    def serve(self, client: ClientNetwork, query: Query) -> None:
        """Take a query out of every line and let `client`, whose turn it was, wait for all others."""
        self.leave(query)
        if client in self._lines:
            self._lines.move_to_end(client)

    def _evict(self) -> Query | None:
        client = next(iter(self._by_length[self._longest]))
        query = next(reversed(self._lines[client]))
        self._remove(client, query)
        del self.queries[query][client]
        if self.queries[query]:
            return None
        del self.queries[query]
        return query

    def _remove(self, client: ClientNetwork, query: Query) -> None:
        line = self._lines[client]
        del line[query]
        self._places -= 1
        if not line:
            del self._lines[client]
        self._count(client, len(line) + 1)

    def _count(self, client: ClientNetwork, before: int) -> None:
        """Move a client whose line grew or shrank by one to the clients of its new length."""
        now = self.length(client)
        if before:
            del self._by_length[before][client]
            if not self._by_length[before]:
                del self._by_length[before]
        if now:
            self._by_length.setdefault(now, {})[client] = None
        if now > self._longest or self._longest not in self._by_length:
            self._longest = now if now > self._longest else self._longest - 1
