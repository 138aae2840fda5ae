"""The tokens of the budget: one token is the right to send one upstream query."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from app.token_bucket import Bucket, back_off, count_tokens, take_token


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
