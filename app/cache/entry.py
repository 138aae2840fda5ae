"""What is remembered about one name."""

from __future__ import annotations

from sys import getsizeof
from typing import Final

import msgspec
from msgspec.structs import replace

from app.handle.answer import Answer, ResponseCode

#: Bytes that an entry takes in the memory tier besides its key and its values: the two objects, three floats, and
#: its places in the LRU cache's three tables. Measured over 100,000 entries: 451 of resident
#: memory (392 by tracemalloc, which does not see what the allocator rounds up).
OVERHEAD: Final = 450


#: Clocks of several machines may differ by this much, in seconds. An entry that was fetched later than this after the
#: present was written by a clock that has been corrected since.
LONGEST_SKEW: Final = 60.0


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


def bound_times(entry: Entry, now: float, ceiling: float) -> Entry | None:
    """The entry, fresh for at most `ceiling` seconds after it was fetched and after `now`; None if it may not be used.

    A record that was fetched in the future is stale and counts as older than any other; "not found" is never served
    stale, so such an answer may not be used.
    """
    if entry.fetched_at <= now + LONGEST_SKEW:
        ends = min(entry.fetched_at, now) + ceiling
        if entry.fresh_until <= ends:
            return entry
        stale_until = entry.stale_until if entry.answer.code is ResponseCode.SUCCESS else ends
        return replace(entry, fresh_until=ends, stale_until=stale_until)
    if entry.answer.code is not ResponseCode.SUCCESS:
        return None
    return replace(entry, fetched_at=0.0, fresh_until=0.0)
