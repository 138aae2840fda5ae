"""The budget of upstream queries: a token bucket and a limit on queries in flight. People first, clients in turn.

Queries of people form one class, those of bulk jobs and background refreshes another. In each class, names of slow
prefixes wait in a queue of their own, and the clients of each queue take turns. The second class moves only while no
query of the first waits, uses at most its share of the places, and leaves people's share of tokens in the bucket.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Hashable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import islice
from math import ceil
from typing import Final, Generic, Protocol, TypeVar

from cachetools import TTLCache

from doi_proxy import errors
from doi_proxy.errors import NotAdmitted
from doi_proxy.rationing import Bucket, ShareTree, back_off, count_tokens, take_token
from doi_proxy.upstream.source import ClientNetwork, Priority, Refusal, WaitingClients
from doi_proxy.upstream.upstream_log import BudgetLog

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


#: Seconds after which a query in flight is slow.
SLOW_AFTER: Final = 1.0


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
        # One place of so many keeps its slow query even if other clients wait.
        self.most_slow = max(1, most // 4)
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


#: Queries that wait in one queue, of all clients together.
MAX_WAITING: Final = 10_000
#: Seconds that a query for a person waits for the budget. All queries of a request have 8 s together.
QUEUE_TIMEOUT: Final = 5.0
#: The share of places and tokens that is left to people.
RESERVED_SHARE: Final = 0.5
#: Slow prefixes that are remembered, and how long without a further slow query, in seconds.
MAX_SLOW_PREFIXES: Final = 10_000
SLOW_PREFIX_SECONDS: Final = 600.0
#: The name of a client's share in RateLimit headers and metrics.
SHARE: Final = "share"
#: The Retry-After of a refusal if nothing more exact is known, in seconds.
USUAL_RETRY: Final = 1.0
_GAVE_WAY: Final = "The upstream was slow, and queries of other clients needed the place of this one; try again later."


class TokenBucket(Protocol):
    """The tokens of queries. Must not raise."""

    async def take(self, leaving: float = 0.0) -> float:
        """Take one token and return 0.0 if `leaving` tokens remain, else the seconds until there may be one."""

    async def back_off(self, seconds: float) -> None:
        """Give no token for so many seconds. Afterwards the bucket is empty and fills at its rate."""

    def set_rate(self, rate: float, burst: float) -> None:
        """Fill at another rate, and up to another size, from now on."""

    @property
    def tokens(self) -> float:
        """The tokens in the bucket, as last known."""


class LocalBucket:
    """The bucket of one process, full at first: `rate` tokens a second, at most `burst` (at least 1) at once."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float]) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._bucket = Bucket(burst, clock())

    async def take(self, leaving: float = 0.0) -> float:
        """See TokenBucket."""
        self._bucket, wait = take_token(self._bucket, self._clock(), self._rate, self._burst, leaving)
        return wait

    async def back_off(self, seconds: float) -> None:
        """See TokenBucket."""
        self._bucket = back_off(self._bucket, self._clock(), seconds)

    def set_rate(self, rate: float, burst: float) -> None:
        """See TokenBucket."""
        now = self._clock()
        if self._bucket.blocked_until <= now:
            # What the old rate has added since the last query.
            self._bucket = Bucket(count_tokens(self._bucket, now, self._rate, self._burst), now)
        self._rate, self._burst = rate, burst

    @property
    def tokens(self) -> float:
        """See TokenBucket."""
        return count_tokens(self._bucket, self._clock(), self._rate, self._burst)


@dataclass(frozen=True, slots=True)
class BudgetLimits:
    """How many queries are sent, and how many wait."""

    #: Queries a second, and how many may be sent at once after a quiet time.
    rate: float
    burst: float
    #: How many may be in flight.
    max_concurrency: int
    #: The share of places and tokens that bulk jobs and background refreshes never use, 0 to below 1.
    reserved_for_people: float
    #: How many queries of one client may wait.
    most_of_client: int


class Budget:
    """Admits queries.

    `clock` is monotonic, in seconds. `bucket` replaces the one made of `rate` and `burst`, which then only says how
    many tokens a share of it is.
    """

    def __init__(
        self,
        limits: BudgetLimits,
        clock: Callable[[], float],
        *,
        bucket: TokenBucket | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        lines = MAX_WAITING, limits.most_of_client
        self._people, self._others = QueryClass(lines), QueryClass(lines)
        #: For each of the queries that ended last, whether it was slow.
        self._ended_slow: deque[bool] = deque()
        self._set_places(limits)
        #: The hashes of the prefixes whose last query was slow.
        self._slow_prefixes: TTLCache[int, bool] = TTLCache(MAX_SLOW_PREFIXES, SLOW_PREFIX_SECONDS, clock)
        self._bucket = bucket or LocalBucket(limits.rate, limits.burst, clock)
        self._clock = clock
        self._sleep = sleep
        self.log = BudgetLog(clock)

    def set_limits(self, limits: BudgetLimits) -> None:
        """Follow other limits. Queries in flight beyond fewer places keep theirs until they end."""
        self._set_places(limits)
        self._bucket.set_rate(limits.rate, limits.burst)
        self._wake()

    def _set_places(self, limits: BudgetLimits) -> None:
        #: Tokens a second, of all processes together.
        self.rate = limits.rate
        places, reserved = limits.max_concurrency, limits.reserved_for_people
        self._ended_slow = deque(self._ended_slow, maxlen=places)
        self._people.set_limits(places, leaving=0.0)
        self._others.set_limits(max(1, int(places * (1.0 - reserved))), leaving=reserved * limits.burst)

    @property
    def in_flight(self) -> int:
        """Queries in flight."""
        return self._people.in_flight + self._others.in_flight

    @property
    def places(self) -> int:
        """How many queries may be in flight."""
        return self._people.most

    @property
    def slow_in_flight(self) -> int:
        """Queries in flight for longer than SLOW_AFTER."""
        return sum(self._is_slow(place) for owner in (self._people, self._others) for place in owner.places)

    @property
    def longest_in_flight(self) -> float:
        """The seconds of the query that has been in flight for longest. 0.0 without one."""
        starts = [place.since for owner in (self._people, self._others) for place in owner.places]
        return self._clock() - min(starts) if starts else 0.0

    @property
    def waiting(self) -> int:
        """Queries that wait to be admitted."""
        return self._people.waiting + self._others.waiting

    def waiting_of(self, client: ClientNetwork) -> int:
        """The queries of people that wait in the lines of a client."""
        return sum(queue.lines.length(client) for queue in (self._people.quick, self._people.slow))

    @property
    def clients_waiting(self) -> int:
        """Clients that have a person's query waiting."""
        return self._people.clients_waiting

    def describe(self, refusal: errors.NotAdmitted) -> str:
        """The places, the tokens and the queries that wait at a refusal, for the log."""
        # `tokens` may have changed since the query was refused.
        tokens = "no token is left" if isinstance(refusal, errors.BudgetSpent) else "no token is missing"
        slow = self.slow_in_flight
        how_long = f", {slow} of them for more than {SLOW_AFTER:g} s" if slow else ""
        return f"{self.in_flight} of {self.places} queries are in flight{how_long}, {self.waiting} wait, and {tokens}"

    @property
    def lack(self) -> errors.NotAdmitted | None:
        """What the queries of people that wait lack now. None if none waits."""
        queues = (self._people.quick, self._people.slow)
        return next((self._find_lack(queue) for queue in queues if queue.lines.queries), None)

    @property
    def tokens(self) -> float:
        """Queries that could be sent now."""
        return self._bucket.tokens

    @property
    def refusal(self) -> Refusal | None:
        """The refusal of a query that cannot wait for a token. None if a token is left."""
        tokens = self.tokens
        return None if tokens >= 1.0 else Refusal("budget", errors.BudgetSpent.token, (1.0 - tokens) / self.rate)

    @asynccontextmanager
    async def admit(
        self, priority: Priority, seconds: float, waiters: WaitingClients | None = None, prefix: str = ""
    ) -> AsyncIterator[None]:
        """Hold one place and spend one token. Waits so many seconds at most after the last client joined.

        `prefix` is that of the name, or the server that has it. Raises NotAdmitted: BudgetSpent, PlacesFull or
        UpstreamSlow for what the query waited for, or ShareSpent if the line of each client that waits is full. Raises
        UpstreamTimeout if the query is slow and gives its place to another client.
        """
        owner = self._people if priority is Priority.PERSON else self._others
        queue = owner.slow if self._is_known_slow(prefix) else owner.quick
        waiters = waiters or WaitingClients()
        place = await self._enter_directly(queue, next(iter(waiters.clients)), prefix)
        if place is None:
            place = await self._enter_in_turn(queue, seconds, waiters, prefix)
        try:
            async with asyncio.timeout(0 if place.gives_way else None) as place.timeout:
                yield
            self._slow_prefixes.pop(hash(prefix), None)
        except TimeoutError:
            if place.gives_way:
                raise errors.UpstreamTimeout(_GAVE_WAY) from None
            raise
        finally:
            self._ended_slow.append(self._is_slow(place))
            if self._ended_slow[-1]:
                self._remember_slow(prefix)
            self._leave(owner, place)

    async def _enter_in_turn(self, queue: Queue, seconds: float, waiters: WaitingClients, prefix: str) -> Place:
        now, loop = self._clock(), asyncio.get_running_loop()
        query = QueuedQuery(queue, prefix, seconds, now + seconds, asyncio.timeout(seconds), loop.create_future())
        try:
            return await self._wait(query, waiters)
        except BaseException:
            if query.place is not None:
                self._leave(queue.owner, query.place)
            raise
        finally:
            query.queue.lines.leave(query)
            self._end_server(query.queue)
            self._wake()

    async def admit_retry(self) -> bool:
        """Spend a token on a retry of a query in flight, if there is one now. Returns whether there was."""
        return not await self._bucket.take()

    async def admit_lookup(self, seconds: float) -> None:
        """Spend a token on a further message that a query in flight needs. Waits so many seconds at most for one.

        Raises BudgetSpent.
        """
        ends_at = self._clock() + seconds
        while (wait := await self._bucket.take()) > 0:
            if self._clock() + wait > ends_at:
                raise errors.BudgetSpent(retry_after=USUAL_RETRY)
            await self._sleep(wait)

    async def start_empty(self) -> None:
        """Empty the bucket. It fills at its rate."""
        await self._bucket.back_off(0.0)

    async def _enter_directly(self, queue: Queue, client: ClientNetwork, prefix: str) -> Place | None:
        """Admit a query without a task or a timer, if none waits before it and there is a place and a token."""
        if queue.lines.queries or not self._has_place(queue):
            return None
        place = self._take_place(queue, client, prefix)
        admitted = False
        try:
            admitted = not await self._bucket.take(queue.owner.leaving)
        finally:
            if not admitted:
                self._leave(queue.owner, place)
        return place if admitted else None

    def _take_place(self, queue: Queue, client: ClientNetwork, prefix: str) -> Place:
        now = self._clock()
        # The prefix may have become known as slow while the query waited.
        is_slow = queue.is_slow or self._is_known_slow(prefix)
        place = Place(client, prefix, now, is_slow=is_slow, began_slow=is_slow)
        queue.owner.in_flight += 1
        queue.owner.places[place] = None
        return place

    def _leave(self, owner: QueryClass, place: Place) -> None:
        del owner.places[place]
        owner.in_flight -= 1
        self._wake()

    def _end_server(self, queue: Queue) -> None:
        if queue.server is not None and not queue.lines.queries:
            queue.server.cancel()
            queue.server = None

    async def _wait(self, query: QueuedQuery, waiters: WaitingClients) -> Place:
        was_slow = isinstance(self._find_lack(query.queue), errors.UpstreamSlow)

        def find_lack() -> errors.NotAdmitted:
            return self._find_lack(query.queue, was_slow=was_slow)

        try:
            async with query.timeout:
                self._line_up(query, waiters.clients)
                waiters.notify(lambda client: self._also_wait(query, waiters, client))
                waiters.find_lack = find_lack
                turn = await query.turn
                if isinstance(turn, errors.NotAdmitted):
                    raise turn
                waiters.lacked = find_lack()
                return turn
        except errors.NotAdmitted:
            waiters.refused = True
            raise
        except TimeoutError as error:
            waiters.refused = True
            raise find_lack() from error
        finally:
            waiters.notify(None)
            waiters.find_lack = None

    def _find_lack(self, queue: Queue, *, was_slow: bool = False) -> errors.NotAdmitted:
        """What the queries of a queue wait for: a token, one of too few places, or a slow upstream.

        A query that began to wait when the upstream `was_slow` lacks no place for another reason: it still waits for
        those before it, even if the upstream answers quickly again.
        """
        if queue.owner is self._others and self._people.waiting:
            queue = self._people.quick if self._people.quick.lines.queries else self._people.slow
        if not queue.lacks_place:
            return errors.BudgetSpent(retry_after=max(USUAL_RETRY, queue.token_in))
        slow, queries = self.slow_in_flight + sum(self._ended_slow), self.in_flight + len(self._ended_slow)
        # The share of slow queries from which the upstream is slow, not the places too few: among those in flight and
        # as many that ended last. Those in flight do not suffice: where clients wait, a slow query gives its place to a
        # new one.
        if queue.is_slow or was_slow or (slow and slow >= 0.5 * queries):
            # A query that has just been sent takes as long as the others have.
            return errors.UpstreamSlow(retry_after=max(USUAL_RETRY, self.longest_in_flight))
        return errors.PlacesFull(retry_after=USUAL_RETRY)

    def _line_up(self, query: QueuedQuery, clients: Collection[ClientNetwork]) -> None:
        """Put a query at the end of the lines of clients. Raises NotAdmitted if none has room."""
        queue = query.queue
        with_room = [client for client in clients if queue.lines.has_room(client)]
        if not with_room:
            if any(queue.lines.is_full(client) for client in clients):
                raise self._share_spent(query)
            raise self._find_lack(queue)
        for client in with_room:
            self._join(query, client)
        if queue.server is None or queue.server.done():
            queue.server = asyncio.create_task(self._serve(queue))

    def _also_wait(self, query: QueuedQuery, waiters: WaitingClients, client: ClientNetwork) -> None:
        if query.turn.done() or query.timeout.expired():
            waiters.refused = query.place is None
        elif query.queue.lines.has_room(client):
            self._join(query, client)
            # A client that has just joined must not be refused because an earlier one has waited long.
            query.deadline = self._clock() + query.seconds
            query.timeout.reschedule(asyncio.get_running_loop().time() + query.seconds)

    def _join(self, query: QueuedQuery, client: ClientNetwork) -> None:
        evicted = query.queue.lines.join(client, query)
        if evicted is not None and not evicted.turn.done():
            evicted.turn.set_result(self._share_spent(evicted))
        # There may be a place that the earlier clients could not use.
        query.queue.look.set()

    def _share_spent(self, query: QueuedQuery) -> errors.ShareSpent:
        lines = query.queue.lines
        quota = errors.Quota(SHARE, lines.most_of_client, max(1, ceil(query.seconds)))
        # A client's line is one shorter after a turn of each client.
        return errors.ShareSpent(quota=quota, retry_after=max(USUAL_RETRY, lines.clients / self.rate))

    def _move_slow(self, queue: Queue) -> bool:
        """Move the next query to those of slow prefixes, if its prefix became known as slow while it waited.

        Among the others, it would end the one before it, which has just been admitted and is slow from its start, and
        be ended by the next: a token for each would be lost.
        """
        _, query = next(queue.lines.turns())
        if queue.is_slow or not self._is_known_slow(query.prefix):
            return False
        clients = tuple(queue.lines.queries[query])
        queue.lines.leave(query)
        query.queue = queue.owner.slow
        try:
            self._line_up(query, clients)
        except errors.NotAdmitted as error:
            if not query.turn.done():
                query.turn.set_result(error)
        return True

    async def _serve(self, queue: Queue) -> None:
        """Admit queries as places and tokens become free, until none waits."""
        while queue.lines.queries:
            if self._move_slow(queue):
                # The line of a prefix can be long.
                await asyncio.sleep(0)
            elif self._next(queue) is None:
                # A query whose time is over can be why there is no next one.
                queue.lacks_place = queue.lacks_place or not self._has_place(queue)
                queue.look.clear()
                timer = self._make_room(queue)
                await queue.look.wait()
                if timer is not None:
                    timer.cancel()
            elif seconds := await self._take(queue):
                queue.lacks_place, queue.token_in = False, seconds
                self._refuse_late(queue, seconds)
                if queue.lines.queries:
                    await self._sleep(seconds)

    async def _take(self, queue: Queue) -> float:
        """Take a token and admit the query whose turn it is then. Returns 0.0, or the seconds until there is a token.

        The place is held while the bucket is read, and free again while this waits for a token.
        """
        queue.owner.in_flight += 1
        try:
            seconds = await self._bucket.take(queue.owner.leaving)
        finally:
            queue.owner.in_flight -= 1
            self._wake()
        turn = None if seconds else self._next(queue)
        if turn is not None:
            client, query = turn
            queue.lines.serve(client, query)
            query.place = self._take_place(queue, client, query.prefix)
            query.turn.set_result(query.place)
        return seconds

    def _refuse_late(self, queue: Queue, seconds: float) -> None:
        """Refuse the queries that are next, as long as the next token comes after their deadline."""
        while queue.lines.queries:
            _, query = next(queue.lines.turns())
            if self._clock() + seconds <= query.deadline:
                return
            queue.lines.leave(query)
            if not query.turn.done():
                query.turn.set_result(errors.BudgetSpent(retry_after=seconds))

    def _next(self, queue: Queue) -> tuple[ClientNetwork, QueuedQuery] | None:
        """The client whose turn it is, and its query. None without a place."""
        if not self._has_place(queue):
            return None
        # The caller of a query may just have given up.
        return next(((client, query) for client, query in queue.lines.turns() if not query.turn.done()), None)

    def _has_place(self, queue: Queue) -> bool:
        """Whether there is a free place for this queue."""
        owner = queue.owner
        if self.in_flight >= self._people.most or owner.in_flight >= owner.most:
            return False
        if owner is self._others and self._people.waiting:
            return False
        return not queue.is_slow or owner.has_slow_place

    def _is_slow(self, place: Place) -> bool:
        return self._clock() - place.since >= SLOW_AFTER

    def _is_known_slow(self, prefix: str) -> bool:
        """Whether a prefix is known as slow."""
        return hash(prefix) in self._slow_prefixes

    def _remember_slow(self, prefix: str) -> None:
        """Remember a slow prefix. The empty one stands for an unknown prefix."""
        if prefix:
            self._slow_prefixes[hash(prefix)] = True

    def mark_slow(self, prefix: str) -> None:
        """A slow server has the names of a prefix: its queries in flight are slow at once, and so are its next ones."""
        self._remember_slow(prefix)
        for place in (*self._people.places, *self._others.places):
            if place.prefix == prefix:
                place.is_slow = place.began_slow = True
        self._wake()

    def _make_room(self, queue: Queue) -> asyncio.TimerHandle | None:
        """End a slow query for one that waits. If none is slow yet, look again when the next one is."""
        owner = queue.owner
        if (queue.is_slow and not owner.has_slow_place) or (owner is self._others and self._people.waiting):
            return None
        owners = (self._people, self._others) if owner is self._people else (owner,)
        places = [place for queue_owner in owners for place in queue_owner.places]
        for place in places:
            if not place.is_slow and self._is_slow(place):
                place.is_slow = True
                self._remember_slow(place.prefix)
        # The second client that waits is not the one that has the most places.
        newcomers = [client for client, _ in islice(queue.lines.turns(), 2)]
        if queue.is_slow:
            slow = choose_slow(filter(self._is_slow, places), newcomers, least_lead=2)
        else:
            slow = choose_slow(places, newcomers, most=owner.most_slow)
        if slow is not None:
            slow.give_way()
        starts = [place.since for place in places if not self._is_slow(place)]
        if slow is not None or not starts:
            return None
        seconds = min(starts) + SLOW_AFTER - self._clock()
        # Rounding could make a shorter time none at all, and this a busy loop.
        # Seconds between two looks for a slow query.
        return asyncio.get_running_loop().call_later(max(seconds, 0.001), queue.look.set)

    def _wake(self) -> None:
        for owner in (self._people, self._others):
            owner.quick.look.set()
            owner.slow.look.set()
