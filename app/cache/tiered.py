"""What the resolver remembers with: this process's memory in front of one store, whose failures are misses."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from app.cache.entry import LONGEST_SKEW, Entry, bound_times
from app.cache.memory import MemoryStore
from app.cache.outage import Outage
from app.cache.store import Store, StoreStats
from app.doi.name import fold
from app.errors import DamagedEntry, StoreError

log = logging.getLogger(__name__)

Result = TypeVar("Result")

#: How often announcements of other processes are asked for, in seconds; purges are seen within twice this.
WATCH_INTERVAL: Final = 1.0
#: A store that failed counts as up again after so long without a failure, in seconds.
QUIET: Final = 5.0
#: Entries whose times are bounded in one step after the clock was set back; 1,000 take 2 ms.
_STEP: Final = 1_000


class TierObserver(Protocol):
    """Told when the store failed; must be quick and must not raise."""

    def store_failed(self, operation: str) -> None:
        """The store could not do `operation`, a method name of Store."""


@dataclass(slots=True)
class TierCounters:
    """How often what happened since the start. Looks into memory alone are not counted: the resolver counts answers."""

    hits_memory: int = 0
    hits_store: int = 0
    misses: int = 0
    puts: int = 0
    deletes: int = 0
    forgotten: int = 0  # entries dropped from memory because another process announced a change
    overruns: int = 0  # the whole memory dropped because too much was announced
    store_errors: int = 0
    lease_fallbacks: int = 0  # leases given by this process alone because the store failed
    budget_fallbacks: int = 0  # tokens counted by this process alone because the store failed


@dataclass(frozen=True, slots=True)
class TierStats:
    """How both tiers are; `store` is None where memory is all there is."""

    memory_entries: int
    memory_bytes: int
    memory_evictions: int
    store: StoreStats | None
    counters: TierCounters

    @property
    def healthy(self) -> bool:
        """Whether the store works; memory always does."""
        return self.store is None or self.store.healthy


class TieredStore:
    """Both tiers as one. Nothing here raises StoreError: a failure is counted, told to the observer, and a miss."""

    def __init__(
        self,
        memory: MemoryStore,
        store: Store | None,
        *,
        clock: Callable[[], float],
        ceiling: float,
        observer: TierObserver | None = None,
    ) -> None:
        """`ceiling` is the longest that an entry is fresh, in seconds, whatever the store says."""
        self._memory = memory
        #: The entry of a key if it is in memory, fresh or not; without any waiting.
        self.peek = memory.peek
        self._store = store
        self._clock = clock
        self._ceiling = ceiling
        self._latest = clock()
        self._observer = observer
        self._cursor: str | None = None
        self._outage = Outage(clock, QUIET)
        self.counters = TierCounters()

    @property
    def memory(self) -> MemoryStore:
        """The memory tier."""
        return self._memory

    async def get(self, key: str) -> Entry | None:
        """The entry from memory; from the store where memory has none, or a stale one that another process renewed."""
        kept = self._memory.peek(key)
        if kept is not None and (self._store is None or kept.is_fresh(self._clock())):
            self.counters.hits_memory += 1
            return kept
        found = await self._from_store(key)
        if found is not None and (kept is None or found.fetched_at > kept.fetched_at):
            self.counters.hits_store += 1
            self._memory.keep(found)
            return found
        if kept is not None:
            self.counters.hits_memory += 1
        else:
            self.counters.misses += 1
        return kept

    async def reread(self, key: str) -> Entry | None:
        """The newest entry that any process has put: from the store, and from memory where there is none."""
        kept = self._memory.peek(key)
        found = await self._from_store(key)
        if found is None or (kept is not None and kept.fetched_at >= found.fetched_at):
            return kept
        self._memory.keep(found)
        return found

    async def put(self, entry: Entry, announce: bool = False) -> None:
        """Keep an entry in both tiers; with `announce`, other processes forget their copy."""
        self.counters.puts += 1
        self._memory.keep(entry)
        if self._store is not None:
            await self._tried("put", self._store.put(entry, announce=announce), None)

    async def put_newer(self, entry: Entry) -> bool:
        """Keep an entry unless one that was fetched at the same time or later is known; whether it was kept.

        For imports: `flush` now and then, since only so many writes may wait.
        """
        known = await self.reread(entry.key)
        if known is not None and known.fetched_at >= entry.fetched_at and known.is_usable(self._clock()):
            return False
        await self.put(entry, announce=known is not None)
        return True

    async def delete(self, key: str) -> bool:
        """Forget an entry everywhere; whether there was one."""
        self.counters.deletes += 1
        existed = self._memory.drop(key)
        if self._store is not None:
            existed = await self._tried("delete", self._store.delete(key), False) or existed
            await self.flush()
        return existed

    async def clear_prefix(self, prefix: str) -> int:
        """Forget all names under a DOI prefix ("10.1000"); how many there were. The names of 10.10001 stay."""
        start = fold(prefix).rstrip("/") + "/"
        gone = {key for key in self._memory.keys(start) if self._memory.drop(key)}
        if self._store is not None:
            try:
                for key in gone:
                    await self._store.delete(key)
                async for entry in self._store.scan(start):
                    await self._store.delete(entry.key)
                    gone.add(entry.key)
                await self._store.flush()
            except StoreError as error:
                self._failed("delete", error)
        self.counters.deletes += len(gone)
        return len(gone)

    async def scan(self, prefix: str = "") -> AsyncIterator[Entry]:
        """All entries whose key begins with `prefix`; see Store. Ends early, and counts that, if the store fails."""
        try:
            async for entry in (self._store or self._memory).scan(prefix):
                yield entry
        except StoreError as error:
            self._failed("scan", error)

    async def lease(self, key: str, owner: str, seconds: float) -> bool:
        """Take the right to ask about a name; among this process's owners alone where the store fails."""
        if self._store is not None:
            taken = await self._tried("lease", self._store.lease(key, owner, seconds), None)
            if taken is not None:
                return taken
            self.counters.lease_fallbacks += 1
        return await self._memory.lease(key, owner, seconds)

    async def release(self, key: str, owner: str) -> None:
        """Give a lease back."""
        await self._memory.release(key, owner)
        if self._store is not None:
            await self._tried("release", self._store.release(key, owner), None)

    async def take(self, bucket: str, rate: float, burst: float, leaving: float = 0.0) -> float:
        """Take a token, see Store; from a bucket of this process alone where the store fails."""
        if self._store is not None:
            wait = await self._tried("take", self._store.take(bucket, rate, burst, leaving), None)
            if wait is not None:
                return wait
            self.counters.budget_fallbacks += 1
        return await self._memory.take(bucket, rate, burst, leaving)

    async def back_off(self, bucket: str, seconds: float) -> None:
        """Let nobody take a token for `seconds`; at least nobody of this process."""
        await self._memory.back_off(bucket, seconds)
        if self._store is not None:
            await self._tried("back_off", self._store.back_off(bucket, seconds), None)

    async def stats(self) -> TierStats:
        """How both tiers are."""
        store = None
        if self._store is not None:
            unknown = StoreStats(0, 0, False, "the store does not answer")
            store = await self._tried("stats", self._store.stats(), unknown)
        return TierStats(self._memory.entries, self._memory.bytes, self._memory.evictions, store, self.counters)

    async def check(self) -> None:
        """Raise StoreError if the store has failed since it was opened. For commands: a proxy counts that as a miss."""
        if self.counters.store_errors:
            stats = await self.stats()
            detail = "" if stats.store is None else stats.store.detail
            raise StoreError(f"The store failed, so the result is not complete: {detail}")

    async def flush(self) -> None:
        """Return when what was put before is durable, or the store has failed."""
        if self._store is not None:
            await self._tried("flush", self._store.flush(), None)

    async def close(self) -> None:
        """Close both tiers."""
        if self._store is not None:
            await self._tried("close", self._store.close(), None)
        await self._memory.close()

    async def watch(self, interval: float = WATCH_INTERVAL) -> None:
        """Keep memory in step with the store and the clock, for ever: the body of a task. `interval` in seconds."""
        while True:
            await self.forget_announced()
            self._memory.drop_expired()
            await self.notice_clock_step()
            await asyncio.sleep(interval)

    async def forget_announced(self) -> None:
        """Forget the entries that were announced since the last time; the first time, begin to listen."""
        if self._store is None:
            return
        changes = await self._tried("changes", self._store.changes(self._cursor), None)
        if changes is None:
            return
        self._cursor = changes.cursor
        if changes.overrun:
            self.counters.overruns += 1
            self._memory.clear()
        for key in changes.keys:
            self.counters.forgotten += self._memory.drop(key)

    async def notice_clock_step(self) -> None:
        """Bound the times in memory if the clock was set back since the last time."""
        now = self._clock()
        step, self._latest = self._latest - now, max(self._latest, now)
        if step <= LONGEST_SKEW:
            return
        self._latest = now
        log.warning("The clock was set back by %.0f seconds; records fetched after the new time count as stale.", step)
        for number, key in enumerate(self._memory.unsorted_keys()):
            if number % _STEP == 0:
                await asyncio.sleep(0)
            self._memory.bound_times(key, self._ceiling)

    async def _from_store(self, key: str) -> Entry | None:
        found = None if self._store is None else await self._tried("get", self._store.get(key), None)
        return None if found is None else bound_times(found, self._clock(), self._ceiling)

    async def _tried(self, operation: str, work: Awaitable[Result], instead: Result) -> Result:
        try:
            result = await work
        except StoreError as error:
            self._failed(operation, error)
            return instead
        self._outage.record_success(operation)
        return result

    def _failed(self, operation: str, error: StoreError) -> None:
        self.counters.store_errors += 1
        if not isinstance(error, DamagedEntry):
            self._outage.record_failure(operation, error.message)
        if self._observer is not None:
            self._observer.store_failed(operation)
