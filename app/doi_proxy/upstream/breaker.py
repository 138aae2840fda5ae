"""The circuit breaker: it stops queries to an upstream that fails for several names, then lets one query probe it.

    closed ──`failures` names failed──> open ──`cooldown` over──> half-open ──answer──> closed
                                          ^───────────────failure──────────────┘

A name counts once, however often its query fails, so one name whose server hangs does not open the breaker. Any answer
resets the count. Names with an unreadable answer are counted apart (`suspect`), because the cause can be the record of
that name. The cause of a timeout can be the name too: the upstream waits for the server of that handle. Timeouts alone
put the upstream in doubt and do not open the breaker.

Times are arguments, in seconds of one monotonic clock.
"""

from __future__ import annotations

import enum
from typing import Final

#: Distinct names in a row without a usable answer after which the upstream itself is in doubt: the control query then
#: decides, so a name with a damaged record costs one query and no outage. A drill that allows more failures than ten
#: allows three tenths of them.
_MOST_SUSPECTS: Final = 3
_SUSPECTS_SHARE: Final = 0.3


class BreakerState(enum.Enum):
    """Whether queries pass. The value is the one of the metric."""

    CLOSED = 0
    HALF_OPEN = 1
    OPEN = 2


class Breaker:
    """Opens after `failures` (at least 1) distinct names in a row, for `cooldown` seconds."""

    def __init__(self, failures: int, cooldown: float) -> None:
        self._most_failures = failures
        self._most_suspects = min(failures, max(_MOST_SUSPECTS, int(_SUSPECTS_SHARE * failures)))
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
        """Whether a query may be sent now. If the breaker is not closed, this query is the probe."""
        if self.state is BreakerState.CLOSED:
            return True
        # A probe without a result (its caller was cancelled) is replaced after the cooldown.
        if self.retry_after(now) > 0:
            return False
        self.state, self._since = BreakerState.HALF_OPEN, now
        return True

    def retry_after(self, now: float) -> float:
        """Seconds until a query may be sent. 0.0 if one may be sent now."""
        if self.state is BreakerState.CLOSED:
            return 0.0
        return max(0.0, self._since + self._cooldown - now)

    def record_answer(self) -> None:
        """The upstream answered. Any answer closes the breaker, also "not found" and one to an older query."""
        self.state = BreakerState.CLOSED
        self._clear()

    def record_failure(self, name: str, now: float, *, is_timeout: bool = False) -> bool:
        """Record a failure of the upstream. Returns whether it is in doubt now: there were `failures` timeouts alone.

        A failure that arrives while the breaker is open does not keep it open for longer.
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
        """Record a refused name or an unreadable answer. Returns whether the upstream itself is in doubt now."""
        if self.state is not BreakerState.CLOSED:
            return self.state is BreakerState.HALF_OPEN
        if len(self._suspect_names) < self._most_suspects:
            self._suspect_names.add(hash(name))
        return len(self._suspect_names) >= self._most_suspects

    def open(self, now: float) -> None:
        """Let no query pass for the cooldown."""
        self.state, self._since = BreakerState.OPEN, now
        self._clear()

    def _clear(self) -> None:
        self._failed_names.clear()
        self._suspect_names.clear()
        self._only_timeouts = True
