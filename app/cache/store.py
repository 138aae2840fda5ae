"""The second tier: what every store offers, whatever it is made of."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final, Protocol

from app.cache.entry import Entry

#: Announcements that a store keeps; whoever missed more than these has to drop the whole memory tier.
MOST_ANNOUNCEMENTS: Final = 5_000


@dataclass(frozen=True, slots=True)
class Changes:
    """What was announced after a cursor: `cursor` for the next question, and the keys to forget.

    With `overrun`, more was announced than the store keeps: everything has to be forgotten.
    """

    cursor: str
    keys: tuple[str, ...] = ()
    overrun: bool = False


@dataclass(frozen=True, slots=True)
class StoreStats:
    """How a store is: its entries, its bytes, whether its last work succeeded, and a sentence for a person."""

    entries: int
    bytes: int
    healthy: bool
    detail: str


class Store(Protocol):
    """Entries by key, and what the processes that share them agree on. Every method may raise StoreError."""

    async def get(self, key: str) -> Entry | None:
        """The entry, unless there is none or its hard expiry has passed."""

    async def put(self, entry: Entry, *, announce: bool = False) -> None:
        """Keep an entry in place of the one before; with `announce`, other memory tiers must forget their copy.

        The entry is visible to `get` of this process at once, and to all others at the latest after `flush`.
        """

    async def delete(self, key: str) -> bool:
        """Forget an entry and announce that; whether there was one. Durable after `flush`."""

    def scan(self, prefix: str = "") -> AsyncIterator[Entry]:
        """The entries whose key begins with `prefix`, in pages of bounded size; in key order except in Valkey.

        Entries that are put or deleted meanwhile may be left out; Valkey may give an entry twice.
        """

    async def changes(self, cursor: str | None) -> Changes:
        """What was announced after `cursor`; None means from now on."""

    async def lease(self, key: str, owner: str, seconds: float) -> bool:
        """Take the right to ask about a name, unless anybody has it; it ends by itself after `seconds`."""

    async def release(self, key: str, owner: str) -> None:
        """Give a lease back; what was put under it is visible to the next owner. Someone else's lease stays."""

    async def take(self, bucket: str, rate: float, burst: float, leaving: float = 0.0) -> float:
        """Take one token and return 0.0, or take none and return the seconds until there will be one.

        The bucket holds at most `burst` tokens, starts full and gains `rate` tokens a second. One is taken only if
        `leaving` tokens stay: those are for others.
        """

    async def back_off(self, bucket: str, seconds: float) -> None:
        """Let nobody who shares the bucket take a token before `seconds` have passed."""

    async def stats(self) -> StoreStats:
        """How the store is; without a look at every entry."""

    async def flush(self) -> None:
        """Return when what was put and deleted before is durable, and visible to all processes."""

    async def close(self) -> None:
        """Flush and let go of files, connections and threads."""
