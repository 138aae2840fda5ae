"""A store that may fail, and this process's memory in its place. No method raises StoreError."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

from doi_proxy.cache.memory import MemoryStore
from doi_proxy.cache.store import CountingStore, Store, StoreStats
from doi_proxy.errors import DamagedEntry, StoreError
from doi_proxy.system.incidents import Cause, Incidents

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
