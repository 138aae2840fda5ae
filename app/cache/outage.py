"""The outages of a store: one log line when it goes down, and one when it is up again."""

from __future__ import annotations

import logging
from collections.abc import Callable

log = logging.getLogger(__name__)


class Outage:
    """Detects the outages of a store. `clock` gives seconds.

    An outage ends when an operation that failed succeeds and no operation has failed for `quiet` seconds. A store that
    fails intermittently therefore logs one outage, not two lines for each failure.
    """

    def __init__(self, clock: Callable[[], float], quiet: float) -> None:
        self._clock = clock
        self._quiet = quiet
        self._began = 0.0
        self._last_failure = 0.0
        self._failed: set[str] = set()

    def record_failure(self, operation: str, reason: str) -> None:
        """Record a failure. The first one of an outage is logged."""
        now = self._clock()
        if not self._failed:
            self._began = now
            log.warning("The store is down: %s failed; this process continues with its memory. %s", operation, reason)
        self._failed.add(operation)
        self._last_failure = now

    def record_success(self, operation: str) -> None:
        """Record a success. The one that ends an outage is logged."""
        if operation not in self._failed:
            return
        now = self._clock()
        # A clock that was set back must not prolong the outage.
        if not 0.0 <= now - self._last_failure < self._quiet:
            self._failed.clear()
            log.warning("The store is up again after %.0f seconds.", max(0.0, now - self._began))
