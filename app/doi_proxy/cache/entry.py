"""A cache entry: the answer about one name."""

from __future__ import annotations

from sys import getsizeof
from typing import Final

import msgspec
from msgspec.structs import replace

from handle_protocol.referral import SUCCESS, Answer

#: Bytes that an entry takes in the memory tier besides its key and its values: two objects, three floats, and its slot
#: and its node in the ordered table. Measured over 100,000 entries, in resident memory.
OVERHEAD: Final = 340
#: The largest difference between the clocks of several machines, in seconds. An entry with a later time in the future
#: was written before a clock was corrected.
MAX_SKEW: Final = 60.0
#: The last second of the year 9999, in seconds since the epoch. ISO 8601 cannot express a later one.
FOREVER: Final = 253_402_300_799.0


class Entry(msgspec.Struct, frozen=True, gc=False):
    """The answer about one name, and its soft and hard expiry. Times are seconds since the epoch.

    `key` is the canonical name (`HandleName.key`). Until `fresh_until`, the answer is served without a query. From then
    until `stale_until`, a record is served only if the upstream cannot be queried. A negative answer is not served
    then: it only shows that the names under a prefix had no values of the prefix (PrefixChain).
    """

    key: str
    answer: Answer
    fetched_at: float
    fresh_until: float
    stale_until: float

    @property
    def is_negative(self) -> bool:
        """Whether it has no values, such as a "not found"."""
        return self.answer.code is not SUCCESS

    @property
    def agency(self) -> str | None:
        """The agency whose file the record is from. "" if the file does not name it; None for an upstream's answer."""
        return None

    def is_fresh(self, now: float) -> bool:
        """Whether the soft expiry is in the future."""
        return now < self.fresh_until

    @property
    def usable_until(self) -> float:
        """The end of the time in which it is served."""
        return self.fresh_until if self.is_negative else self.stale_until

    def is_usable(self, now: float) -> bool:
        """Whether it may be served, at least if the upstream cannot be queried."""
        return now < self.usable_until

    def is_kept(self, now: float) -> bool:
        """Whether the hard expiry is in the future. A store has an entry until then."""
        return now < self.stale_until

    def is_proof(self, now: float) -> bool:
        """Whether a handle server's signature proves the answer. It does so until the soft expiry."""
        return self.answer.is_verified and now < self.fresh_until

    def age(self, now: float) -> float:
        """Seconds since the answer arrived. It is 0 if the clock was set back to an earlier time."""
        return max(0.0, now - self.fetched_at)

    @property
    def size(self) -> int:
        """Bytes of the entry in the memory tier: key, values, and OVERHEAD."""
        return _text_size(self.key) + getsizeof(self.answer.values) + OVERHEAD


class RegistryEntry(Entry, frozen=True, gc=False):
    """What a registration agency's file says about a name: known, but not confirmed by an upstream.

    `fetched_at` is the date of the record in the file. It is never fresh, and the cache never keeps it as an entry.
    """

    agency: str


def _text_size(text: str) -> int:
    """Bytes of a text, at most. Those of `getsizeof` grow when a text that is not ASCII is encoded."""
    return 49 + len(text) if text.isascii() else 76 + 4 * len(text)


def bound_times(entry: Entry, now: float, ceiling: float) -> Entry:
    """Limit the freshness of an entry to `ceiling` seconds after it was fetched and after `now`.

    An entry with a fetch time in the future becomes stale, and older than any other.
    """
    if entry.fetched_at > now + MAX_SKEW:
        return replace(entry, fetched_at=0.0, fresh_until=0.0)
    ends = min(entry.fetched_at, now) + ceiling
    return entry if entry.fresh_until <= ends else replace(entry, fresh_until=ends)


def expire_unverified(entry: Entry) -> Entry:
    """An entry that is not verified counts as stale since it was fetched: it is known, and not confirmed."""
    if entry.answer.is_verified or entry.fresh_until <= entry.fetched_at:
        return entry
    return replace(entry, fresh_until=entry.fetched_at)
