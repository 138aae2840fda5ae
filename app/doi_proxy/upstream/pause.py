"""The pause that an upstream requests by `Retry-After` (RFC 9110, section 10.2.3), with a limit.

The first pause lasts at most `first` seconds, whatever the upstream requests. If the queries after it are refused in
the same way, the limit doubles, up to `most`. An answer resets it to `first`.
"""

from __future__ import annotations

from math import inf
from typing import Final, Protocol

#: Seconds between two reads of the pauses of other processes. In a SQLite store, a read is a write transaction.
LOOK_INTERVAL: Final = 1.0


class SharedPause(Protocol):
    """A pause of one upstream that several processes obey. Must not raise."""

    async def begin(self, seconds: float) -> None:
        """Let no process send a query for so many seconds."""

    async def left(self) -> float:
        """Seconds that are left of a pause that any process began. 0.0 without one."""


class Pause:
    """The pauses of one upstream. Times are arguments, in seconds of one monotonic clock."""

    def __init__(self, first: float, most: float, shared: SharedPause | None = None) -> None:
        self._first = first
        self._most = most
        self._shared = shared
        self._limit = min(first, most)
        #: Whether other processes obey it.
        self.is_shared = shared is not None
        #: Whether the next pause may last longer than the first.
        self.is_raised = False
        #: When the last pause ends.
        self.until = 0.0
        self._next_look = -inf
        #: Whether another process began the pause.
        self._is_foreign = False

    def left(self, now: float) -> float:
        """Seconds that are left of a pause that this process knows of. 0.0 without one."""
        return max(0.0, self.until - now)

    async def look(self, now: float) -> float:
        """Seconds that are left of a pause, also of one that another process began LOOK_INTERVAL ago or earlier.

        A long pause of another process is read again, because anything that writes to the store can prolong it.
        """
        is_long = self._is_foreign and self.left(now) > self._first
        if self._shared is None or (self.left(now) > 0 and not is_long) or now < self._next_look:
            return self.left(now)
        self._next_look = now + LOOK_INTERVAL
        seconds = min(await self._shared.left(), self._most)
        if self.left(now) > 0:
            self.until = now + seconds
        elif seconds > 0:
            self._set(now, seconds)
            self._is_foreign = True
        return self.left(now)

    async def begin(self, now: float, seconds: float) -> float:
        """Begin a pause that the upstream requested, in seconds. Returns how long it lasts.

        A refusal during a pause belongs to a query that was sent before it, and changes nothing.
        """
        if self.left(now) == 0:
            self._set(now, min(seconds, self._limit))
            self._is_foreign = False
            if self._shared is not None:
                await self._shared.begin(self.left(now))
        return self.left(now)

    def reset(self) -> None:
        """The upstream answers again: its next pause lasts at most `first` seconds."""
        self._limit, self.is_raised = min(self._first, self._most), False

    def _set(self, now: float, seconds: float) -> None:
        self.until = now + seconds
        self._limit, self.is_raised = min(2 * self._limit, self._most), True
