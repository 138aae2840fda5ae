"""The circuit breaker: after failures in a row the upstream is left alone, then one question tries it again.

    closed ──`failures` in a row──> open ──`cooldown` over──> half-open ──answer──> closed
                                      ^──────────────failure──────────────┘

Times are seconds of one monotonic clock, handed in; the machine itself knows no time.
"""

from __future__ import annotations

import enum


class BreakerState(enum.Enum):
    """Whether questions pass; the value is what a metric shows."""

    CLOSED = 0
    HALF_OPEN = 1
    OPEN = 2


class Breaker:
    """Opens after `failures` (at least 1) in a row, for `cooldown` seconds."""

    def __init__(self, failures: int, cooldown: float) -> None:
        self._most_failures = failures
        self._cooldown = cooldown
        self._failures = 0
        #: When it opened, or when the probe was let through.
        self._since = 0.0
        self.state = BreakerState.CLOSED

    def allow(self, now: float) -> bool:
        """Whether a question may be asked now; one that may, in a breaker that is not closed, is the probe."""
        if self.state is BreakerState.CLOSED:
            return True
        # A probe that never reports (its caller was cancelled) loses its place after the cooldown.
        if self.retry_after(now) > 0:
            return False
        self.state, self._since = BreakerState.HALF_OPEN, now
        return True

    def retry_after(self, now: float) -> float:
        """Seconds until a question may be asked; 0.0 where one may be now."""
        if self.state is BreakerState.CLOSED:
            return 0.0
        return max(0.0, self._since + self._cooldown - now)

    def succeeded(self, now: float) -> None:
        """The upstream answered, be it "not found"; an answer closes the breaker whoever got it."""
        self.state, self._failures = BreakerState.CLOSED, 0

    def failed(self, now: float) -> None:
        """The upstream failed. A failure that arrives when the breaker is open already does not prolong it."""
        self._failures += 1
        if self.state is BreakerState.HALF_OPEN or (
            self.state is BreakerState.CLOSED and self._failures >= self._most_failures
        ):
            self.state, self._since = BreakerState.OPEN, now
