"""The names whose last question failed: when, why, and for how long that is answered without another question."""

from __future__ import annotations

from collections import OrderedDict
from copy import copy
from dataclasses import dataclass
from typing import Final

from app.errors import CouldNotVerify, UpstreamRefused

#: Bytes of an entry besides its key: the map's slot, the entry, its times and the copy of the error.
ENTRY_BYTES: Final = 700


@dataclass(frozen=True, slots=True)
class _Failure:
    at: float
    until: float
    error: CouldNotVerify


class FailureMemory:
    """At most `max_bytes` of failures, by key; the oldest are dropped first. Times are handed in, in seconds.

    A failure that concerns its name alone is answered for `ttl` seconds. A refusal with `Retry-After` that is not about
    the whole upstream is answered so long, up to `most` seconds.
    """

    def __init__(self, *, ttl: float, most: float, max_bytes: int) -> None:
        self._ttl = ttl
        self._most = most
        self._max_bytes = max_bytes
        self._failures: OrderedDict[str, _Failure] = OrderedDict()
        self._bytes = 0

    @property
    def bytes(self) -> int:
        """What the failures take, about."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._failures)

    def remember(self, key: str, error: CouldNotVerify, now: float) -> None:
        """Remember the last failure of a name."""
        self.forget(key)
        seconds = max(self._ttl if error.concerns_name else 0.0, min(_wish(error), self._most))
        # Keep a copy without its traceback: the frames hold the previous failure, which holds the one before it.
        self._failures[key] = _Failure(now, now + seconds, copy(error))
        self._bytes += _size(key)
        while self._bytes > self._max_bytes:
            oldest, _ = self._failures.popitem(last=False)
            self._bytes -= _size(oldest)

    def forget(self, key: str) -> None:
        """The name was answered."""
        if self._failures.pop(key, None) is not None:
            self._bytes -= _size(key)

    def recent(self, key: str, now: float, seconds: float) -> CouldNotVerify | None:
        """The failure of a name within the last `seconds`."""
        failure = self._failures.get(key)
        return failure.error if failure is not None and 0 <= now - failure.at < seconds else None

    def refusal(self, key: str, now: float) -> CouldNotVerify | None:
        """The failure that is answered now in place of a question, with the seconds until one would be asked."""
        failure = self._failures.get(key)
        # A clock that was set back must not prolong a failure.
        if failure is None or not failure.at <= now < failure.until:
            return None
        error = copy(failure.error)
        error.retry_after = failure.until - now
        return error


def _wish(error: CouldNotVerify) -> float:
    about_name = isinstance(error, UpstreamRefused) and not error.requests_pause
    return (error.retry_after or 0.0) if about_name else 0.0


def _size(key: str) -> int:
    # str.isascii() is a flag of the object; other strings take at most four bytes a character.
    return ENTRY_BYTES + len(key) * (1 if key.isascii() else 4)
