"""The tokens that one process takes at a time from the bucket that several processes share."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final, Protocol

#: Seconds for which the tokens of an allotment can be spent.
ALLOTMENT_SECONDS: Final = 0.1
#: An allotment is at most this part of the tokens that callers of its class may take, and of those that this process
#: has just spent.
_PART: Final = 8


class SharedTokenBucket(Protocol):
    """A token bucket of several processes or hosts, which gives several tokens at a time. Must not raise."""

    async def take(self, leaving: float = 0.0, count: int = 1) -> float:
        """Take `count` tokens and return 0.0, or take none and return the seconds until there will be as many."""

    async def back_off(self, seconds: float) -> None:
        """See TokenBucket."""

    def set_rate(self, rate: float, burst: float) -> None:
        """See TokenBucket."""

    @property
    def tokens(self) -> float:
        """See TokenBucket."""


class AllottedBucket:
    """A shared bucket that is read once for several tokens while there are plenty.

    The tokens that one read takes are an allotment. Each read is a transaction of the SQLite store, or a round trip to
    Valkey. Tokens that are not spent within ALLOTMENT_SECONDS are dropped. An allotment is at most `most` tokens, an
    eighth of those in the bucket, and an eighth of those that the process took since it last spent none for
    ALLOTMENT_SECONDS, or dropped one. So a process drops at most one token for eight that it spends, and only when
    others do not lack it.

    Within any `t` seconds, all processes together spend at most burst + rate * (t + ALLOTMENT_SECONDS) tokens, because
    every token left the shared bucket at most ALLOTMENT_SECONDS earlier. `clock` is monotonic, in seconds.
    """

    def __init__(self, shared: SharedTokenBucket, *, burst: float, most: int, clock: Callable[[], float]) -> None:
        self._shared = shared
        self._burst = burst
        self._most = most
        self._clock = clock
        self._tokens = 0
        #: The tokens that the shared bucket kept for other callers when the allotment was taken.
        self._leaving = 0.0
        self._expires = -inf
        #: The tokens of this allotment and of those before it, each of which was spent in time.
        self._run = 0
        self._is_reading = False

    async def take(self, leaving: float = 0.0) -> float:
        """See TokenBucket."""
        now = self._clock()
        if now < self._expires and self._tokens:
            if leaving <= self._leaving:
                self._tokens -= 1
                return 0.0
            return await self._shared.take(leaving)
        # One reader at a time takes more than one token, so a process never holds two allotments.
        if self._is_reading:
            return await self._shared.take(leaving)
        if now >= self._expires:
            self._run = 0
        return await self._read(leaving)

    async def back_off(self, seconds: float) -> None:
        """See TokenBucket."""
        self._drop()
        await self._shared.back_off(seconds)
        # A read under way may have brought tokens from before the back-off.
        self._drop()

    def set_rate(self, rate: float, burst: float) -> None:
        """See TokenBucket."""
        self._drop()
        self._burst = burst
        self._shared.set_rate(rate, burst)

    @property
    def tokens(self) -> float:
        """See TokenBucket."""
        return self._shared.tokens

    async def _read(self, leaving: float) -> float:
        fair = int((self._burst - leaving) / _PART)
        size = max(1, min(self._run // _PART, self._most, fair))
        self._tokens, self._expires = 0, self._clock() + ALLOTMENT_SECONDS
        expires = self._expires
        if size == 1:
            return await self._take_one(leaving)
        self._is_reading = True
        try:
            wait = await self._shared.take(leaving + (_PART - 1) * size, size)
        finally:
            self._is_reading = False
        if wait:
            self._drop()
            return await self._shared.take(leaving)
        if expires == self._expires:
            self._run += size
            self._tokens, self._leaving = size - 1, leaving
        return 0.0

    async def _take_one(self, leaving: float) -> float:
        wait = await self._shared.take(leaving)
        if not wait:
            self._run += 1
        return wait

    def _drop(self) -> None:
        self._tokens, self._run, self._expires = 0, 0, -inf
