"""Counts what clients and front proxies send wrongly, and logs the counts at most once a minute."""

from __future__ import annotations

import logging
from typing import Final

log = logging.getLogger(__name__)

#: Seconds between two lines of the log.
REPORT_INTERVAL: Final = 60.0


class MalformedRequests:
    """The counts of one process."""

    def __init__(self) -> None:
        self._malformed = self._upgrades = self._proxy_headers = 0
        self._next_report = 0.0

    def count_malformed(self) -> None:
        """Count a request that was answered 400 or 431."""
        self._malformed += 1

    def count_upgrade(self) -> None:
        """Count a request with an Upgrade to a protocol that this server does not support (RFC 9110, section 7.8)."""
        self._upgrades += 1

    def count_proxy_header(self) -> None:
        """Count a connection that was closed because of its header of the PROXY protocol, or without one."""
        self._proxy_headers += 1

    @property
    def is_pending(self) -> bool:
        """Whether there are counts that are not logged yet."""
        return bool(self._malformed or self._upgrades or self._proxy_headers)

    def report(self, now: float) -> None:
        """Log the counts if the last line is at least a minute old; `now` is monotonic, in seconds."""
        if not self.is_pending or now < self._next_report:
            return
        if self._malformed or self._upgrades:
            log.warning(
                "requests since the last such line: %d malformed and refused, %d with an Upgrade that was ignored",
                self._malformed,
                self._upgrades,
            )
        if self._proxy_headers:
            log.warning(
                "%d connections since the last such line were closed: they do not begin with a header of the PROXY "
                "protocol, or name a client and are not from trusted_proxies; let the front proxy send the header, add "
                "its address to trusted_proxies, or set proxy_protocol to false",
                self._proxy_headers,
            )
        self._malformed = self._upgrades = self._proxy_headers = 0
        self._next_report = now + REPORT_INTERVAL
