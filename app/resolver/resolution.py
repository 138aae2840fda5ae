"""What is known about one name at one moment, and the decisions that need no I/O."""

from __future__ import annotations

from enum import Enum

import msgspec

from app.cache.entry import Entry
from app.doi.name import HandleName
from app.errors import CouldNotVerify
from app.handle.answer import ResponseCode
from app.handle.record import Record
from app.handle.record_cache import parse_record


class Origin(Enum):
    """Where an answer came from."""

    HIT = "hit"  # fresh, from the cache
    STALE = "stale"  # past its TTL, from the cache, because the upstream could not be asked
    ASKED = "asked"  # from the upstream, just now
    RENEWED = "renewed"  # from the upstream, just now, in place of one past its TTL
    JOINED = "joined"  # from the upstream, by a question that another caller began
    BYPASSED = "bypassed"  # from the upstream, because the caller asked for that


class Resolution(msgspec.Struct, frozen=True, gc=False):
    """An answer about a name: the entry it stands on, where that came from, and why it is stale if it is."""

    name: HandleName
    entry: Entry
    origin: Origin
    failure: CouldNotVerify | None = None

    @property
    def found(self) -> bool:
        """Whether the name is registered (it may still have no public values)."""
        return self.entry.answer.code is not ResponseCode.HANDLE_NOT_FOUND

    @property
    def record(self) -> Record:
        """The values, none where there are none."""
        return parse_record(self.entry.answer.values)


class Step(Enum):
    """What to do about a name next."""

    ANSWER = "answer"  # what is cached is good
    ANSWER_AND_REFRESH = "refresh"  # it is good, and asked for often enough to be renewed before it ends
    ANSWER_STALE = "stale"  # it is past its TTL, and the upstream failed a moment ago
    ASK_WITH_FALLBACK = "fallback"  # ask; after a while, or on failure, the stale one is answered
    ASK = "ask"


#: The last part of an entry's life in which it may be refreshed ahead.
REFRESH_WINDOW = 0.1


def next_step(entry: Entry | None, now: float, *, failed_recently: bool, popular: bool) -> Step:
    """Decide about a name from what the cache holds; times in seconds since the epoch."""
    if entry is None:
        return Step.ASK
    if entry.is_fresh(now):
        return Step.ANSWER_AND_REFRESH if popular and in_refresh_window(entry, now) else Step.ANSWER
    if not entry.is_usable(now):
        return Step.ASK
    return Step.ANSWER_STALE if failed_recently else Step.ASK_WITH_FALLBACK


def in_refresh_window(entry: Entry, now: float) -> bool:
    """Whether little enough of the entry's life is left that a refresh ahead makes sense."""
    return now >= refresh_from(entry)


def refresh_from(entry: Entry) -> float:
    """When the refresh window of an entry begins, in seconds since the epoch."""
    life = entry.fresh_until - entry.fetched_at
    return entry.fresh_until - life * REFRESH_WINDOW if life > 0 else entry.fresh_until


def must_confirm(known: Entry | None, fresh: Entry, now: float) -> bool:
    """Whether a fresh "not found" contradicts a record that is known and must be asked again authoritatively."""
    return (
        known is not None
        and known.is_usable(now)
        and known.answer.code is not ResponseCode.HANDLE_NOT_FOUND
        and fresh.answer.code is ResponseCode.HANDLE_NOT_FOUND
    )
