"""The budget and the pauses of the upstream, kept in the store. All processes that share the store share them."""

from __future__ import annotations

import hashlib
from typing import Final

from doi_proxy.cache.tiered import TieredStore

#: The bucket of the budget in the store.
_BUCKET: Final = "upstream"
#: Tokens a second, and at once, of a bucket that never lacks one.
_UNLIMITED: Final = 1e9
#: A wait for a token of such a bucket is shorter than this, in seconds.
_SHORTEST_PAUSE: Final = 0.001


class SharedBucket:
    """The budget's tokens in the store. To the upstream, all processes that share the store are one client."""

    def __init__(self, cache: TieredStore, rate: float, burst: float, processes: int) -> None:
        """`processes` is the number of processes that share the store."""
        self._processes = processes
        self._cache = cache
        self._rate = rate
        self._burst = burst
        self._wait = 0.0

    async def take(self, leaving: float = 0.0, count: int = 1) -> float:
        """See SharedTokenBucket. While the store fails, the tokens are an equal part for this process."""
        self._wait = await self._cache.take(_BUCKET, self._rate, self._burst, leaving, count, processes=self._processes)
        return self._wait

    async def back_off(self, seconds: float) -> None:
        """See SharedTokenBucket."""
        await self._cache.back_off(_BUCKET, seconds)

    def set_rate(self, rate: float, burst: float) -> None:
        """See SharedTokenBucket. The store has the tokens alone, so the next query takes them at the new rate."""
        self._rate, self._burst = rate, burst

    @property
    def tokens(self) -> float:
        """1.0 if the last query of this process got a token, else 0.0. Other processes' queries are unknown here."""
        return 0.0 if self._wait else 1.0

    async def look(self) -> float:
        """The tokens of all processes together. Takes a token only from a full bucket, which refills at once."""
        wait = await self._cache.take(_BUCKET, self._rate, self._burst, leaving=self._burst, processes=self._processes)
        return max(0.0, self._burst - wait * self._rate)


class StorePause:
    """The pause of one upstream, stored as a blocked bucket. All processes that share the store obey it."""

    def __init__(self, cache: TieredStore, url: str) -> None:
        self._cache = cache
        # The hash, because a URL may contain a password.
        self._bucket = f"pause {hashlib.sha256(url.encode()).hexdigest()[:16]}"

    async def begin(self, seconds: float) -> None:
        """See SharedPause."""
        await self._cache.back_off(self._bucket, seconds)

    async def left(self) -> float:
        """See SharedPause."""
        # Only the block counts: the bucket fills so quickly that it is never empty for long.
        wait = await self._cache.take(self._bucket, _UNLIMITED, _UNLIMITED)
        return wait if wait > _SHORTEST_PAUSE else 0.0
