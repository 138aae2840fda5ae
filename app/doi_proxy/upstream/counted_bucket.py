"""The tokens of several instances that count their queries in one place: a Valkey or Redis server.

Each instance has a bucket of the whole rate, and takes out of it what the others have spent. One counter of all queries
suffices: what it grew by between two queries of this instance, without these, is what the others sent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from doi_proxy.rationing.token_bucket import ROUNDING
from doi_proxy.upstream.budget import LocalBucket

#: Counts one query, and returns how many all instances have counted. None while nothing counts them. Must not raise.
Spend = Callable[[], Awaitable[int | None]]


class CountedBucket:
    """See TokenBucket. While nothing counts the queries, this instance has an equal part of the rate.

    `clock` is monotonic, in seconds. All `instances` together spend at most burst + rate * t tokens in `t` seconds, and
    one more for each instance: what the others spent is known only after a query.
    """

    def __init__(self, spend: Spend, rate: float, burst: float, instances: int, clock: Callable[[], float]) -> None:
        self._spend = spend
        self._rate, self._burst, self._instances = rate, burst, instances
        self._clock = clock
        # Instances that start together begin with one burst together.
        self._level, self._at, self._blocked_until = max(1.0, burst / instances), clock(), 0.0
        #: The tokens that did not fit into the bucket since the last query.
        self._overflow = 0.0
        #: The queries of this instance that were counted, and the most that were of others, as far as it knows.
        self._own, self._others = 0, 0
        #: The last number of all, and the queries whose number is not known yet.
        self._count, self._under_way = 0, 0
        #: The part of this instance, while nothing counts the queries. It begins empty: the tokens may be spent.
        self._alone: LocalBucket | None = None

    async def take(self, leaving: float = 0.0) -> float:
        """See TokenBucket."""
        self._fill()
        missing = 1.0 + max(0.0, min(leaving, self._burst - 1.0)) - self._level
        if missing > ROUNDING:
            return max(0.0, self._blocked_until - self._at) + missing / self._rate
        self._level -= 1.0
        self._under_way += 1
        try:
            count = await self._spend()
        finally:
            self._under_way -= 1
        if count is None:
            self._level += 1.0
            return await self._take_alone(leaving)
        self._follow(count)
        return 0.0

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
            self._alone.set_rate(*self._part())

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
            level = self._level + seconds * self._rate
            self._level = min(self._burst, level)
            self._overflow += level - self._level
        self._at = max(now, self._at)

    def _follow(self, count: int) -> None:
        """Take out what the others have spent since the last query."""
        self._own += 1
        if self._own == 1 or count + self._under_way < self._count:
            # The counter is new to this instance, or begins anew: what the others spent before is not known.
            self._others = count - self._own
        if self._alone is not None:
            # Nor is what they spent while nothing counted it.
            self._alone, self._level, self._others = None, min(0.0, self._level), count - self._own
        spent = max(0, count - self._own - self._others)
        self._count, self._others = count, self._others + spent
        # Of what the others spent while this instance was idle, they had first what its own full bucket did not take.
        self._level = max(self._level - max(0.0, spent - self._overflow), -self._burst)
        self._overflow = 0.0

    async def _take_alone(self, leaving: float) -> float:
        if self._alone is None:
            self._alone = LocalBucket(*self._part(), self._clock)
            await self._alone.back_off(0.0)
        return await self._alone.take(leaving / self._instances)

    def _part(self) -> tuple[float, float]:
        return self._rate / self._instances, max(1.0, self._burst / self._instances)
