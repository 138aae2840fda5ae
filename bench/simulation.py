"""A simulated proxy: the decisions of resolver and cache about each request, without I/O, and with any clock.

The memory tier, the entries and the next step are those of the program. `bench/tests/test_bench_simulation.py` sends
the same requests to a real resolver.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from doi_proxy.cache.entry import Entry
from doi_proxy.cache.memory import MemoryStore
from doi_proxy.resolver.resolution import ORDINARY, Step, next_step, refresh_from
from handle_protocol.referral import Answer

#: As in resolver/resolver.py: hits after which a record is refreshed ahead, and names whose hits are counted.
POPULAR_HITS: Final = 3
MAX_REMEMBERED: Final = 10_000
#: As in app/doi_proxy/features/sqlite/store.py: seconds between two writes of the time at which an entry was last used.
USE_INTERVAL: Final = 3_600.0


class Tier(Enum):
    """The source of an answer."""

    MEMORY = "memory"
    STORE = "store"
    UPSTREAM = "upstream"


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of the tiers, and how long records are fresh, in seconds. Records are usable for `grace` after that."""

    memory_bytes: int
    #: 0 if there is no store.
    store_entries: int
    lifetime: float
    grace: float
    #: Names whose hits are counted, for the refresh ahead.
    remembered: int = MAX_REMEMBERED
    #: Seconds after which a use of an entry of the store counts for its eviction.
    use_interval: float = USE_INTERVAL


@dataclass(frozen=True, slots=True)
class Shares:
    """The answers of each tier, and the upstream queries, which include those of the refresh ahead."""

    memory: int
    store: int
    upstream: int
    refreshes: int

    @property
    def requests(self) -> int:
        """All answers."""
        return self.memory + self.store + self.upstream

    @property
    def from_memory(self) -> float:
        """The share of answers from the memory tier."""
        return self.memory / self.requests

    @property
    def from_cache(self) -> float:
        """The share of answers from memory or the store."""
        return (self.memory + self.store) / self.requests

    @property
    def queries(self) -> float:
        """The upstream queries for each answer."""
        return (self.upstream + self.refreshes) / self.requests


class _Store:
    """The entries of the SQLite store, the least recently used first."""

    def __init__(self, most: int, use_interval: float) -> None:
        self._most = most
        self._use_interval = use_interval
        self._rows: OrderedDict[str, tuple[Entry, float]] = OrderedDict()

    def get(self, key: str, now: float) -> Entry | None:
        row = self._rows.get(key)
        if row is None:
            return None
        if now - row[1] >= self._use_interval:
            self.put(row[0], now)
        return row[0]

    def put(self, entry: Entry, now: float) -> None:
        self._rows[entry.key] = entry, now
        self._rows.move_to_end(entry.key)
        if len(self._rows) > self._most:
            self._rows.popitem(last=False)


class SimulatedProxy:
    """One process and its store. The upstream has the same answer for every name."""

    def __init__(self, sizes: Sizes, answer: Answer) -> None:
        self._sizes = sizes
        self._answer = answer
        self._now = 0.0
        self._memory = MemoryStore(sizes.memory_bytes, clock=lambda: self._now)
        self._store = _Store(sizes.store_entries, sizes.use_interval)
        self._hits: OrderedDict[str, int] = OrderedDict()
        self.refreshes = 0

    def request(self, key: str, now: float) -> Tier:
        """Answer a request for the name with this key. `now` must not decrease."""
        self._now = now
        entry, tier = self._find(key, now)
        is_fresh = entry is not None and next_step(entry, now, ORDINARY, has_failed=False) is Step.ANSWER
        if entry is not None and is_fresh and not self._is_popular(entry, now):
            return tier
        self._fetch(key, now)
        if not is_fresh:
            return Tier.UPSTREAM
        self._hits.pop(key, None)
        self.refreshes += 1
        return tier

    def _find(self, key: str, now: float) -> tuple[Entry | None, Tier]:
        """See TieredStore.get."""
        cached = self._memory.peek(key)
        if cached is not None and cached.is_fresh(now):
            return cached, Tier.MEMORY
        stored = self._store.get(key, now)
        if stored is not None and stored.is_usable(now) and (cached is None or stored.fetched_at > cached.fetched_at):
            self._memory.admit(stored)
            return stored, Tier.STORE
        return cached, Tier.MEMORY

    def _fetch(self, key: str, now: float) -> None:
        ends = now + self._sizes.lifetime
        entry = Entry(key, self._answer, now, ends, ends + self._sizes.grace)
        self._memory.keep(entry)
        self._store.put(entry, now)

    def _is_popular(self, entry: Entry, now: float) -> bool:
        """See Resolver."""
        if now < refresh_from(entry):
            return False
        hits = self._hits[entry.key] = self._hits.get(entry.key, 0) + 1
        while len(self._hits) > self._sizes.remembered:
            self._hits.popitem(last=False)
        return hits >= POPULAR_HITS


def simulate(proxy: SimulatedProxy, requests: Iterable[tuple[str, float]]) -> Shares:
    """Send requests, each a key and a time in seconds. Returns the share of each outcome."""
    refreshes = proxy.refreshes
    counts = Counter(proxy.request(key, now) for key, now in requests)
    return Shares(counts[Tier.MEMORY], counts[Tier.STORE], counts[Tier.UPSTREAM], proxy.refreshes - refreshes)
