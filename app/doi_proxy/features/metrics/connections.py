"""Metrics of the server's connections."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge


class ConnectionMetrics:
    """Open client connections, and closed ones by reason."""

    def __init__(self, registry: CollectorRegistry, reasons: Collection[str]) -> None:
        """`reasons` are all keys that `report` accepts."""
        self._open = Gauge(
            "doi_proxy_connections_open", "Open client connections.", registry=registry, multiprocess_mode="livesum"
        )
        closed = Counter(
            "doi_proxy_connections_closed", "Client connections that ended, by reason.", ["reason"], registry=registry
        )
        self._closed = {reason: closed.labels(reason) for reason in reasons}
        self._last = dict.fromkeys(reasons, 0)

    def report(self, number_open: int, closed: Mapping[str, int]) -> None:
        """Set the number of open connections, and of connections closed since the process started, by reason."""
        self._open.set(number_open)
        for reason, number in closed.items():
            self._closed[reason].inc(number - self._last[reason])
            self._last[reason] = number
