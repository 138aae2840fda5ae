"""The cache of the resolver: this process's memory in front of one store. A failure of the store is a miss."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

from cachetools import LRUCache
from msgspec.structs import replace

from doi_names.name import fold
from doi_proxy.cache.entry import MAX_SKEW, Entry, bound_times, expire_unverified, loses_proof
from doi_proxy.cache.memory import MemoryStore
from doi_proxy.cache.missed import LateStore, Missed, delete_purged, forget_works
from doi_proxy.cache.store import (
    MAX_ANNOUNCEMENTS,
    MAX_LATE_PURGES,
    MAX_PURGES,
    UNKNOWN,
    CountingStore,
    ImmediateStore,
    Purges,
    RecordStore,
    Store,
    StoreLost,
    StoreStats,
    change_note,
)
from doi_proxy.errors import DamagedEntry, StoreError
from doi_proxy.system.check import Cause, Incidents

log = logging.getLogger(__name__)

Result = TypeVar("Result")

#: Seconds without a failure after which a store that failed counts as up again.
QUIET: Final = 5.0


@dataclass(slots=True)
class TierCounters:
    """Counters since start-up. The resolver counts answers."""

    store_errors: int = 0


@dataclass(frozen=True, slots=True)
class TierStats:
    """The state of both tiers. `store` is None if there is only memory."""

    memory_entries: int
    memory_bytes: int
    store: StoreStats | None
    counters: TierCounters

    @property
    def healthy(self) -> bool:
        """Whether the store works. Memory always works."""
        return self.store is None or self.store.healthy

    @property
    def state(self) -> Literal["memory-only", "ok", "read-only", "failing"]:
        """The state of the store as a word. A store that is read-only can be read, but not written."""
        if self.store is None:
            return "memory-only"
        return "ok" if self.store.healthy else "read-only" if self.store.is_read_only else "failing"


class Outage:
    """Detects the outages of a store. `clock` gives seconds since the epoch, and `timer` those of the monotonic clock.

    An outage ends when an operation that failed succeeds and no operation has failed for `quiet` seconds. A store that
    fails intermittently therefore logs one outage, not two lines for each failure. Seconds are those of `timer`: the
    clock can be set while the store fails.
    """

    def __init__(self, clock: Callable[[], float], timer: Callable[[], float], quiet: float) -> None:
        self._clock, self._timer = clock, timer
        self._quiet = quiet
        self._began_at = self._last_failure = 0.0
        self._failed: set[str] = set()
        self.incidents = Incidents("store")

    def record_failure(self, operation: str, reason: str, cause: str = "") -> None:
        """Record a failure. The first one of an outage is logged, and gives it its cause."""
        now = self._timer()
        if not self._failed:
            self._began_at = now
            self.incidents.begin(self._clock(), Cause(cause))
            text = (
                "The store is down: %s failed; this process continues with its memory. %s. Do not restart doi-proxy "
                "before the store works: what is in memory alone would be lost."
            )
            log.warning(text, operation, reason.rstrip("."))
        self._failed.add(operation)
        self._last_failure = now

    def record_success(self, operation: str) -> None:
        """Record a success. The one that ends an outage is logged."""
        if operation in self._failed:
            self.end()

    def end(self) -> None:
        """End the outage, unless an operation has failed a moment ago."""
        now = self._timer()
        if self._failed and now - self._last_failure >= self._quiet:
            self._failed.clear()
            self.incidents.end(self._clock())
            log.warning("The store is up again after %.0f seconds.", now - self._began_at)


class FallbackStore:
    """A store whose failures are noted, logged once for an outage, and count as a miss."""

    def __init__(
        self,
        memory: MemoryStore,
        store: Store | None,
        *,
        clock: Callable[[], float],
        observer: Callable[[str], None] | None = None,
    ) -> None:
        """`clock` gives seconds since the epoch. `observer` is called with the method of each failure."""
        self.memory = memory
        #: The second tier. None if there is only memory.
        self.store = store
        self._observer = observer
        self._outage = Outage(clock, time.monotonic, QUIET)
        self.counters = TierCounters()

    async def spend(self, name: str) -> int | None:
        """Count one query of all instances; see CountingStore. None if the store counts none, or fails."""
        store: object = self.store
        return await self._try("spend", store.spend(name), None) if isinstance(store, CountingStore) else None

    @property
    def incidents(self) -> Sequence[Incidents]:
        """The times in which the store failed, in seconds since the epoch."""
        return (self._outage.incidents,)

    async def end_outage(self) -> None:
        """End an outage if the store works again, also if no request uses what had failed."""
        if self.store is not None and self._outage.incidents.under_way is not None:
            stats = await self._try("stats", self.store.stats(), None)
            if stats is not None and stats.healthy:
                self._outage.end()

    async def _succeeds(self, operation: str, work: Awaitable[object]) -> bool:
        """Await work of the store. Returns whether it succeeded."""

        async def report() -> bool:
            await work
            return True

        return await self._try(operation, report(), False)

    async def _try(self, operation: str, work: Awaitable[Result], instead: Result) -> Result:
        try:
            result = await work
        except StoreError as error:
            self._record_failure(operation, error)
            return instead
        self._outage.record_success(operation)
        return result

    def _record_failure(self, operation: str, error: StoreError) -> None:
        self.counters.store_errors += 1
        # One damaged entry is not an outage. A write that fails because of it is lost, as any other is.
        is_damage = operation == "get" and isinstance(error, DamagedEntry)
        if not is_damage:
            self._outage.record_failure(operation, error.message, error.cause)
        if self._observer is not None:
            self._observer(operation)


#: Seconds between two reads of the announcements of other instances. A purge takes effect within twice this.
WATCH_INTERVAL: Final = 1.0


class TieredStore(FallbackStore):
    """Both tiers as one cache. No method raises StoreError: a failure of the store counts as a miss."""

    def __init__(
        self,
        memory: MemoryStore,
        store: Store | None,
        *,
        clock: Callable[[], float],
        ceiling: float,
        observer: Callable[[str], None] | None = None,
        only_verified: bool = False,
        late: LateStore | None = None,
    ) -> None:
        """`ceiling` limits how long an entry is fresh, in seconds, whatever its stored times are. `late` opens a store
        that could not be opened, or that is lost; `watch` tries again, and until then `store` is only read.

        With `only_verified`, an entry that is not verified is stale here, whatever its times in the store are.
        """
        super().__init__(memory, store, clock=clock, observer=observer)
        #: The entry of a key if it is in memory, even if stale. Does not wait.
        self.peek = memory.peek
        self._use(store)
        self._opener, self._late = late, late if late and late.reason else None
        self._clock = clock
        self._ceiling = ceiling
        self._latest = clock()
        self._only_verified = only_verified
        self._cursor: str | None = None
        self._reading_changes = asyncio.Lock()
        self._purges = Purges()
        self._purges.most = MAX_PURGES if self._late is None else MAX_LATE_PURGES
        self._missed = Missed()
        #: The hashes of the keys that this process has announced, until it reads the announcements.
        self._own_changes: LRUCache[int, None] = LRUCache(MAX_ANNOUNCEMENTS)

    def last_purge(self, *scopes: str) -> float:
        """The last purge of these scopes in the last hour or more, in seconds since the epoch. 0.0 without one."""
        return max(self._purges.get(scope, 0.0) for scope in scopes)

    def _use(self, store: Store | None) -> None:
        given: object = store
        self.store = store
        self._read_now = given.read_now if isinstance(given, ImmediateStore) else None
        #: What the files of registration agencies say. None without such a store.
        self.registry = given.registry if isinstance(given, RecordStore) else None
        if self.registry is not None:
            self.memory.peek_record = self.registry.peek

    async def get(self, key: str, *, newest: bool = False) -> Entry | None:
        """The entry from memory, or from the store if memory has none or a stale one.

        Another instance may have refreshed a stale entry, so the newer one wins. For the `newest` one of all instances,
        the store is read even if memory has a fresh one.
        """
        cached = self.memory.peek(key)
        if cached is not None and not newest and (self.store is None or cached.is_fresh(self._clock())):
            return cached
        return self._choose(cached, await self._read_store(key))

    async def find(self, key: str, *, newest: bool = False) -> Entry | None:
        """The usable entry, else what the file of a registration agency says about a name, else any entry."""
        entry = await self.get(key, newest=newest)
        if entry is not None and entry.is_usable(self._clock()):
            return entry
        try:
            record = self._find_record(key)
        except StoreError as error:
            self._record_failure("get", error)
            record = None
        if record is not None:
            self.memory.drop(key)  # an entry past its end would hide it from `get_now`
        return record or entry

    def _find_record(self, key: str) -> Entry | None:
        return None if self.registry is None else self._bound(self.registry.find(key))

    def read_ahead(self, keys: Sequence[str]) -> None:
        """Read the registry records of keys together. `get_now` then finds them in memory."""
        if self.registry is not None and len(keys) > 1:
            with suppress(StoreError):  # `find` meets the same error, and reports it
                self.registry.read_ahead([key for key in keys if self.memory.peek_with_records(key) is None])

    def get_now(self, key: str) -> Entry | None:
        """The entry of memory, even if it is stale; else what `find` finds, if reading it takes no task."""
        cached = self.memory.peek(key)
        if cached is not None or self._read_now is None:
            return cached
        try:
            if (stored := self._read_now(key)) is None:
                return self._find_record(key)
        except StoreError:
            return None  # `find` meets the same error, and reports it
        self._outage.record_success("get")
        return self._choose(None, self._bound(stored))

    def _choose(self, cached: Entry | None, stored: Entry | None) -> Entry | None:
        """The newer entry, of memory or of the store. Memory admits that of the store."""
        if stored is None or (cached is not None and cached.fetched_at >= stored.fetched_at):
            return cached
        keep = self.memory.admit if cached is None else self.memory.keep
        keep(stored)
        return stored

    async def put(
        self, entry: Entry, announce: bool = False, *, sent_at: float | None = None, unless_newer: bool = False
    ) -> None:
        """Put an entry into both tiers. With `announce`, other instances drop their copy from memory.

        It is not put if its key was purged after its query was sent at `sent_at`, or if it is not verified and would
        replace a fresh verified one. For `unless_newer`, see Store.
        """
        is_refused = sent_at is not None and self._purges and self._purges.refuses(entry.key, sent_at, self._clock())
        if is_refused or loses_proof(self.memory.peek(entry.key), entry, self._clock()):
            return
        self._keep(entry)
        if self.store is not None:
            if announce:
                self._own_changes[hash(entry.key)] = None
            write = self.store.put(entry, announce=announce, sent_at=sent_at, unless_newer=unless_newer)
            if not await self._succeeds("put", write):
                self._missed.add(entry.key, announce=announce)

    async def put_newer(self, entry: Entry) -> bool:
        """Put an entry unless the cache has one that is as new, or a fresh verified one. Returns whether it was put.

        An import must call `flush` from time to time, because the queue of writes is limited.
        """
        newest, now = await self.get(entry.key, newest=True), self._clock()
        if newest and (newest.is_proof(now) or (newest.fetched_at >= entry.fetched_at and newest.is_usable(now))):
            return False
        # Another instance may fetch the record until this one is written, so the store compares again.
        await self.put(entry, announce=newest is not None, unless_newer=True)
        return True

    async def expire(self, entry: Entry, *, announce: bool = True) -> None:
        """Make an entry stale: it is served only while the upstream cannot be queried. A "not found" is deleted."""
        if entry.is_negative:
            await self.delete(entry.key, announce=announce)
            return
        stale = replace(entry, fresh_until=min(entry.fresh_until, self._clock()))
        if self.store is None or self._late is not None:
            self.memory.keep(stale)
            return
        # The next request takes it from the store, if it is still needed.
        self.memory.drop(entry.key)
        if not await self._succeeds("put", self.store.put(stale, announce=announce, unless_newer=True)):
            self.memory.keep(stale)
            self._missed.add(entry.key, announce=announce)

    async def begin_purge(self, scope: str, dropped: list[str] | None = None) -> None:
        """Refuse the answers to earlier queries, in all instances, and drop the entries of `scope` from memory.

        `scope` is a key, a prefix with a slash at its end, or "" for everything. The caller deletes or expires the
        entries in the store afterwards. With memory alone, nothing is dropped here. `dropped` gets the dropped keys.
        """
        self._purges.record(scope, self._clock())
        if self.store is not None:
            # Entries that still wait to be written are older than the purge.
            await self.flush()
            if not await self._succeeds("delete", self.store.delete(scope)):
                self._missed.purges.record(scope, self._clock())
            await self.flush()
            async for key in self.memory.drop_scope(scope):
                if dropped is not None:
                    dropped.append(key)
        await self.forget_works([scope])

    async def end_purge(self, scope: str) -> None:
        """Let other instances drop what they read before the caller deleted it without announcing it."""
        if self.store is not None:
            await self._try("announce", self.store.announce(scope), None)
            await self.flush()

    async def forget_works(self, scopes: Collection[str]) -> None:
        """Drop the works of scopes from their note."""
        if self.store is not None:
            await self._try("write_note", forget_works(self.store, frozenset(scopes)), None)

    async def delete(self, key: str, *, announce: bool = True) -> bool:
        """Delete an entry in both tiers and, with `announce`, in other instances. Returns whether there was one."""
        if announce:
            self._purges.record(key, self._clock())
        existed = self.memory.drop(key)
        if self.store is not None:
            in_store = await self._try("delete", self.store.delete(key, announce=announce), None)
            if in_store is None:
                self._missed.purges.record(key, self._clock())
            existed = in_store or existed
            await self.flush()
        return existed

    async def clear_prefix(self, prefix: str) -> int:
        """Delete all names under a DOI prefix, with their registry records. Returns their number."""
        start = fold(prefix).rstrip("/") + "/"
        dropped, count = list[str](), 0
        await self.begin_purge(start, dropped)
        if self.store is not None:
            count = len(dropped)
            while dropped:  # freed in one turn, 1,000,000 keys take 46 ms
                # Entries of memory that are deleted in one turn.
                if len(dropped) % 250 == 0:
                    await asyncio.sleep(0)
                await self._try("delete", self.store.delete(dropped.pop(), announce=False), False)
            async for entry in self.scan(start):
                await self._try("delete", self.store.delete(entry.key, announce=False), False)
                count += 1
            await self.end_purge(start)
        # With memory alone, or what was read from the store again meanwhile.
        async for _ in self.memory.drop_scope(start):
            count += self.store is None
        return count + await self.forget_registry(start)

    async def forget_registry(self, prefix: str = "") -> int:
        """Delete the registry records whose key begins with `prefix`, and return their number."""
        return 0 if self.registry is None else await self._try("forget_registry", self.registry.forget(prefix), 0)

    async def scan(self, prefix: str = "") -> AsyncIterator[Entry]:
        """All entries whose key begins with `prefix`; see Store. A failure of the store ends the scan."""
        try:
            async for entry in (self.store or self.memory).scan(prefix):
                yield entry
        except StoreError as error:
            self._record_failure("scan", error)

    async def count_registry(self, prefix: str = "") -> int:
        """The number of names under `prefix` with a registry record and no entry."""
        return 0 if self.registry is None else await self._try("count_registry", self.registry.count(prefix), 0)

    async def read_note(self, name: str) -> bytes | None:
        """The value of a note; see Store. None if the store fails."""
        return None if self.store is None else await self._try("read_note", self.store.read_note(name), None)

    async def change_note(self, name: str, change: Callable[[bytes | None], bytes]) -> bool:
        """Replace the value of a note by what `change` returns for it. If it cannot be read, it stays.

        Returns whether the store has it, or there is none.
        """
        return self.store is None or await self._succeeds("write_note", change_note(self.store, name, change))

    async def stats(self) -> TierStats:
        """The state of both tiers."""
        store = None
        if self.store is not None:
            store = await self._try("stats", self.store.stats(), StoreStats(0, 0, False, "the store does not answer"))
        if self._late is not None:
            seen = store or StoreStats(0, 0, False, "")
            store = StoreStats(seen.entries, seen.bytes, False, self._late.reason, seen.registry, seen.healthy)
        return TierStats(self.memory.entries, self.memory.bytes, store, self.counters)

    async def check(self) -> None:
        """Raise StoreError if the store has failed since it was opened. For commands: a proxy counts that as a miss."""
        if self.counters.store_errors:
            stats = await self.stats()
            detail = "" if stats.store is None else stats.store.detail
            raise StoreError(f"The store failed, so the result is not complete: {detail}")

    @property
    def has_missed_purges(self) -> bool:
        """Whether the store, and with it the other instances, get a purge only when the store is back."""
        return self._late is not None or bool(self._missed.purges)

    async def flush(self) -> None:
        """Return when all earlier changes are durable, or the store has failed."""
        if self.store is not None:
            await self._try("flush", self.store.flush(), None)

    async def close(self) -> None:
        """Close both tiers."""
        await self.write_missed()
        if self.store is not None:
            await self._try("close", self.store.close(), None)
        await self.memory.close()

    async def watch(self, interval: float = WATCH_INTERVAL) -> None:
        """Keep memory consistent with the store and the clock. A task runs this loop until it is cancelled."""
        while True:
            await self.open_late()
            if self._late is None:
                await self.end_outage()
            await self.write_missed()
            await self.forget_announced()
            self.memory.drop_expired()
            await self.notice_clock_step()
            await asyncio.sleep(interval)

    @property
    def incidents(self) -> Sequence[Incidents]:
        """See FallbackStore. A store that cannot be opened has incidents of its own."""
        return super().incidents if self._opener is None else (*super().incidents, self._opener.incidents)

    async def wait_for_store(self) -> Store | None:
        """The store, once it is open. None if there is only memory."""
        if self._late is not None:
            await self._late.used.wait()
        return self.store

    async def open_late(self) -> None:
        """Try again to open a store that could not be opened. It then gets the purges and the records since."""
        late = self._late
        if late is None or (store := await late.open()) is None:
            return
        for scope, at in tuple(self._purges.items()):
            # The other instances open it too, and know their purges.
            with suppress(StoreError):
                await delete_purged(store, scope, at, announce=False)
        self._missed.purges.clear()
        self._missed.add_everything()
        before, self._late = self.store, None
        self._use(store)
        # The announcements of another file have other numbers.
        self._cursor = None
        await self.write_missed()
        await late.replace(before)

    async def write_missed(self) -> None:
        """Write to the store what it missed while it was away, if it is back."""
        if self._missed and self.store is not None and self._late is None:
            with suppress(StoreError):  # it is away, and this is tried again
                await self._missed.write(self.store, self.memory, self._purges, self._clock(), self.forget_announced)
                self._outage.record_success("put")

    def _record_failure(self, operation: str, error: StoreError) -> None:
        if self._opener is None or not isinstance(error, StoreLost):
            super()._record_failure(operation, error)
        elif self._late is None:
            self._late, self._purges.most = self._opener, MAX_LATE_PURGES
            self._late.lose(error)

    async def forget_announced(self) -> None:
        """Drop the entries that other instances announced since the last call. The first call only sets the cursor."""
        if self.store is None:
            return
        # Two calls at a time would read the same changes, and record a purge again, at a later time.
        async with self._reading_changes:
            changes = await self._try("changes", self.store.changes(self._cursor), None)
            if changes is None:
                return
            self._cursor = changes.cursor
            scopes = (UNKNOWN,) if changes.overrun else changes.keys
            for scope in scopes:
                self._purges.record(scope, self._clock())
            # Until they are written, this process reads its own waiting entries, which the store may refuse.
            if scopes:
                await self.flush()
            for scope in scopes:
                if hash(scope) in self._own_changes and await self._has_newest(scope):
                    continue
                async for _ in self.memory.drop_scope(scope):
                    pass

    async def _has_newest(self, key: str) -> bool:
        """Whether memory has the entry of the store, after an announcement that may be this process's own.

        Dropped, the record would be missing if the store fails before the next request for it. One that another
        instance has made stale is fresh for longer in memory than in the store.
        """
        del self._own_changes[hash(key)]
        known, stored = self.memory.peek(key), await self._read_store(key)
        # A store has the end of a TTL rounded down by less than this, in seconds.
        return (
            known is not None
            and stored is not None
            and known.fetched_at == stored.fetched_at
            and known.fresh_until < stored.fresh_until + 1.0
        )

    async def notice_clock_step(self) -> None:
        """Limit the times of the entries in memory if the clock was set back since the last call."""
        now = self._clock()
        step, self._latest = self._latest - now, max(self._latest, now)
        if step <= MAX_SKEW:
            return
        self._latest = now
        text = "The clock was set back by %.0f seconds; records with a later fetch time now count as stale."
        log.warning(f"{text} Check the time service of this machine (timedatectl).", step)
        async for key in self.memory.walk():
            self.memory.bound_times(key, self._ceiling)

    async def _read_store(self, key: str) -> Entry | None:
        return None if self.store is None else self._bound(await self._try("get", self.store.get(key), None))

    def _bound(self, stored: Entry | None) -> Entry | None:
        """What an entry of the store counts as in this process. One that missed a purge still has what was purged."""
        now = self._clock()
        if stored is None or (
            (self._late or self._missed.purges) and self._purges.refuses(stored.key, stored.fetched_at, now)
        ):
            return None
        bounded = bound_times(stored, now, self._ceiling)
        return expire_unverified(bounded) if self._only_verified else bounded

    def _keep(self, entry: Entry) -> None:
        """Replace the entry in memory."""
        self.memory.keep(expire_unverified(entry) if self._only_verified else entry)
