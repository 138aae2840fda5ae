"""The memory tier: entries in this process's memory, limited in bytes. The least recently used are evicted first."""

from __future__ import annotations

import asyncio
import builtins
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterable
from itertools import chain
from typing import Final
from zlib import crc32

from doi_proxy.cache.entry import Entry, bound_times
from doi_proxy.cache.store import (
    EVERYTHING,
    MAX_ANNOUNCED_BYTES,
    MAX_ANNOUNCEMENTS,
    NOT_FOUND,
    Changes,
    Purges,
    StoreStats,
    has_many_keys,
)

#: Bits of one generation, 256 KiB. A power of two.
_BITS: Final = 2**21
#: Names of one generation. Of the names that were not seen, at most an eighth counts as seen.
SPAN: Final = 2**17


class Doorkeeper:
    """Remembers the last SPAN names that were seen, and up to twice as many. A few others count as seen as well."""

    def __init__(self) -> None:
        self._young = bytearray(_BITS // 8)
        self._old = bytearray(_BITS // 8)
        self._names = 0

    def has_seen(self, key: str) -> bool:
        """Whether a name was seen lately. It has been from now on."""
        place = crc32(key.encode(errors="surrogatepass")) % _BITS
        at, bit = place >> 3, 1 << (place & 7)
        if self._young[at] & bit:
            return True
        was_seen = bool(self._old[at] & bit)
        if self._names == SPAN:
            self._old, self._young, self._names = self._young, bytearray(_BITS // 8), 0
        self._young[at] |= bit
        self._names += 1
        return was_seen


#: Bytes of one table, at most. CPython builds a table anew now and then: 4 ms at 12,500 entries, 75 ms at 400,000.
_TABLE_BYTES: Final = 8 * 2**20
#: Bits of a hash that do not select a table. The lowest ones select the place in it.
_HASH_SHIFT: Final = 32
#: Keys that are looked at in one step. 1,000 that are dropped take 2 ms.
_KEYS_A_STEP: Final = 1_000


class MemoryStore:
    """The memory tier. It is also a Store that one process uses alone, in one thread.

    `bytes` matches the resident memory: measured over 100,000 entries, a record with 1.2 kB of JSON takes 1,618 B, and
    one with 300 B takes 725 B.
    """

    def __init__(self, max_bytes: int, *, clock: Callable[[], float]) -> None:
        """`max_bytes` limits the sum of the entries' `size`. `clock` gives seconds since the epoch."""
        #: Each in the order of its last use. An entry is in one table, since each that a hit touches is a miss of the
        #: CPU's caches.
        self._tables: list[OrderedDict[str, Entry]] = [
            OrderedDict() for _ in range(1 << (max_bytes // _TABLE_BYTES).bit_length())
        ]
        self._mask = len(self._tables) - 1
        self._bytes, self._max_bytes = 0, max_bytes
        #: The number of entries that were evicted for lack of room.
        self.evictions = 0
        #: Finds what is known beside the entries, in the memory of a store with registry records.
        self.peek_record: Callable[[str], Entry | None] = lambda _: None
        self._clock = clock
        self._doorkeeper = Doorkeeper()
        # Negative entries whose expiry is tracked. Beyond that, the oldest ones stay until they are evicted.
        self._expiring: deque[tuple[float, str]] = deque(maxlen=100_000)
        self._announced: deque[str] = deque()
        self._announced_bytes = 0
        #: The number of all announcements.
        self._announcements = 0
        self._purges = Purges()
        self._notes: dict[str, builtins.bytes] = {}

    @property
    def entries(self) -> int:
        """The number of entries."""
        return sum(map(len, self._tables))

    @property
    def bytes(self) -> int:
        """The sum of the entries' sizes."""
        return self._bytes

    def peek(self, key: str) -> Entry | None:
        """The entry, even if it is stale or expired. This counts as a use."""
        table = self._tables[hash(key) >> _HASH_SHIFT & self._mask]
        entry = table.get(key)
        if entry is not None:
            table.move_to_end(key)
        return entry

    def peek_with_records(self, key: str) -> Entry | None:
        """The entry, else the registry record if it was read lately."""
        return self.peek(key) or self.peek_record(key)

    def _table_of(self, key: str) -> OrderedDict[str, Entry]:
        return self._tables[hash(key) >> _HASH_SHIFT & self._mask]

    def list_known(self, keys: Iterable[str]) -> list[str]:
        """Those of the keys that have an entry. This does not count as a use."""
        return [key for key in keys if key in self._table_of(key)]

    def keep(self, entry: Entry) -> None:
        """Replace the entry of a key. An entry that is larger than the whole tier is dropped."""
        self._put(entry, entry.size)

    def _put(self, entry: Entry, size: int) -> None:
        if size > self._max_bytes:
            self.drop(entry.key)
            return
        known, table = self.peek(entry.key), self._table_of(entry.key)
        self._bytes += size - (0 if known is None else known.size)
        # A key that is there keeps its slot: to remove and add many would make the table be built anew.
        table[entry.key] = entry
        while self._bytes > self._max_bytes:
            # The table of the entry makes room. If it has no other one, the fullest does.
            full = table if len(table) > 1 else max((each for each in self._tables if each is not table), key=len)
            self._bytes -= full.popitem(last=False)[1].size
            self.evictions += 1
        # That of a prefix is kept as long as a record, and would hold up the others in this queue.
        if entry.is_negative and "/" in entry.key:
            self._expiring.append((entry.stale_until, entry.key))

    def admit(self, entry: Entry) -> None:
        """Keep an entry that the store has too. If that would evict others, it must have been admitted before."""
        size = entry.size
        if self._bytes + size <= self._max_bytes or self._doorkeeper.has_seen(entry.key):
            self._put(entry, size)

    def drop(self, key: str) -> bool:
        """Drop an entry. Returns whether there was one."""
        entry = self._table_of(key).pop(key, None)
        self._bytes -= 0 if entry is None else entry.size
        return entry is not None

    async def drop_scope(self, scope: str) -> AsyncIterator[str]:
        """Drop the entries of a scope in turns of 3 ms, and yield the key of each; see Purges."""
        if has_many_keys(scope):
            async for key in self.walk(scope if scope.endswith("/") else EVERYTHING):
                entry = self._table_of(key).get(key)
                if entry is not None and (scope != NOT_FOUND or entry.is_negative):
                    self.drop(key)
                    yield key
        elif self.drop(scope):
            yield scope

    def drop_expired(self) -> int:
        """Drop expired negative entries and return their number. Stale records stay, as they may still be needed."""
        now, dropped = self._clock(), 0
        # Negative entries that are dropped in one step, which takes about 10 ms.
        for _ in range(min(len(self._expiring), 10_000)):
            if self._expiring[0][0] > now:
                break
            key = self._expiring.popleft()[1]
            entry = self._table_of(key).get(key)
            if entry is not None and entry.is_negative and not entry.is_kept(now):
                dropped += self.drop(key)
        return dropped

    def bound_times(self, key: str, ceiling: float) -> None:
        """Apply bound_times to the entry of a key, after the clock was set back."""
        entry = self._table_of(key).get(key)
        if entry is not None and (bounded := bound_times(entry, self._clock(), ceiling)) is not entry:
            self.keep(bounded)

    async def walk(self, prefix: str = "") -> AsyncIterator[str]:
        """The keys that begin with `prefix`, unsorted. Other tasks run after each _KEYS_A_STEP keys."""
        walked = 0
        for table in self._tables:
            keys = list(dict.keys(table))
            while keys:
                if walked % _KEYS_A_STEP == 0:
                    await asyncio.sleep(0)
                walked += 1
                # The list may be the last that has the key. 1,000,000 that are freed in one turn take 46 ms.
                key = keys.pop()
                if key.startswith(prefix):
                    yield key

    def unsorted_keys(self) -> list[str]:
        """All keys, unsorted."""
        # Those of the dictionaries below: in order, 1,000,000 take a second instead of 65 ms.
        return list(chain.from_iterable(map(dict.keys, self._tables)))

    async def get(self, key: str) -> Entry | None:
        """See Store."""
        entry = self.peek(key)
        return entry if entry is not None and entry.is_kept(self._clock()) else None

    async def put(
        self, entry: Entry, *, announce: bool = False, sent_at: float | None = None, unless_newer: bool = False
    ) -> None:
        """See Store."""
        now = self._clock()
        if sent_at is not None and self._purges.refuses(entry.key, sent_at, now):
            return
        known = self._table_of(entry.key).get(entry.key)
        if unless_newer and known is not None and known.is_usable(now) and known.fetched_at > entry.fetched_at:
            return
        self.keep(entry)
        if announce:
            await self.announce(entry.key)

    async def delete(self, key: str, *, announce: bool = True) -> bool:
        """See Store."""
        if announce:
            self._purges.record(key, self._clock())
            await self.announce(key)
        return self.drop(key)

    async def announce(self, scope: str) -> None:
        """See Store."""
        self._announced.append(scope)
        self._announced_bytes += len(scope.encode())
        self._announcements += 1
        while len(self._announced) > MAX_ANNOUNCEMENTS or self._announced_bytes > MAX_ANNOUNCED_BYTES:
            self._announced_bytes -= len(self._announced.popleft().encode())

    async def read_note(self, name: str) -> builtins.bytes | None:
        """See Store."""
        return self._notes.get(name)

    async def write_note(self, name: str, data: builtins.bytes) -> None:
        """See Store."""
        self._notes[name] = data

    async def scan(self, prefix: str = "") -> AsyncIterator[Entry]:
        """See Store."""
        async for key in self.walk(prefix):
            entry = self._table_of(key).get(key)
            if entry is not None and entry.is_kept(self._clock()):
                yield entry

    async def changes(self, cursor: str | None) -> Changes:
        """See Store."""
        missed = 0 if cursor is None else self._announcements - int(cursor)
        now = str(self._announcements)
        if missed > len(self._announced):
            return Changes(now, overrun=True)
        return Changes(now, tuple(self._announced)[len(self._announced) - missed :])

    async def stats(self) -> StoreStats:
        """See Store."""
        return StoreStats(self.entries, self.bytes, True, "in this process's memory")

    async def flush(self) -> None:
        """Do nothing: entries in memory are visible immediately and lost at the end of the process."""

    async def close(self) -> None:
        """Drop all entries."""
        for table in self._tables:
            table.clear()
        self._bytes = 0
