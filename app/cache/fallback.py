"""A store that may fail, and this process's memory in its place. No method raises StoreError."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from app.cache.memory import MemoryStore
from app.cache.outage import Outage
from app.cache.store import SharedStore
from app.cache.tier_state import TierCounters, TierObserver
from app.errors import BucketSettling, DamagedEntry, StoreError

Result = TypeVar("Result")

#: Seconds without a failure after which a store that failed counts as up again.
QUIET: Final = 5.0


class FallbackStore:
    """What the processes that share a store agree on. If the store fails, it holds in this process only."""

    def __init__(
        self,
        memory: MemoryStore,
        store: SharedStore | None,
        *,
        clock: Callable[[], float],
        observer: TierObserver | None = None,
    ) -> None:
        """`clock` gives seconds since the epoch. The observer learns of each failure."""
        self._memory = memory
        self._store = store
        self._observer = observer
        self._outage = Outage(clock, QUIET)
        #: The buckets whose last token came from the store.
        self._store_buckets: set[str] = set()
        self.counters = TierCounters()

    async def lease(self, key: str, owner: str, seconds: float) -> bool:
        """Take the lease of a name; see Store. If the store fails, the lease holds in this process only."""
        if self._store is not None:
            taken = await self._try("lease", self._store.lease(key, owner, seconds), None)
            if taken is not None:
                return taken
            self.counters.lease_fallbacks += 1
        return await self._memory.lease(key, owner, seconds)

    async def renew(self, key: str, owner: str, seconds: float) -> None:
        """Let a lease end after `seconds` from now; see Store."""
        await self._memory.renew(key, owner, seconds)
        if self._store is not None:
            await self._try("renew", self._store.renew(key, owner, seconds), None)

    async def release(self, key: str, owner: str) -> None:
        """Release a lease."""
        await self._memory.release(key, owner)
        if self._store is not None:
            await self._try("release", self._store.release(key, owner), None)

    async def take(
        self, bucket: str, rate: float, burst: float, leaving: float = 0.0, count: int = 1, *, processes: int = 1
    ) -> float:
        """Take tokens; see Store. If the store fails, they come from a bucket of this process only.

        That bucket has an equal part of the tokens that `processes` processes share. After a token of the store it is
        empty, because the tokens of the store may be spent.
        """
        if self._store is not None:
            wait = await self._try("take", self._store.take(bucket, rate, burst, leaving, count), None)
            if wait is not None:
                self._store_buckets.add(bucket)
                return wait
            self.counters.budget_fallbacks += 1
            if bucket in self._store_buckets:
                self._store_buckets.discard(bucket)
                await self._memory.back_off(bucket, 0.0)
        # A bucket that cannot hold `count` tokens would never give them.
        part = max(float(count), burst / processes)
        return await self._memory.take(bucket, rate / processes, part, leaving / processes, count)

    async def back_off(self, bucket: str, seconds: float) -> None:
        """Stop all processes from taking a token for `seconds`; if the store fails, only this process."""
        await self._memory.back_off(bucket, seconds)
        if self._store is not None:
            await self._try("back_off", self._store.back_off(bucket, seconds), None)

    async def _try(self, operation: str, work: Awaitable[Result], instead: Result) -> Result:
        try:
            result = await work
        except BucketSettling:
            # The store works.
            return instead
        except StoreError as error:
            self._record_failure(operation, error)
            return instead
        self._outage.record_success(operation)
        return result

    def _record_failure(self, operation: str, error: StoreError) -> None:
        self.counters.store_errors += 1
        if not isinstance(error, DamagedEntry):
            self._outage.record_failure(operation, error.message)
        if self._observer is not None:
            self._observer.store_failed(operation)
