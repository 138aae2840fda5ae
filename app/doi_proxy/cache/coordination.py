"""What the processes that share a store agree on: leases, token buckets, back-off and announcements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

#: Announcements that a store keeps. A process that missed more than these drops its whole memory tier.
MAX_ANNOUNCEMENTS: Final = 5_000
#: Bytes of those that memory and a SQLite file keep. A name has 8,192 bytes at most, and one from the field about 25.
MAX_ANNOUNCED_BYTES: Final = 1024 * 1024
#: An announcement that registry records have changed, whichever they are. A name has no control characters.
REGISTRY_CHANGED: Final = "\tregistry"
#: Seconds without use after which a store drops a bucket. A bucket is usually full again after a day.
MAX_IDLE: Final = 86_400


@dataclass(frozen=True, slots=True)
class Changes:
    """The announcements after a cursor: the `cursor` for the next call, and the keys to drop from memory.

    With `overrun`, announcements were lost, and the whole memory tier must be dropped.
    """

    cursor: str
    keys: tuple[str, ...] = ()
    overrun: bool = False


class Coordination(Protocol):
    """Announcements of changed entries, leases and token buckets. Every method may raise StoreError."""

    async def changes(self, cursor: str | None) -> Changes:
        """The announcements after `cursor`. None returns only a cursor for the next call."""

    async def lease(self, key: str, owner: str, seconds: float) -> bool:
        """Take the lease of a name: the right to query the upstream about it. It expires after `seconds`.

        Returns False if a process has it. If its end is more than twice `seconds` away, the clock was set back since it
        was taken, and it is replaced. If its end is a little more than `seconds` away, its process read the clock after
        this one did, and reached the store first.
        """

    async def renew(self, key: str, owner: str, seconds: float) -> None:
        """Let a lease end after `seconds` from now, if `owner` has it."""

    async def release(self, key: str, owner: str) -> None:
        """Release a lease, if `owner` has it. The entry that was put under it is visible to the next owner."""

    async def take(
        self, bucket: str, rate: float, burst: float, leaving: float = 0.0, count: int = 1, *, is_first: bool = False
    ) -> float:
        """Take `count` tokens and return 0.0, or take none and return the seconds until there will be as many.

        The bucket holds at most `burst` tokens, starts full and gains `rate` tokens a second. Tokens are taken only if
        `leaving` tokens remain, which are reserved for other callers. `count` is at most `burst`.

        The take `is_first` if the process has taken none from this bucket before. Another process may have ended while
        the store failed, and what it took by itself is unknown. So the bucket gains nothing for the time since the last
        take by any process.
        """

    async def back_off(self, bucket: str, seconds: float) -> None:
        """Stop all processes that share the bucket from taking a token for `seconds`."""
