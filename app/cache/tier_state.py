"""What the two tiers of the cache count and report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from app.cache.store import StoreStats


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
