"""The circuit breaker: an upstream that fails for several names is left alone, then one question tries it again.

    closed ──`failures` names failed──> open ──`cooldown` over──> half-open ──answer──> closed
                                          ^───────────────failure──────────────┘

A name counts once, however often its question fails: one name whose server hangs opens nothing. Any answer begins the
count again. Names about which the upstream answers nonsense are counted apart (`suspect`), because nonsense about a
name can be that name's fault. So can a timeout: the upstream waits for the server of that handle. Timeouts alone put
the upstream in doubt and do not open the breaker.

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
    """Opens after `failures` (at least 1) distinct names in a row, for `cooldown` seconds."""

    def __init__(self, failures: int, cooldown: float) -> None:
        self._most_failures = failures
        self._cooldown = cooldown
        # Hashes: a name may have 8 kB. At most `failures` of them are held.
        self._failed_names: set[int] = set()
        self._suspect_names: set[int] = set()
        #: Whether every failure of `_failed_names` was a timeout.
        self._only_timeouts = True
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

    def record_answer(self) -> None:
        """The upstream answered, be it "not found"; an answer closes the breaker, whichever question it answers."""
        self.state = BreakerState.CLOSED
        self._clear()

    def record_failure(self, name: str, now: float, *, is_timeout: bool = False) -> bool:
        """The upstream failed; whether it is in doubt now, because timeouts alone would open the breaker.

        A failure that arrives when the breaker is open already does not prolong it.
        """
        if self.state is BreakerState.OPEN:
            return False
        self._only_timeouts = self._only_timeouts and is_timeout
        if len(self._failed_names) < self._most_failures:
            self._failed_names.add(hash(name))
        if self.state is not BreakerState.HALF_OPEN and len(self._failed_names) < self._most_failures:
            return False
        if self._only_timeouts:
            return True
        self.open(now)
        return False

    def suspect(self, name: str) -> bool:
        """The upstream refused one name, or its answer was unreadable; whether the upstream itself is in doubt now."""
        if self.state is not BreakerState.CLOSED:
            return self.state is BreakerState.HALF_OPEN
        if len(self._suspect_names) < self._most_failures:
            self._suspect_names.add(hash(name))
        return len(self._suspect_names) >= self._most_failures

    def open(self, now: float) -> None:
        """Let no question pass for the cooldown."""
        self.state, self._since = BreakerState.OPEN, now
        self._clear()

    def _clear(self) -> None:
        self._failed_names.clear()
        self._suspect_names.clear()
        self._only_timeouts = True
