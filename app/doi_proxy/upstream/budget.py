"""The budget of upstream queries: a token bucket and a limit on queries in flight. People first, clients in turn.

Of 16 places, lists of names have at most 8. One prefix has at most 12, because the last four are for prefixes without
a query in flight, and the networks of one customer have at most 14. So names that hang leave places to others.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Hashable, Set
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from math import ceil
from typing import Final, Protocol

from doi_proxy import errors
from doi_proxy.rationing import Bucket, ShareTree, back_off, count_tokens, find_accounts, take_token
from doi_proxy.upstream.source import ClientNetwork, Priority, QueryWait, Refusal
from doi_proxy.upstream.upstream_log import BudgetLog

#: Seconds after which a query in flight is slow.
SLOW_AFTER: Final = 1.0
#: Queries that wait, of all clients together, and of one client: twice as many as the default budget admits while they
#: wait. One more is answered 429.
MAX_WAITING: Final = 10_000
MOST_OF_CLIENT: Final = 100
#: Seconds that a query for a person waits for the budget. All queries of a request have 8 s together.
QUEUE_TIMEOUT: Final = 5.0
#: The name of a client's share in RateLimit headers and metrics.
SHARE: Final = "share"
#: The Retry-After of a refusal if nothing more exact is known, in seconds.
USUAL_RETRY: Final = 1.0


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
    """How many queries are sent."""

    #: Queries a second, and how many may be sent at once after a quiet time.
    rate: float
    burst: float
    #: How many may be in flight.
    max_concurrency: int


@dataclass(slots=True, eq=False)
class BudgetQuery:
    """A query that waits, or is in flight."""

    client: ClientNetwork
    #: The prefix of the name, or the server that has it.
    prefix: str
    is_bulk: bool
    #: The end of its wait: a place, or the reason why it is refused.
    turn: asyncio.Future[None]
    #: Why it would not be sent now, if an outage or a pause began while it waited.
    find_refusal: Callable[[], errors.CouldNotVerify | None] = lambda: None
    #: Other clients that want the same name. The query stands in the line of each.
    others: list[ClientNetwork] = field(default_factory=list)
    #: When it got its place.
    since: float = 0.0


@lru_cache(MAX_WAITING)
def _find_network(client: ClientNetwork) -> Hashable:
    """The widest network that contains a client."""
    return find_accounts(client)[0]


class Budget:
    """Admits queries.

    `clock` is monotonic, in seconds. `bucket` replaces the one made of `rate` and `burst`, which then only says how
    many tokens a share of it is.
    """

    def __init__(self, limits: BudgetLimits, clock: Callable[[], float], *, bucket: TokenBucket | None = None) -> None:
        #: The queries that wait: those of people, and those of bulk jobs and background refreshes.
        self._lines = ShareTree[BudgetQuery](), ShareTree[BudgetQuery]()
        self._waiting = set[BudgetQuery](), set[BudgetQuery]()
        #: The queries in flight, and one whose token is on its way.
        self._open = dict[BudgetQuery, None]()
        #: For each of the queries that ended last, whether it was slow.
        self._ended_slow: deque[bool] = deque()
        self._set_limits(limits)
        self._bucket = bucket or LocalBucket(limits.rate, limits.burst, clock)
        self._clock = clock
        #: Admits the queries that wait. Ends when none waits.
        self._server: asyncio.Task[None] | None = None
        #: Set when a query may be admitted, or none waits.
        self._look = asyncio.Event()
        #: The seconds until people's next token, and until that of others, at the last look. 0.0 if they lack a place.
        self._token_in = [0.0, 0.0]
        self.log = BudgetLog(clock)

    def set_limits(self, limits: BudgetLimits) -> None:
        """Follow other limits. Queries in flight beyond fewer places keep theirs until they end."""
        self._set_limits(limits)
        self._bucket.set_rate(limits.rate, limits.burst)
        self._look.set()

    def _set_limits(self, limits: BudgetLimits) -> None:
        #: Tokens a second, of all processes together.
        self.rate = limits.rate
        #: How many queries may be in flight.
        self.places = limits.max_concurrency
        self._burst = limits.burst
        self._ended_slow = deque(self._ended_slow, maxlen=self.places)

    @property
    def in_flight(self) -> int:
        """Queries in flight."""
        return len(self._open)

    @property
    def slow_in_flight(self) -> int:
        """Queries in flight for longer than SLOW_AFTER."""
        return sum(map(self._is_slow, self._open))

    @property
    def waiting(self) -> int:
        """Queries that wait to be admitted."""
        return sum(map(len, self._waiting))

    def waiting_of(self, client: ClientNetwork) -> int:
        """The queries of people that wait in the line of a client."""
        return self._lines[False].count(client)

    @property
    def clients_waiting(self) -> int:
        """Clients that have a person's query waiting."""
        return self._lines[False].clients

    def describe(self, refusal: errors.NotAdmitted) -> str:
        """The places, the tokens and the queries that wait at a refusal, for the log."""
        # `tokens` may have changed since the query was refused.
        tokens = "no token is left" if isinstance(refusal, errors.BudgetSpent) else "no token is missing"
        slow = self.slow_in_flight
        how_long = f", {slow} of them for more than {SLOW_AFTER:g} s" if slow else ""
        return f"{self.in_flight} of {self.places} queries are in flight{how_long}, {self.waiting} wait, and {tokens}"

    @property
    def lack(self) -> errors.NotAdmitted | None:
        """What the next query of a person lacks now. None if none waits."""
        return next((self._find_lack(query) for _, query in self._lines[False].turns()), None)

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
        self,
        priority: Priority,
        prefix: str,
        client: ClientNetwork = None,
        wait: QueryWait | None = None,
        find_refusal: Callable[[], errors.CouldNotVerify | None] = lambda: None,
    ) -> AsyncIterator[None]:
        """Hold one place and spend one token.

        `prefix` is that of the name, or the server that has it. Raises NotAdmitted: BudgetSpent, PlacesFull or
        UpstreamSlow for what the query waited for in vain, or ShareSpent if too many queries of the client wait. If
        the query waited, and `find_refusal` then gives another error, that one is raised and costs no token.
        """
        turn = asyncio.get_running_loop().create_future()
        query = BudgetQuery(client, prefix, priority is not Priority.PERSON, turn, find_refusal)
        try:
            if any(self._waiting[: 1 + query.is_bulk]) or not self._has_place(query) or await self._take(query):
                await self._wait(query, wait or QueryWait())
            yield
        finally:
            self._leave_line(query)
            if query in self._open:
                del self._open[query]
                self._ended_slow.append(self._is_slow(query))
                self._look.set()

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
            await asyncio.sleep(wait)

    async def start_empty(self) -> None:
        """Empty the bucket. It fills at its rate."""
        await self._bucket.back_off(0.0)

    async def _wait(self, query: BudgetQuery, wait: QueryWait) -> None:
        """Wait in the line of the client until there is a place and a token."""
        self._line_up(query)
        if self._server is None or self._server.done():
            self._server = asyncio.create_task(self._serve())
        # Otherwise nothing changed for the queries that wait. A look at all of them takes up to 5 ms.
        if self._has_place(query):
            self._look.set()
        wait.find_lack, wait.join = partial(self._find_lack, query), partial(self._join, query)
        try:
            # A list and a refresh can wait for longer than a reader.
            async with asyncio.timeout(60.0 if query.is_bulk else QUEUE_TIMEOUT):
                await query.turn
        except TimeoutError:
            raise self._find_lack(query) from None
        lacked = self._find_lack(query)
        wait.find_lack = lambda: lacked

    def _line_up(self, query: BudgetQuery) -> None:
        """Put a query at the end of the line of its client. Raises NotAdmitted if it has no room."""
        lines = self._lines[query.is_bulk]
        # The service's own work has no limit.
        if query.client is not None and lines.count(query.client) >= MOST_OF_CLIENT:
            raise self._share_spent(query)
        if self.waiting >= MAX_WAITING:
            fullest = lines.find_fullest(query.client)
            # An eviction must leave the newcomer the smaller share, or the two would evict each other in turn.
            if fullest is None or fullest.lead <= 1:
                raise self._find_lack(query)
            evicted = next(reversed(fullest.items))
            self._leave_line(evicted)
            if not evicted.turn.done():
                evicted.turn.set_exception(self._share_spent(evicted))
        lines.add(query.client, query)
        self._waiting[query.is_bulk].add(query)

    def _join(self, query: BudgetQuery, client: ClientNetwork) -> None:
        """Let another client wait for a query in its own line: that of the first client can be long."""
        lines, clients = self._lines[query.is_bulk], (query.client, *query.others)
        if query not in self._waiting[query.is_bulk] or client in clients or lines.count(client) >= MOST_OF_CLIENT:
            return
        # Of a name that many want at once, the lines of so many clients are enough.
        if len(clients) <= 16:
            query.others.append(client)
            lines.add(client, query)
            self._look.set()

    def _leave_line(self, query: BudgetQuery) -> None:
        if query in self._waiting[query.is_bulk]:
            self._waiting[query.is_bulk].remove(query)
            for client in (query.client, *query.others):
                self._lines[query.is_bulk].remove(client, query)
            if not self.waiting:
                self._look.set()

    def _share_spent(self, query: BudgetQuery) -> errors.ShareSpent:
        quota = errors.Quota(SHARE, MOST_OF_CLIENT, max(1, ceil(QUEUE_TIMEOUT)))
        # A client's line is one shorter after a turn of each client.
        clients = self._lines[query.is_bulk].clients
        return errors.ShareSpent(quota=quota, retry_after=max(USUAL_RETRY, clients / self.rate))

    def _find_lack(self, query: BudgetQuery) -> errors.NotAdmitted:
        """What a query waits for, or waited for: a token, one of too few places, or a slow upstream."""
        # While people wait for a token, bulk work waits for them.
        token_in = max(self._token_in[: 1 + query.is_bulk])
        if token_in and (query in self._open or self._has_place(query)):
            return errors.BudgetSpent(retry_after=max(USUAL_RETRY, token_in))
        slow = [other for other in self._open if self._is_slow(other)]
        # Queries in flight do not suffice: after a moment in which all places became free, none of them is slow yet.
        share = (len(slow) + sum(self._ended_slow)) / max(1, self.in_flight + len(self._ended_slow))
        if share >= 0.5 or any(other.prefix == query.prefix for other in slow):
            # A query that has just been sent takes as long as the others have.
            longest = max((self._clock() - other.since for other in slow), default=0.0)
            return errors.UpstreamSlow(retry_after=max(USUAL_RETRY, longest))
        return errors.PlacesFull(retry_after=USUAL_RETRY)

    async def _serve(self) -> None:
        """Admit queries as places and tokens become free, until none waits."""
        while self.waiting:
            self._look.clear()
            found = self._find_next()
            if found is None:
                self._token_in = [0.0, 0.0]
                await self._look.wait()
                continue
            client, query = found
            if (refusal := query.find_refusal()) is not None:
                self._leave_line(query)
                query.turn.set_exception(refusal)
            elif seconds := await self._take(query):
                # A person's query may come meanwhile.
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await self._look.wait()
            elif not query.turn.done():
                self._lines[query.is_bulk].end_turn(client)
                self._leave_line(query)
                query.turn.set_result(None)

    async def _take(self, query: BudgetQuery) -> float:
        """Take a token for a query. Returns 0.0 if it has a place and a token now, else the seconds until there is one.

        The place is held while the bucket is read, and free again while the query waits for a token.
        """
        self._open[query] = None
        query.since = self._clock()
        seconds = await self._bucket.take(self._burst / 2 if query.is_bulk else 0.0)
        if seconds:
            self._token_in[query.is_bulk] = seconds
            self._open.pop(query, None)
        query.since = self._clock()
        return seconds

    def _find_next(self) -> tuple[ClientNetwork, BudgetQuery] | None:
        """The client whose turn it is, and its query, of those for which there is a place: people come first."""
        for lines in self._lines:
            closed = self._find_closed(is_bulk=lines is self._lines[True])
            if closed is not None:
                for client, query in lines.turns():
                    if not query.turn.done() and closed.isdisjoint((query.prefix, _find_network(client))):
                        return client, query
        return None

    def _has_place(self, query: BudgetQuery) -> bool:
        """Whether there is a free place for a query."""
        closed = self._find_closed(is_bulk=query.is_bulk)
        return closed is not None and closed.isdisjoint((query.prefix, _find_network(query.client)))

    def _find_closed(self, *, is_bulk: bool) -> Set[Hashable] | None:
        """The prefixes and networks for which no place is free. None if no place is free at all.

        Of all places, and of the half that bulk jobs have, the last quarter is for prefixes without a query in flight:
        names that hang would take every place before the first of them is slow. The last eighth is for other networks.
        """
        limits = [(len(self._open), self.places)]
        if is_bulk:
            limits.append((sum(query.is_bulk for query in self._open), max(1, self.places // 2)))
        if any(taken >= most for taken, most in limits):
            return None
        closed = set[Hashable]()
        if any(taken >= most - most // 4 for taken, most in limits):
            closed.update(query.prefix for query in self._open)
        most_of_network = self.places - self.places // 8
        if len(self._open) >= most_of_network:
            # The service's own work is of no network.
            networks = Counter(_find_network(query.client) for query in self._open if query.client is not None)
            closed.update(network for network, taken in networks.items() if taken >= most_of_network)
        return closed

    def _is_slow(self, query: BudgetQuery) -> bool:
        return self._clock() - query.since >= SLOW_AFTER
