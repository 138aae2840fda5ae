"""The interface of every store, the second tier of the cache."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final, Protocol

from app.cache.entry import Entry

#: Announcements that a store keeps. A process that missed more than these drops its whole memory tier.
MAX_ANNOUNCEMENTS: Final = 5_000


@dataclass(frozen=True, slots=True)
class Changes:
    """The announcements after a cursor: the `cursor` for the next call, and the keys to drop from memory.

    With `overrun`, announcements were lost, and the whole memory tier must be dropped.
    """

    cursor: str
    keys: tuple[str, ...] = ()
    overrun: bool = False


@dataclass(frozen=True, slots=True)
class StoreStats:
    """The state of a store: its entries, its bytes, whether its last operation succeeded, and a description."""

    entries: int
    bytes: int
    healthy: bool
    detail: str


class Store(Protocol):
    """Entries by key, and the coordination of the processes that share them. Every method may raise StoreError."""

    async def get(self, key: str) -> Entry | None:
        """The entry, or None if there is none or its hard expiry has passed."""

    async def put(self, entry: Entry, *, announce: bool = False) -> None:
        """Store an entry, replacing the previous one. With `announce`, other processes drop their copy from memory.

        The entry is visible to this process immediately, and to other processes at the latest after `flush`.
        """

    async def delete(self, key: str) -> bool:
        """Delete an entry and announce it. Returns whether there was one. The deletion is durable after `flush`."""

    def scan(self, prefix: str = "") -> AsyncIterator[Entry]:
        """The entries whose key begins with `prefix`, in key order (in Valkey, unordered). Pages have a limited size.

        Entries that are put or deleted meanwhile may be missing. Valkey may return an entry twice.
        """

    async def changes(self, cursor: str | None) -> Changes:
        """The announcements after `cursor`. None returns only a cursor for the next call."""

    async def lease(self, key: str, owner: str, seconds: float) -> bool:
        """Take the lease of a name: the right to query the upstream about it. It expires after `seconds`.

        Returns False if another owner has it.
        """

    async def release(self, key: str, owner: str) -> None:
        """Release a lease, if `owner` has it. The entry that was put under it is visible to the next owner."""

    async def take(self, bucket: str, rate: float, burst: float, leaving: float = 0.0) -> float:
        """Take one token and return 0.0, or take none and return the seconds until there will be one.

        The bucket holds at most `burst` tokens, starts full and gains `rate` tokens a second. A token is taken only if
        `leaving` tokens remain, which are reserved for other callers.
        """

    async def back_off(self, bucket: str, seconds: float) -> None:
        """Stop all processes that share the bucket from taking a token for `seconds`."""

    async def stats(self) -> StoreStats:
        """The state of the store. This does not visit every entry."""

    async def flush(self) -> None:
        """Return when all earlier changes are durable and visible to all processes."""

    async def close(self) -> None:
        """Flush, and close files, connections and threads."""
