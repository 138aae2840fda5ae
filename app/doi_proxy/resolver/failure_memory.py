"""Remembers failed queries: when and why they failed, and how long the upstream is not queried again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from operator import attrgetter
from typing import Final

from cachetools import FIFOCache

from doi_proxy.errors import (
    BreakerOpen,
    CouldNotVerify,
    NotAdmitted,
    ResourcesShort,
    UpstreamPaused,
    UpstreamRefused,
    UpstreamUnreachable,
)

#: The failures that say nothing about the name: its query reached no server, or was not sent.
_GENERAL: Final = (UpstreamUnreachable, BreakerOpen, UpstreamPaused)
#: The failures of this process: the next query may be sent, and another process may have the answer.
_OWN: Final = (NotAdmitted, ResourcesShort)
#: Bytes of an entry without its key: the slot of the map, the entry, its times and the copy of the error.
ENTRY_BYTES: Final = 700


@dataclass(frozen=True, slots=True)
class _Failure:
    at: float
    until: float
    error: CouldNotVerify
    #: Bytes of the entry and its key.
    size: int


class FailureMemory:
    """Failures by key, at most `max_bytes` of them. The oldest are evicted first. Times are in seconds.

    A failure that concerns only its name is answered for `ttl` seconds. If the upstream refuses one name with
    `Retry-After`, that refusal is answered for the requested time, at most `most` seconds.
    """

    def __init__(self, *, ttl: float, most: float, max_bytes: int) -> None:
        self._ttl, self._most = ttl, most
        self._failures: FIFOCache[str, _Failure] = FIFOCache(max_bytes, getsizeof=attrgetter("size"))

    @property
    def bytes(self) -> int:
        """The approximate size of the failures."""
        return int(self._failures.currsize)

    def __len__(self) -> int:
        return len(self._failures)

    def remember(self, key: str, error: CouldNotVerify, now: float) -> None:
        """Store the last failure of a name."""
        is_about_name = isinstance(error, UpstreamRefused) and not error.requests_pause
        pause = min((is_about_name and error.retry_after) or 0.0, self._most)
        seconds = max(self._ttl if error.concerns_name else 0.0, pause)
        # Non-ASCII strings take at most four bytes per character. str.isascii() reads a flag, so it is cheap.
        size = ENTRY_BYTES + len(key) * (1 if key.isascii() else 4)
        with suppress(ValueError):  # it would need more than all of the memory
            self._failures[key] = _Failure(now, now + seconds, error.without_traceback(), size)

    def forget(self, key: str) -> None:
        """Drop the failure of a name that the upstream has answered."""
        self._failures.pop(key, None)

    def find_recent(
        self, key: str, now: float, seconds: float, find_last_answer: Callable[[], float] = lambda: inf
    ) -> CouldNotVerify | None:
        """The failure of a name, if it happened within the last `seconds`.

        If its query reached no server or was not sent, it counts until the upstream answers about any name:
        `find_last_answer` returns the seconds since then. Another failure may be that of the name.
        """
        failure = self._failures.get(key)
        if failure is None or not 0 <= now - failure.at < seconds:
            return None
        is_general = isinstance(failure.error, _GENERAL)
        return None if is_general and find_last_answer() < now - failure.at else failure.error

    def find_current(self, key: str, now: float) -> CouldNotVerify | None:
        """The failure of a name within its second, or until the next query. `retry_after` is the time from now.

        A failure of this process does not last: a request that waits for its turn can be answered.
        """
        failure = self._failures.get(key)
        if failure is None or isinstance(failure.error, _OWN):
            return None
        if not failure.at <= now < max(failure.until, int(failure.at) + 1):
            return None
        error = failure.error.without_traceback()
        if now < failure.until:
            error.retry_after = failure.until - now
        elif error.retry_after is not None:
            error.retry_after = max(0.0, error.retry_after - (now - failure.at))
        return error

    def find_refusal(self, key: str, now: float) -> CouldNotVerify | None:
        """The failure to answer with instead of a query. Its `retry_after` is the time until the next query."""
        failure = self._failures.get(key)
        # If the clock was set back, the failure must not last longer.
        if failure is None or not failure.at <= now < failure.until:
            return None
        error = failure.error.without_traceback()
        error.retry_after = failure.until - now
        return error
