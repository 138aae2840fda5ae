"""The places of queries in flight, and which slow query gives its place to another client.

A query is slow after SLOW_AFTER seconds, and its prefix is known as slow until it answers quickly again. A quarter of
the places is for slow queries. They may use all, until a query of another client waits for a place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from doi_proxy.errors import NotAdmitted
from doi_proxy.rationing.shares import ShareTree
from doi_proxy.upstream.fair_queue import FairQueue
from doi_proxy.upstream.source import ClientNetwork

#: Seconds after which a query in flight is slow.
SLOW_AFTER: Final = 1.0
#: One place of so many keeps its slow query even if other clients wait.
PLACES_PER_SLOW: Final = 4


@dataclass(slots=True, eq=False)
class QueuedQuery:
    """A query that waits."""

    #: Where it waits: among those of slow prefixes if its prefix becomes known as slow meanwhile.
    queue: Queue
    prefix: str
    #: Seconds that it waits after the last client joined, and the end of this wait on the budget's clock.
    seconds: float
    deadline: float
    timeout: asyncio.Timeout
    #: The place that the query gets, or the reason why it is refused.
    turn: asyncio.Future[Place | NotAdmitted]
    #: The same place, as soon as there is one.
    place: Place | None = None


@dataclass(slots=True, eq=False)
class Place:
    """A query in flight. Its client is the one whose turn admitted it."""

    client: ClientNetwork
    prefix: str
    since: float
    is_slow: bool = False
    #: Whether the prefix was known as slow when the query was sent.
    began_slow: bool = False
    gives_way: bool = False
    #: Ends the query. None before it begins.
    timeout: asyncio.Timeout | None = None

    def give_way(self) -> None:
        """End the query."""
        self.gives_way = True
        if self.timeout is not None:
            self.timeout.reschedule(asyncio.get_running_loop().time())


@dataclass(slots=True, eq=False)
class Queue:
    """The queries of one class that wait: those of slow prefixes, or the others."""

    lines: FairQueue[QueuedQuery]
    owner: QueryClass
    is_slow: bool
    #: Set when a place may be free.
    look: asyncio.Event = field(default_factory=asyncio.Event)
    #: Admits the queries that wait. Ends when none waits.
    server: asyncio.Task[None] | None = None
    #: What the queries waited for at the last look: a place, or a token, and the seconds until there is one.
    lacks_place: bool = False
    token_in: float = 0.0


class QueryClass:
    """The queries of people, or all others: those that wait, and the places of those in flight."""

    def __init__(self, lines: tuple[int, int]) -> None:
        """`lines` are the limits of FairQueue. There are no places until `set_limits` is called."""
        self.quick, self.slow = (Queue(FairQueue(*lines), self, is_slow) for is_slow in (False, True))
        self.set_limits(0, leaving=0.0)
        #: Places that are taken, also for a query whose token is on its way.
        self.in_flight = 0
        self.places: dict[Place, None] = {}

    def set_limits(self, most: int, *, leaving: float) -> None:
        """Have at most so many places, and leave so many tokens in the bucket."""
        self.most = most
        self.most_slow = max(1, most // PLACES_PER_SLOW)
        self.leaving = leaving

    @property
    def has_slow_place(self) -> bool:
        """Whether a query of a slow prefix may take a free place."""
        return not self.quick.lines.queries or sum(place.began_slow for place in self.places) < self.most_slow

    @property
    def waiting(self) -> int:
        """Queries that wait."""
        return len(self.quick.lines.queries) + len(self.slow.lines.queries)

    @property
    def clients_waiting(self) -> int:
        """Clients with a query that waits. One with both kinds of query counts twice."""
        return self.quick.lines.clients + self.slow.lines.clients


def choose_slow(
    places: Iterable[Place], newcomers: Iterable[ClientNetwork], *, most: int = 0, least_lead: int = 0
) -> Place | None:
    """The slow query that gives its place to one of the newcomers. None if at most `most` are slow.

    It belongs to the client with the largest share of slow queries, which is not the newcomer and has `least_lead` more
    than it. Of that client, the query that was sent last gives way: the others have waited longer for answers that may
    come soon. If the first one gave way, no name would be answered at an upstream that takes longer than SLOW_AFTER.
    """
    tree, slow = ShareTree[Place](), 0
    for place in places:
        if place.gives_way:
            return None  # a place is free in a moment
        if place.is_slow:
            tree.add(place.client, place)
            slow += 1
    if slow > most:
        for newcomer in newcomers:
            share = tree.find_fullest(newcomer)
            if share is not None and share.lead >= least_lead:
                return max(share.items, key=lambda place: place.since)
    return None
