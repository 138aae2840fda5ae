"""The budget of upstream questions: one token bucket, one cap on questions under way, people first.

Questions of people form one line, those of bulk jobs and background refreshes another. The second line moves only
while the first is empty, uses at most its share of the places, and leaves people's share of tokens in the bucket.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, Protocol

from app.errors import BudgetSpent
from app.token_bucket import Bucket, back_off, count_tokens, take_token
from app.upstream.source import Priority

#: Questions that wait in one line; more are refused at once.
MOST_WAITING: Final = 10_000
#: What a refused caller is told to wait where nothing more exact is known, in seconds.
_USUAL_RETRY: Final = 1.0


class TokenBucket(Protocol):
    """Tokens for questions; shared by several processes or hosts where they are one guest. Must not raise."""

    async def take(self, leaving: float = 0.0) -> float:
        """Take one token and answer 0.0, if `leaving` tokens remain; else the seconds until asking makes sense."""

    async def back_off(self, seconds: float) -> None:
        """Give no token for so many seconds; afterwards the bucket is empty and fills at its rate."""

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


class _Line:
    """Those who wait their turn, first come first served."""

    def __init__(self, most_in_flight: int, leaving: float) -> None:
        self.most_in_flight = most_in_flight
        self.leaving = leaving
        self.in_flight = 0
        self.queue: deque[asyncio.Future[None]] = deque()
        #: Set when the first in line should look again whether there is a place for it.
        self.look = asyncio.Event()

    def join(self) -> asyncio.Future[None]:
        """A place at the end; the future is done when it is the first."""
        turn = asyncio.get_running_loop().create_future()
        self.queue.append(turn)
        self._call_first()
        return turn

    def leave(self, turn: asyncio.Future[None]) -> None:
        """Give the place up."""
        self.queue.remove(turn)
        self._call_first()

    def _call_first(self) -> None:
        if self.queue and not self.queue[0].done():
            self.queue[0].set_result(None)


class Budget:
    """Admits questions.

    `rate` is in questions a second, `burst` how many may go at once after a quiet time, `max_concurrency` how many
    may be under way, `reserved_for_people` (0 to below 1) the share of places and tokens that bulk jobs and
    background refreshes never use. `clock` is monotonic, in seconds. `bucket` replaces the one made of `rate` and
    `burst`, which then only says how many tokens a share of it is.
    """

    def __init__(
        self,
        *,
        rate: float,
        burst: float,
        max_concurrency: int,
        reserved_for_people: float,
        clock: Callable[[], float],
        bucket: TokenBucket | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        others = max(1, int(max_concurrency * (1.0 - reserved_for_people)))
        self._most_in_flight = max_concurrency
        self._people = _Line(max_concurrency, 0.0)
        self._others = _Line(others, reserved_for_people * burst)
        self._bucket = bucket or LocalBucket(rate, burst, clock)
        self._clock = clock
        self._sleep = sleep

    @property
    def in_flight(self) -> int:
        """Questions under way."""
        return self._people.in_flight + self._others.in_flight

    @property
    def waiting(self) -> int:
        """Questions that wait to be admitted."""
        return len(self._people.queue) + len(self._others.queue)

    @property
    def tokens(self) -> float:
        """Questions that could be asked at once."""
        return self._bucket.tokens

    @asynccontextmanager
    async def admit(self, priority: Priority, patience: float) -> AsyncIterator[None]:
        """Hold one place and spend one token; waits at most `patience` seconds. Raises BudgetSpent."""
        line = self._people if priority is Priority.PERSON else self._others
        if len(line.queue) >= MOST_WAITING:
            raise BudgetSpent(retry_after=_USUAL_RETRY)
        try:
            async with asyncio.timeout(patience):
                await self._enter(line, self._clock() + patience)
        except TimeoutError as error:
            raise BudgetSpent(retry_after=_USUAL_RETRY) from error
        try:
            yield
        finally:
            line.in_flight -= 1
            self._wake()

    async def one_more(self) -> bool:
        """Spend a token on a further request of a question that is under way (a retry), if there is one now."""
        return not await self._bucket.take()

    async def start_empty(self) -> None:
        """Drop the tokens at hand; the bucket fills at its rate."""
        await self._bucket.back_off(0.0)

    async def _enter(self, line: _Line, deadline: float) -> None:
        turn = line.join()
        try:
            await turn
            while True:
                while not self._has_place(line):
                    line.look.clear()
                    await line.look.wait()
                seconds = await self._take(line)
                if not seconds:
                    return
                if self._clock() + seconds > deadline:
                    raise BudgetSpent(retry_after=seconds)
                await self._sleep(seconds)
        finally:
            line.leave(turn)
            self._wake()

    def _has_place(self, line: _Line) -> bool:
        if self.in_flight >= self._most_in_flight or line.in_flight >= line.most_in_flight:
            return False
        return line is self._people or not self._people.queue

    async def _take(self, line: _Line) -> float:
        """Hold a place while a token is taken; it is kept only if there was one, so that sleepers block nobody."""
        line.in_flight += 1
        seconds = -1.0
        try:
            seconds = await self._bucket.take(line.leaving)
        finally:
            if seconds:
                line.in_flight -= 1
                self._wake()
        return seconds

    def _wake(self) -> None:
        self._people.look.set()
        self._others.look.set()
