"""The lease on a query: of all processes that share a store, one at a time asks the upstream about a name."""

from __future__ import annotations

import asyncio
from math import inf
from typing import Final

from doi_proxy.cache.tiered import TieredStore
from doi_proxy.upstream.source import WaitingClients

#: Renewals in the time of one lease: two of three may fail.
_RENEWALS: Final = 3


class QueryLease:
    """The lease of one query. `seconds` is how long it lasts unless it is renewed.

    One that `yields` is not renewed before its query is sent: a bulk query waits up to a minute for its turn, and a
    person who asks another process must not wait for it.
    """

    def __init__(
        self, cache: TieredStore, key: str, owner: str, seconds: float, waiters: WaitingClients, *, yields: bool
    ) -> None:
        self._cache = cache
        self._key = key
        # A person who asks this process replaces the query. Its end must not release the lease of the one that follows.
        self._owner = f"{owner}-yields" if yields else owner
        self._seconds = seconds
        self._waiters = waiters
        self._yields = yields
        self._ends_at = -inf

    @property
    def is_held(self) -> bool:
        """Whether the lease is renewed, or lasts at least until it would be."""
        left = self._ends_at - asyncio.get_running_loop().time()
        return self._waiters.is_sent or left >= self._seconds / _RENEWALS

    async def take(self) -> bool:
        """Take the lease. Returns False if another query has it."""
        ends_at = asyncio.get_running_loop().time() + self._seconds
        if not await self._cache.lease(self._key, self._owner, self._seconds):
            return False
        self._ends_at = ends_at
        return True

    async def take_again(self) -> bool:
        """Take the lease anew. Its own end may be a moment away. Returns False if another query has it."""
        await self.release()
        return await self.take()

    async def renew(self) -> None:
        """Renew the lease until the task is cancelled."""
        task = asyncio.current_task()
        # asyncio.wait_for of Python 3.11, which redis uses, loses a cancellation if its future ends in the same turn.
        while task is not None and not task.cancelling():
            await asyncio.sleep(self._seconds / _RENEWALS)
            if self._waiters.is_sent or not self._yields:
                await self._cache.renew(self._key, self._owner, self._seconds)

    async def release(self) -> None:
        """Release the lease."""
        await self._cache.release(self._key, self._owner)
