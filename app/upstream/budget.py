"""The budget of upstream queries: a token bucket and a limit on queries in flight. People first, clients in turn.

Queries of people form one queue, those of bulk jobs and background refreshes another. In each queue, the clients that
wait take turns. The second queue moves only while the first is empty, uses at most its share of the places, and leaves
people's share of tokens in the bucket.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from math import ceil
from typing import Final, Protocol

from app.errors import BudgetSpent, Quota, ShareSpent
from app.token_bucket import Bucket, back_off, count_tokens, take_token
from app.upstream.fair_queue import FairQueue
from app.upstream.source import ClientNetwork, Priority, Refusal, WaitingClients
from app.upstream.upstream_log import BudgetLog

#: Queries that wait in one queue, of all clients together.
MAX_WAITING: Final = 10_000
#: The name of a client's share in RateLimit headers and metrics.
SHARE: Final = "share"
#: One place of so many goes only to clients without a query in flight. Otherwise one client could hold every place by
#: names whose answers are slow.
_PLACES_PER_SPARE: Final = 8
#: The Retry-After of a refusal if nothing more exact is known, in seconds.
_USUAL_RETRY: Final = 1.0


class TokenBucket(Protocol):
    """The tokens of queries. Processes and hosts that share a store can share them. Must not raise."""

    async def take(self, leaving: float = 0.0) -> float:
        """Take one token and return 0.0 if `leaving` tokens remain, else the seconds until there may be one."""

    async def back_off(self, seconds: float) -> None:
        """Give no token for so many seconds. Afterwards the bucket is empty and fills at its rate."""

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

    @property
    def tokens(self) -> float:
        """See TokenBucket."""
        return count_tokens(self._bucket, self._clock(), self._rate, self._burst)


@dataclass(slots=True, eq=False)
class QueuedQuery:
    """A query that waits, or that is in flight."""

    #: Seconds that it waits after the last client joined, and the end of this wait on the budget's clock.
    seconds: float
    deadline: float
    timeout: asyncio.Timeout
    #: None when the query is admitted, or the reason why it is refused.
    turn: asyncio.Future[BudgetSpent | None]
    admitted: bool = False
    #: The client whose turn admitted it.
    client: ClientNetwork = None


@dataclass(slots=True, eq=False)
class Queue:
    """The queries of one class: those that wait, and how many are in flight."""

    lines: FairQueue[QueuedQuery]
    most_in_flight: int
    #: Tokens that this class leaves in the bucket.
    leaving: float
    in_flight: int = 0
    in_flight_of: dict[str, int] = field(default_factory=dict)
    #: Set when a place may be free.
    look: asyncio.Event = field(default_factory=asyncio.Event)
    #: Admits the queries that wait. Ends when none waits.
    server: asyncio.Task[None] | None = None


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
        places, reserved = limits.max_concurrency, limits.reserved_for_people
        others = max(1, int(places * (1.0 - reserved)))
        spare = -(-places // _PLACES_PER_SPARE) if places > 1 else 0
        self._rate = limits.rate
        self._most_in_flight = places
        self._most_of_one = places - spare
        self._people = Queue(FairQueue(MAX_WAITING, limits.most_of_client), places, 0.0)
        self._others = Queue(FairQueue(MAX_WAITING, limits.most_of_client), others, reserved * limits.burst)
        self._bucket = bucket or LocalBucket(limits.rate, limits.burst, clock)
        self._clock = clock
        self._sleep = sleep
        self.log = BudgetLog(clock)

    @property
    def in_flight(self) -> int:
        """Queries in flight."""
        return self._people.in_flight + self._others.in_flight

    @property
    def waiting(self) -> int:
        """Queries that wait to be admitted."""
        return len(self._people.lines.queries) + len(self._others.lines.queries)

    def waiting_of(self, client: ClientNetwork) -> int:
        """The queries that wait in the line of a client."""
        return self._people.lines.length(client)

    @property
    def clients_waiting(self) -> int:
        """Clients that have a person's query waiting."""
        return self._people.lines.clients

    @property
    def tokens(self) -> float:
        """Queries that could be sent now."""
        return self._bucket.tokens

    @property
    def refusal(self) -> Refusal | None:
        """The refusal of a query that cannot wait for a token. None if a token is left."""
        tokens = self.tokens
        return None if tokens >= 1.0 else Refusal("budget", BudgetSpent.token, (1.0 - tokens) / self._rate)

    @asynccontextmanager
    async def admit(
        self, priority: Priority, seconds: float, waiters: WaitingClients | None = None
    ) -> AsyncIterator[None]:
        """Hold one place and spend one token. Waits so many seconds at most after the last client joined.

        Raises BudgetSpent, or ShareSpent if the line of each client that waits is full.
        """
        queue = self._people if priority is Priority.PERSON else self._others
        waiters = waiters or WaitingClients()
        client = next(iter(waiters.clients))
        if await self._enter_directly(queue, client):
            try:
                yield
            finally:
                count_end(queue, client)
                self._wake()
            return
        now, loop = self._clock(), asyncio.get_running_loop()
        query = QueuedQuery(seconds, now + seconds, asyncio.timeout(seconds), loop.create_future())
        try:
            await self._wait(queue, query, waiters)
            yield
        finally:
            if query.admitted:
                count_end(queue, query.client)
            else:
                queue.lines.leave(query)
            if queue.server is not None and not queue.lines.queries:
                queue.server.cancel()
                queue.server = None
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
                raise BudgetSpent(retry_after=_USUAL_RETRY)
            await self._sleep(wait)

    async def start_empty(self) -> None:
        """Empty the bucket. It fills at its rate."""
        await self._bucket.back_off(0.0)

    async def _enter_directly(self, queue: Queue, client: ClientNetwork) -> bool:
        """Admit a query without a task or a timer, if none waits before it and there is a place and a token."""
        if queue.lines.queries or not self._has_place(queue) or not self._has_place_for(queue, client):
            return False
        queue.in_flight += 1
        count_start(queue, client)
        admitted = False
        try:
            admitted = not await self._bucket.take(queue.leaving)
        finally:
            if not admitted:
                count_end(queue, client)
                self._wake()
        return admitted

    async def _wait(self, queue: Queue, query: QueuedQuery, waiters: WaitingClients) -> None:
        try:
            async with query.timeout:
                self._line_up(queue, query, waiters)
                waiters.notify(lambda client: self._also_wait(queue, query, waiters, client))
                refusal = await query.turn
                if refusal is not None:
                    raise refusal
        except (BudgetSpent, TimeoutError) as error:
            waiters.refused = True
            if isinstance(error, BudgetSpent):
                raise
            raise BudgetSpent(retry_after=_USUAL_RETRY) from error
        finally:
            waiters.notify(None)

    def _line_up(self, queue: Queue, query: QueuedQuery, waiters: WaitingClients) -> None:
        lines = queue.lines
        clients = [client for client in waiters.clients if lines.has_room(client)]
        if not clients:
            if any(lines.is_full(client) for client in waiters.clients):
                raise self._share_spent(queue, query)
            raise BudgetSpent(retry_after=_USUAL_RETRY)
        for client in clients:
            self._join(queue, query, client)
        if queue.server is None or queue.server.done():
            queue.server = asyncio.create_task(self._serve(queue))

    def _also_wait(self, queue: Queue, query: QueuedQuery, waiters: WaitingClients, client: ClientNetwork) -> None:
        if query.turn.done() or query.timeout.expired():
            waiters.refused = not query.admitted
        elif queue.lines.has_room(client):
            self._join(queue, query, client)
            # A client that has just joined must not be refused because an earlier one has waited long.
            query.deadline = self._clock() + query.seconds
            query.timeout.reschedule(asyncio.get_running_loop().time() + query.seconds)

    def _join(self, queue: Queue, query: QueuedQuery, client: ClientNetwork) -> None:
        evicted = queue.lines.join(client, query)
        if evicted is not None and not evicted.turn.done():
            evicted.turn.set_result(self._share_spent(queue, evicted))
        # There may be a place that the earlier clients could not use.
        queue.look.set()

    def _share_spent(self, queue: Queue, query: QueuedQuery) -> ShareSpent:
        quota = Quota(SHARE, queue.lines.most_of_client, max(1, ceil(query.seconds)))
        # A client's line is one shorter after a turn of each client.
        return ShareSpent(quota=quota, retry_after=max(_USUAL_RETRY, queue.lines.clients / self._rate))

    async def _serve(self, queue: Queue) -> None:
        """Admit queries as places and tokens become free, until none waits."""
        while queue.lines.queries:
            if self._next(queue) is None:
                queue.look.clear()
                await queue.look.wait()
                continue
            seconds = await self._take(queue)
            if seconds:
                self._refuse_late(queue, seconds)
                if queue.lines.queries:
                    await self._sleep(seconds)

    async def _take(self, queue: Queue) -> float:
        """Take a token and admit the query whose turn it is then. Returns 0.0, or the seconds until there is a token.

        The place is held while the bucket is read, and free again while this waits for a token.
        """
        queue.in_flight += 1
        admitted, seconds = False, 0.0
        try:
            seconds = await self._bucket.take(queue.leaving)
            turn = None if seconds else self._next(queue, held=1)
            if turn is not None:
                self._admit(queue, *turn)
                admitted = True
        finally:
            if not admitted:
                queue.in_flight -= 1
                self._wake()
        return seconds

    def _admit(self, queue: Queue, client: ClientNetwork, query: QueuedQuery) -> None:
        queue.lines.serve(client, query)
        count_start(queue, client)
        query.admitted, query.client = True, client
        query.turn.set_result(None)

    def _refuse_late(self, queue: Queue, seconds: float) -> None:
        """Refuse the queries that are next, as long as the next token comes after their deadline."""
        while queue.lines.queries:
            _, query = next(queue.lines.turns())
            if self._clock() + seconds <= query.deadline:
                return
            queue.lines.leave(query)
            if not query.turn.done():
                query.turn.set_result(BudgetSpent(retry_after=seconds))

    def _next(self, queue: Queue, held: int = 0) -> tuple[ClientNetwork, QueuedQuery] | None:
        """The client whose turn it is, and its query. None without a place. `held` places are free for it."""
        if not self._has_place(queue, held):
            return None
        for client, query in queue.lines.turns():
            # Skips callers that have just given up, and clients with a query in flight. The places bound their number.
            if not query.turn.done() and self._has_place_for(queue, client, held):
                return client, query
        return None

    def _has_place(self, queue: Queue, held: int = 0) -> bool:
        """Whether there is a free place for this class."""
        if self.in_flight - held >= self._most_in_flight or queue.in_flight - held >= queue.most_in_flight:
            return False
        return queue is self._people or not self._people.lines.queries

    def _has_place_for(self, queue: Queue, client: ClientNetwork, held: int = 0) -> bool:
        """Whether a free place may go to this client."""
        return self.in_flight - held < self._most_of_one or client not in queue.in_flight_of

    def _wake(self) -> None:
        self._people.look.set()
        self._others.look.set()


def count_start(queue: Queue, client: ClientNetwork) -> None:
    """Count a query in flight for its client."""
    if client is not None:
        queue.in_flight_of[client] = queue.in_flight_of.get(client, 0) + 1


def count_end(queue: Queue, client: ClientNetwork) -> None:
    """A query in flight has ended."""
    queue.in_flight -= 1
    if client is not None:
        queue.in_flight_of[client] -= 1
        if not queue.in_flight_of[client]:
            del queue.in_flight_of[client]
