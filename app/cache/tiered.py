"""The cache of the resolver: this process's memory in front of one store. A failure of the store is a miss."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from msgspec.structs import replace

from app.cache.entry import MAX_SKEW, Entry, RegistryEntry, bound_times, expire_unverified
from app.cache.memory import MemoryStore
from app.cache.outage import Outage
from app.cache.purges import EVERYTHING, Purges
from app.cache.store import SharedStore, StoreStats
from app.doi.name import fold
from app.errors import BucketSettling, DamagedEntry, StoreError
from app.features.follow.parents import ParentState
from app.handle.answer import ResponseCode

log = logging.getLogger(__name__)

Result = TypeVar("Result")

#: Seconds between two reads of the announcements of other processes. A purge takes effect within twice this.
WATCH_INTERVAL: Final = 1.0
#: Seconds without a failure after which a store that failed counts as up again.
QUIET: Final = 5.0
#: Entries that are checked in one step after the clock was set back. 1,000 take 2 ms.
_ENTRIES_A_STEP: Final = 1_000


class TierObserver(Protocol):
    """Counts failures of the store. Its method must be fast and must not raise."""

    def store_failed(self, operation: str) -> None:
        """Called after a failure of `operation`, a method name of Store."""


@dataclass(slots=True)
class TierCounters:
    """Counters since start-up. The resolver counts answers."""

    store_errors: int = 0
    lease_fallbacks: int = 0  # leases of this process only, because the store failed
    budget_fallbacks: int = 0  # tokens of this process only, because the store failed


@dataclass(frozen=True, slots=True)
class TierStats:
    """The state of both tiers. `store` is None if there is only memory."""

    memory_entries: int
    memory_bytes: int
    memory_evictions: int
    store: StoreStats | None
    counters: TierCounters

    @property
    def healthy(self) -> bool:
        """Whether the store works. Memory always works."""
        return self.store is None or self.store.healthy


class TieredStore:
    """Both tiers as one cache. No method raises StoreError: a failure of the store counts as a miss."""

    def __init__(
        self,
        memory: MemoryStore,
        store: SharedStore | None,
        *,
        clock: Callable[[], float],
        ceiling: float,
        observer: TierObserver | None = None,
        only_verified: bool = False,
    ) -> None:
        """`ceiling` limits how long an entry is fresh, in seconds, whatever its stored times are.

        With `only_verified`, an entry that is not verified is stale here, whatever its times in the store are.
        """
        self._memory = memory
        #: The entry of a key if it is in memory, even if stale. Does not wait.
        self.peek = memory.peek
        self._store = store
        self._clock = clock
        self._ceiling = ceiling
        self._latest = clock()
        self._observer = observer
        self._only_verified = only_verified
        self._cursor: str | None = None
        self._purges = Purges()
        self._outage = Outage(clock, QUIET)
        #: The buckets whose last token came from the store.
        self._store_buckets: set[str] = set()
        self.counters = TierCounters()

    @property
    def memory(self) -> MemoryStore:
        """The memory tier."""
        return self._memory

    @property
    def store(self) -> SharedStore | None:
        """The second tier. None if there is only memory."""
        return self._store

    async def get(self, key: str) -> Entry | None:
        """The entry from memory, or from the store if memory has none or a stale one.

        Another process may have refreshed a stale entry, so the newer one wins.
        """
        cached = self._memory.peek(key)
        if cached is not None and (self._store is None or cached.is_fresh(self._clock())):
            return cached
        return self._choose(cached, await self._read_store(key))

    async def reread(self, key: str) -> Entry | None:
        """The newest entry of any process: from the store, or from memory if the store has none or an older one."""
        return self._choose(self._memory.peek(key), await self._read_store(key))

    def _choose(self, cached: Entry | None, stored: Entry | None) -> Entry | None:
        """The entry of memory or of the store. Memory keeps it, unless it is a registry record."""
        if stored is None:
            return cached
        if isinstance(stored, RegistryEntry):
            # It is never fresh, so each request reads the store again, and memory would gain nothing.
            return cached if cached is not None and cached.is_usable(self._clock()) else stored
        if cached is not None and cached.fetched_at >= stored.fetched_at:
            return cached
        self._memory.keep(stored)
        return stored

    async def put(
        self, entry: Entry, announce: bool = False, *, sent_at: float | None = None, unless_newer: bool = False
    ) -> None:
        """Put an entry into both tiers. With `announce`, other processes drop their copy from memory.

        It is not put if its key was purged after its query was sent at `sent_at`. For `unless_newer`, see Store.
        """
        if sent_at is not None and self._purges.refuses(entry.key, sent_at, self._clock()):
            return
        self._keep(entry)
        if self._store is not None:
            write = self._store.put(entry, announce=announce, sent_at=sent_at, unless_newer=unless_newer)
            await self._try("put", write, None)

    async def put_newer(self, entry: Entry) -> bool:
        """Put an entry unless the cache has one that is as new, or a fresh verified one. Returns whether it was put.

        An import must call `flush` from time to time, because the queue of writes is limited.
        """
        newest = await self.reread(entry.key)
        if isinstance(newest, RegistryEntry):
            newest = None
        if newest is not None:
            now = self._clock()
            if newest.is_proof(now) or (newest.fetched_at >= entry.fetched_at and newest.is_usable(now)):
                return False
        # Another process may fetch the record until this one is written, so the store compares again.
        await self.put(entry, announce=newest is not None, unless_newer=True)
        return True

    async def expire(self, entry: Entry) -> None:
        """Make an entry stale: it is served only while the upstream cannot be queried. A "not found" is deleted.

        A registry record is never fresh, so it stays as it is.
        """
        if isinstance(entry, RegistryEntry):
            return
        if entry.answer.code is not ResponseCode.SUCCESS:
            await self.delete(entry.key)
            return
        stale = replace(entry, fresh_until=min(entry.fresh_until, self._clock()))
        if self._store is None:
            self._memory.keep(stale)
            return
        # The next request takes it from the store, if it is still needed.
        self._memory.drop(entry.key)
        await self._try("put", self._store.put(stale, announce=True, unless_newer=True), None)

    async def begin_purge(self, scope: str) -> None:
        """Refuse the answers to earlier queries, in all processes, and drop the entries of `scope` from memory.

        `scope` is a key, a prefix with a slash at its end, or "" for everything. The caller deletes or expires the
        entries in the store afterwards. With memory alone, nothing is dropped here.
        """
        self._purges.record(scope, self._clock())
        if self._store is not None:
            # Entries that still wait to be written are older than the purge.
            await self.flush()
            await self._try("delete", self._store.delete(scope), False)
            await self.flush()
            self._drop(scope)

    async def delete(self, key: str) -> bool:
        """Delete an entry in both tiers and in other processes. Returns whether there was one."""
        self._purges.record(key, self._clock())
        existed = self._memory.drop(key)
        if self._store is not None:
            existed = await self._try("delete", self._store.delete(key), False) or existed
            await self.flush()
        return existed

    async def clear_prefix(self, prefix: str) -> int:
        """Delete all names under a DOI prefix, and return their number. "10.1000" does not match 10.10001.

        Their registry records are deleted too.
        """
        start = fold(prefix).rstrip("/") + "/"
        gone = set(self._memory.keys(start))
        await self.begin_purge(start)
        self._drop(start)
        if self._store is not None:
            try:
                for key in gone:
                    await self._store.delete(key)
                async for entry in self._store.scan(start):
                    await self._store.delete(entry.key)
                    gone.add(entry.key)
                await self._store.flush()
            except StoreError as error:
                self._record_failure("delete", error)
        # Those of the entries were deleted with them.
        return len(gone) + await self.forget_registry(start)

    async def forget_registry(self, prefix: str = "") -> int:
        """Delete the registry records whose key begins with `prefix`, and return their number."""
        return 0 if self._store is None else await self._try("forget_registry", self._store.forget_registry(prefix), 0)

    async def scan(self, prefix: str = "") -> AsyncIterator[Entry]:
        """All entries whose key begins with `prefix`; see Store. A failure of the store ends the scan."""
        try:
            async for entry in (self._store or self._memory).scan(prefix):
                yield entry
        except StoreError as error:
            self._record_failure("scan", error)

    async def count_registry(self, prefix: str = "") -> int:
        """The number of names under `prefix` with a registry record and no entry; see Store."""
        return 0 if self._store is None else await self._try("count_registry", self._store.count_registry(prefix), 0)

    async def parents(self) -> tuple[ParentState, ...]:
        """The state of the parents that the store follows; see Store. Empty if the store fails."""
        return () if self._store is None else await self._try("parents", self._store.parents(), ())

    async def save_parent(self, state: ParentState) -> None:
        """Save the state of a parent; see Store."""
        if self._store is not None:
            await self._try("save_parent", self._store.save_parent(state), None)

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

    async def stats(self) -> TierStats:
        """The state of both tiers."""
        store = None
        if self._store is not None:
            unknown = StoreStats(0, 0, False, "the store does not answer")
            store = await self._try("stats", self._store.stats(), unknown)
        return TierStats(self._memory.entries, self._memory.bytes, self._memory.evictions, store, self.counters)

    async def check(self) -> None:
        """Raise StoreError if the store has failed since it was opened. For commands: a proxy counts that as a miss."""
        if self.counters.store_errors:
            stats = await self.stats()
            detail = "" if stats.store is None else stats.store.detail
            raise StoreError(f"The store failed, so the result is not complete: {detail}")

    async def flush(self) -> None:
        """Return when all earlier changes are durable, or the store has failed."""
        if self._store is not None:
            await self._try("flush", self._store.flush(), None)

    async def close(self) -> None:
        """Close both tiers."""
        if self._store is not None:
            await self._try("close", self._store.close(), None)
        await self._memory.close()

    async def watch(self, interval: float = WATCH_INTERVAL) -> None:
        """Keep memory consistent with the store and the clock. A task runs this loop until it is cancelled."""
        while True:
            await self.forget_announced()
            self._memory.drop_expired()
            await self.notice_clock_step()
            await asyncio.sleep(interval)

    async def forget_announced(self) -> None:
        """Drop the entries that other processes announced since the last call. The first call only sets the cursor."""
        if self._store is None:
            return
        changes = await self._try("changes", self._store.changes(self._cursor), None)
        if changes is None:
            return
        self._cursor = changes.cursor
        scopes = (EVERYTHING,) if changes.overrun else changes.keys
        if not scopes:
            return
        for scope in scopes:
            self._purges.record(scope, self._clock())
        # Until they are written, this process reads its own waiting entries, which the store may refuse.
        await self.flush()
        for scope in scopes:
            self._drop(scope)

    def _drop(self, scope: str) -> None:
        """Drop the entries of a scope from memory."""
        if scope == EVERYTHING:
            self._memory.clear()
        elif scope.endswith("/"):
            for key in self._memory.unsorted_keys():
                if key.startswith(scope):
                    self._memory.drop(key)
        else:
            self._memory.drop(scope)

    async def notice_clock_step(self) -> None:
        """Limit the times of the entries in memory if the clock was set back since the last call."""
        now = self._clock()
        step, self._latest = self._latest - now, max(self._latest, now)
        if step <= MAX_SKEW:
            return
        self._latest = now
        log.warning("The clock was set back by %.0f seconds; records with a later fetch time now count as stale.", step)
        for number, key in enumerate(self._memory.unsorted_keys()):
            if number % _ENTRIES_A_STEP == 0:
                await asyncio.sleep(0)
            self._memory.bound_times(key, self._ceiling)

    async def _read_store(self, key: str) -> Entry | None:
        stored = None if self._store is None else await self._try("get", self._store.get(key), None)
        bounded = None if stored is None else bound_times(stored, self._clock(), self._ceiling)
        return expire_unverified(bounded) if bounded is not None and self._only_verified else bounded

    def _keep(self, entry: Entry) -> None:
        """Replace the entry in memory."""
        admitted = expire_unverified(entry) if self._only_verified else entry
        if admitted is None:
            self._memory.drop(entry.key)
        else:
            self._memory.keep(admitted)

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
