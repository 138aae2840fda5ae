"""The log lines about lookups of services."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from doi_proxy.features.native.errors import as_failure_of_server
from handle_protocol.errors import HandleProtocolError

log = logging.getLogger(__name__)

#: Seconds between two lines about services whose last known sites are used on.
_INTERVAL: Final = 3600.0


class DirectoryLog:
    """See DirectoryObserver. `clock` is monotonic, in seconds. No line has the name of a prefix or of a handle."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._is_root_old = False
        self._overdue = 0
        self._overdue_since: float | None = None

    def record_refresh(self, error: HandleProtocolError | None) -> None:
        """The root was refreshed, or with an error it could not be. Log the first failure of several, and their end."""
        if error is not None and not self._is_root_old:
            log.warning("the root of the handle system could not be refreshed: %s %s", _describe(error), error.detail)
        elif error is None and self._is_root_old:
            log.warning("the root of the handle system was refreshed again")
        self._is_root_old = error is not None

    def record_overdue(self, error: HandleProtocolError) -> None:
        """A known service could not be looked up again, so its last known sites are used on.

        Log the first failed lookup, and then their number once an hour.
        """
        now = self._clock()
        self._overdue += 1
        if self._overdue_since is None or now - self._overdue_since >= _INTERVAL:
            log.warning(
                "handle servers of known prefixes could not be looked up again (%s lookups); their last known "
                "addresses are used: %s",
                self._overdue,
                _describe(error),
            )
            self._overdue, self._overdue_since = 0, now


def _describe(error: HandleProtocolError) -> str:
    # A detail can name a handle, and operators may have chosen not to log names.
    failure = as_failure_of_server(error)
    return f"{failure.token}: {failure.message}"
