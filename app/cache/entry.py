"""What is remembered about one name."""

from __future__ import annotations

from sys import getsizeof
from typing import Final

import msgspec

from app.handle.answer import Answer

#: Bytes that an entry takes in the memory tier besides its key and its values: the two objects, three floats, and
#: its places in the LRU cache's three tables. Measured over 100,000 entries: 451 of resident
#: memory (392 by tracemalloc, which does not see what the allocator rounds up).
OVERHEAD: Final = 450


class Entry(msgspec.Struct, frozen=True, gc=False):
    """The answer about one name and how long it counts; times in seconds since the epoch.

    `key` is the canonical name (`HandleName.key`). Until `fresh_until` the answer needs no question; after it and
    until `stale_until` it may be served where the upstream cannot be asked.
    """

    key: str
    answer: Answer
    fetched_at: float
    fresh_until: float
    stale_until: float

    def is_fresh(self, now: float) -> bool:
        """Whether the soft expiry lies ahead."""
        return now < self.fresh_until

    def is_usable(self, now: float) -> bool:
        """Whether the hard expiry lies ahead."""
        return now < self.stale_until

    def ttl_left(self, now: float) -> float:
        """Seconds until the soft expiry; negative when stale."""
        return self.fresh_until - now

    def age(self, now: float) -> float:
        """Seconds since the answer arrived; never negative, also where the clock was set back."""
        return max(0.0, now - self.fetched_at)

    @property
    def size(self) -> int:
        """Bytes that the entry counts as in the memory tier: key, values and OVERHEAD."""
        return getsizeof(self.key) + getsizeof(self.answer.values) + OVERHEAD
