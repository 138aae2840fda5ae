"""The pause that an upstream requests by `Retry-After` (RFC 9110, section 10.2.3), with a limit.

The first pause lasts at most `first` seconds, whatever the upstream requests. If the queries after it are refused in
the same way, the limit doubles, up to `most`. An answer resets it to `first`.
"""

from __future__ import annotations


class Pause:
    """The pauses of one upstream. Times are arguments, in seconds of one monotonic clock."""

    def __init__(self, first: float, most: float) -> None:
        self._first = first
        self._most = most
        self._limit = min(first, most)
        #: Whether the next pause may last longer than the first.
        self.is_raised = False
        #: When the last pause ends.
        self.until = 0.0

    def begin(self, now: float, seconds: float) -> float:
        """Begin a pause that the upstream requested, in seconds. Returns how long it lasts.

        A refusal during a pause belongs to a query that was sent before it, and changes nothing.
        """
        if self.until <= now:
            self.until = now + min(seconds, self._limit)
            self._limit, self.is_raised = min(2 * self._limit, self._most), True
        return self.until - now

    def reset(self) -> None:
        """The upstream answers again: its next pause lasts at most `first` seconds."""
        self._limit, self.is_raised = min(self._first, self._most), False
