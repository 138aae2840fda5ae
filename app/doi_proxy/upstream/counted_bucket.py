"""The tokens of several instances that count their queries in one place: a Valkey or Redis server.

Each instance has a bucket that fills at the whole rate up to its part of the burst, and takes out of it what the others
have spent. One counter of all queries suffices: what it grew by between two queries of this instance, without these, is
what the others sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from doi_proxy.rationing import ROUNDING
from doi_proxy.upstream.budget import LocalBucket

#: Counts one query, and returns how many all instances have counted. None while nothing counts them. Must not raise.
Spend = Callable[[], Awaitable[int | None]]


class CountedBucket:
    """See TokenBucket. While nothing counts the queries, this instance has an equal part of the rate.

    `rate` is that of all `instances`, `burst` the part of this one. `clock` is monotonic, in seconds. All together
    spend at most their bursts + rate * t tokens in `t` seconds, and one more for each query under way: what the others
    spent is known only after a query. A query does not wait for its number, so that a counter that stands still for a
    moment delays none.
    """

    def __init__(self, spend: Spend, rate: float, burst: float, instances: int, clock: Callable[[], float]) -> None:
        self._spend = spend
        self._rate, self._burst, self._instances = rate, burst, instances
        self._clock = clock
        self._level, self._at, self._blocked_until = burst, clock(), 0.0
        #: The queries of this instance that were counted, and the most that were of others, as far as it knows.
        self._own, self._others = 0, 0
        #: The last number of all, and the queries whose number is not known yet.
        self._count, self._under_way = 0, 0
        self._learning = set[asyncio.Task[None]]()
        #: The part of this instance, while nothing counts the queries. It begins empty: the tokens may be spent.
        self._alone: LocalBucket | None = None

    async def take(self, leaving: float = 0.0) -> float:
        """See TokenBucket."""
        self._fill()
        missing = 1.0 + max(0.0, min(leaving, self._burst - 1.0)) - self._level
        if missing > ROUNDING:
            return max(0.0, self._blocked_until - self._at) + missing / self._rate
        if self._alone is not None:
            count = await self._spend()
            if count is None:
                return await self._take_alone(leaving)
            self._level -= 1.0
            self._follow(count, self._count)
            return 0.0
        self._level -= 1.0
        # What the others spend stays unknown for so many queries.
        while len(self._learning) >= 8:
            await asyncio.wait(self._learning, return_when=asyncio.FIRST_COMPLETED)
        self._under_way += 1
        learning = asyncio.create_task(self._learn())
        self._learning.add(learning)
        learning.add_done_callback(self._learning.discard)
        return 0.0

    async def _learn(self) -> None:
        """Count a query that has its token."""
        known = self._count
        try:
            count = await self._spend()
        finally:
            self._under_way -= 1
        if count is None:
            await self._take_alone(0.0)
        else:
            self._follow(count, known)

    async def back_off(self, seconds: float) -> None:
        """See TokenBucket."""
        now = self._clock()
        self._level, self._blocked_until = min(0.0, self._level), max(self._blocked_until, now + seconds)
        self._at = now
        if self._alone is not None:
            await self._alone.back_off(seconds)

    def set_rate(self, rate: float, burst: float) -> None:
        """See TokenBucket."""
        self._fill()
        self._rate, self._burst = rate, burst
        if self._alone is not None:
            self._alone.set_rate(rate / self._instances, burst)

    @property
    def tokens(self) -> float:
        """See TokenBucket."""
        if self._alone is not None:
            return self._alone.tokens
        self._fill()
        return max(0.0, self._level)

    def _fill(self) -> None:
        now = self._clock()
        if (seconds := now - max(self._at, self._blocked_until)) > 0:
            self._level = min(self._burst, self._level + seconds * self._rate)
        self._at = max(now, self._at)

    def _follow(self, count: int, known: int) -> None:
        """Take out what the others have spent since the last query. The count was `known` when this one was sent."""
        self._own += 1
        # A lower number than the last one may only be late: the numbers of queries at the same time come in any order.
        if self._own == 1 or count <= known:
            # The counter is new to this instance, or begins anew: what the others spent before is not known.
            self._count, self._others = count, count - self._own
        if self._alone is not None:
            # Nor is what they spent while nothing counted it.
            self._alone, self._level, self._others = None, min(0.0, self._level), count - self._own
        # Those of this instance that are under way may be counted already.
        spent = max(0, count - self._own - self._under_way - self._others)
        self._count, self._others = max(count, self._count), self._others + spent
        # Whatever the others spend, this instance has its part of the rate.
        self._level = max(self._level - spent, 1.0 - self._instances)

    async def _take_alone(self, leaving: float) -> float:
        if self._alone is None:
            self._alone = LocalBucket(self._rate / self._instances, self._burst, self._clock)
            await self._alone.back_off(0.0)
        return await self._alone.take(leaving)
