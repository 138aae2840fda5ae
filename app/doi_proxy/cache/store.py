"""The interface of every store, the second tier of the cache."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final, Protocol, runtime_checkable

from doi_proxy.cache.entry import Entry
from doi_proxy.errors import StoreError

#: Seconds for which a purge is remembered. No query takes this long.
PURGE_MEMORY: Final = 3_600.0
#: Purges that are remembered one by one. Beyond that, one of UNKNOWN takes their place.
MAX_PURGES: Final = 5_000
#: The same for a process that waits for its store, which it then purges: of UNKNOWN, it must purge everything.
MAX_LATE_PURGES: Final = 50_000
#: The scope of a purge of everything.
EVERYTHING: Final = ""
#: The scope of purges that are no longer known one by one. It deletes nothing. It refuses more answers to earlier
#: queries than necessary, and each of those costs one more query. A name has no control characters.
UNKNOWN: Final = "\tpurges"
#: The scope of a purge of every "not found". It too refuses more answers than necessary.
NOT_FOUND: Final = "\tnot-found"


def has_many_keys(scope: str) -> bool:
    """Whether a scope is more than one key."""
    return scope in (EVERYTHING, UNKNOWN, NOT_FOUND) or scope.endswith("/")


def scopes_of(key: str) -> tuple[str, str, str]:
    """The scopes whose purge concerns a key: the key itself, its prefix with a slash at the end, and everything."""
    return key, key.partition("/")[0] + "/", EVERYTHING


class Purges(dict[str, float]):
    """The time of the last purge of each scope, in seconds since the epoch. Empty is the usual case."""

    most = MAX_PURGES

    def record(self, scope: str, at: float) -> None:
        """Record a purge."""
        if len(self) >= self.most and scope not in self:
            self.clear()
            scope = UNKNOWN
        self[scope] = at

    def refuses(self, key: str, sent_at: float, now: float) -> bool:
        """Whether a query about `key` that was sent at `sent_at` is older than a purge.

        A purge in the future was recorded before the clock was set back. It does not count.
        """
        return any(sent_at < self.get(scope, -inf) <= now for scope in (*scopes_of(key), UNKNOWN, NOT_FOUND))


#: Announcements that a store keeps. An instance that missed more than these drops its whole memory tier.
MAX_ANNOUNCEMENTS: Final = 5_000
#: Bytes of those that memory and a SQLite file keep. A name has 8,192 bytes at most, and one from the field about 25.
MAX_ANNOUNCED_BYTES: Final = 1024 * 1024


class StoreUnavailable(StoreError):
    """The store cannot be opened now. It can be later: the disk is full or read-only, or another process locks it."""


class StoreLost(StoreError):
    """The file of the store was deleted, replaced or damaged while it was open. It must be opened again."""


@dataclass(frozen=True, slots=True)
class StoreStats:
    """The state of a store: its entries, its bytes, whether its last operation succeeded, and a description.

    `registry` is the number of its records from the registration agencies' files, which `entries` and `bytes` do not
    include. With `is_read_only`, it is not healthy because it can be read, but not written.
    """

    entries: int
    bytes: int
    healthy: bool
    detail: str
    registry: int = 0
    is_read_only: bool = False


@dataclass(frozen=True, slots=True)
class Changes:
    """The announcements after a cursor: the `cursor` for the next call, and the keys to drop from memory.

    With `overrun`, announcements were lost, and the whole memory tier must be dropped.
    """

    cursor: str
    keys: tuple[str, ...] = ()
    overrun: bool = False


class Store(Protocol):
    """Entries by key, and the feed of names to forget. Every method may raise StoreError."""

    async def get(self, key: str) -> Entry | None:
        """The entry, or None if there is none or its hard expiry has passed."""

    async def put(
        self, entry: Entry, *, announce: bool = False, sent_at: float | None = None, unless_newer: bool = False
    ) -> None:
        """Store an entry, replacing the previous one. With `announce`, other instances drop their copy from memory.

        The entry is visible to this process immediately, and to other instances at the latest after `flush`. It is not
        stored if its key was purged after `sent_at`, the time at which its query was sent. With `unless_newer`, it
        does not replace a usable entry that was fetched later. An entry that is not verified never replaces a fresh
        verified one; the key is announced, because processes may have it in memory. All is decided together with the
        write.
        """

    async def delete(self, key: str, *, announce: bool = True) -> bool:
        """Purge an entry and announce it. Returns whether there was one. The deletion is durable after `flush`.

        `put` refuses the answers to earlier queries (see Purges). A key with a slash at its end stands
        for all keys that begin with it, and "" for all keys: their earlier queries are refused, and the caller
        deletes the entries, without `announce`.
        """

    async def announce(self, scope: str) -> None:
        """Let other instances drop their copies of a scope. Durable after `flush`."""

    async def changes(self, cursor: str | None) -> Changes:
        """The announcements after `cursor`. None returns only a cursor for the next call."""

    def scan(self, prefix: str = "") -> AsyncIterator[Entry]:
        """The entries whose key begins with `prefix`, in SQLite in key order. Pages have a limited size.

        Entries that are put or deleted meanwhile may be missing. Valkey may return an entry twice.
        """

    async def read_note(self, name: str) -> bytes | None:
        """The value that a feature keeps under a name of its own."""

    async def write_note(self, name: str, data: bytes) -> None:
        """Keep a value. Earlier changes are durable before it, and it is durable at the end."""

    async def stats(self) -> StoreStats:
        """The state of the store. This does not visit every entry."""

    async def flush(self) -> None:
        """Return when all earlier changes are durable and visible to all instances."""

    async def close(self) -> None:
        """Flush, and close files, connections and threads."""


@runtime_checkable
class ImmediateStore(Protocol):
    """A store on this machine: reading an entry takes microseconds, and no task."""

    def read_now(self, key: str) -> Entry | None:
        """The same as `Store.get`. Raises StoreError."""


@runtime_checkable
class CountingStore(Protocol):
    """A store that counts the queries of all instances, which share one rate."""

    async def spend(self, name: str) -> int:
        """Count one query in the counter `name`, and return the number of all that were counted. Raises StoreError.

        A counter that no instance has used for a minute may start at 0 again.
        """


@dataclass(frozen=True, slots=True)
class NearKeys:
    """Keys near a key. `known` are those of its candidates that have an entry, in no order.

    `before` and `after` are the keys of registry records next to it in order, the nearest first.
    """

    known: Sequence[str] = ()
    before: Sequence[str] = ()
    after: Sequence[str] = ()
    #: The candidates with a registry record.
    records: Sequence[str] = ()


class RegistryRecords(Protocol):
    """Records of the registration agencies' files, in a store on this machine. Every method but `peek` may raise
    StoreError.
    """

    def peek(self, key: str) -> Entry | None:
        """The record of a key if it was read lately, and none has changed since."""

    def find(self, key: str) -> Entry | None:
        """The record of a key, a RegistryEntry. Takes microseconds, and no task."""

    def read_ahead(self, keys: Sequence[str]) -> None:
        """Read the records of keys that have no entry, so that `find` takes them from memory."""

    async def forget(self, prefix: str) -> int:
        """Delete the records whose key begins with `prefix`, and return their number."""

    async def count(self, prefix: str) -> int:
        """The number of names under `prefix` with a record and no usable entry."""

    async def find_near(self, key: str, candidates: Sequence[str]) -> NearKeys:
        """The candidates that the store has, and the keys next to `key`. Likely candidates come first."""


@runtime_checkable
class RecordStore(Protocol):
    """A store with such records beside the entries. To purge a name deletes its record too."""

    #: None if no feature reads them.
    registry: RegistryRecords | None


async def change_note(store: Store, name: str, change: Callable[[bytes | None], bytes]) -> None:
    """Replace the value of a note by what `change`, in a thread, returns for it. Another instance may change it too."""
    before = await store.read_note(name)
    if (after := await asyncio.to_thread(change, before)) != (before or b""):
        await store.write_note(name, after)
