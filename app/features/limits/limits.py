"""What one client may do: requests a second, requests that bypass the cache, and whether it is served at all.

A client is the network of its address (see client_network). Networks are in memory alone: this module writes none
into a log, a store or a metric.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from ipaddress import ip_network
from pathlib import Path
from typing import Final

from app.errors import ClientDenied, RateExceeded, TooManyRequests
from app.features.client_buckets import ClientBuckets, Rate
from app.features.limits.errors import TooManyBypasses
from app.features.network_list import NetworkList, read_networks
from app.web.client_network import ClientNetworks
from app.web.stage import Stage

#: The names of the limits, in RateLimit headers and in metrics.
RATE: Final = "rate"
BYPASS: Final = "bypass"
DENIED: Final = "denied"


class ClientLimits(Stage):
    """The limits of all clients. `clock` is in seconds."""

    def __init__(
        self,
        *,
        networks: ClientNetworks,
        requests: Rate | None,
        bypasses: Rate,
        allow_file: Path | None,
        deny_file: Path | None,
        clock: Callable[[], float],
        refused: Callable[[str], None],
    ) -> None:
        """`requests` is None where requests are not counted; `refused` is called with the name of the limit.

        Raises ConfigurationError for a file that cannot be used.
        """
        self._networks = networks
        self._requests = None if requests is None else ClientBuckets(RATE, requests, RateExceeded, clock)
        self._bypasses = ClientBuckets(BYPASS, bypasses, TooManyBypasses, clock)
        self._allow_file = allow_file
        self._deny_file = deny_file
        self._refused = refused
        self._denied_for_now = NetworkList()
        self.reload()

    def deny(self, networks: Collection[str]) -> None:
        """Refuse the requests of these networks until the next call."""
        self._denied_for_now = NetworkList(ip_network(network) for network in networks)
        self._decide_admission()

    def reload(self) -> None:
        """Read the lists of networks again. Raises ConfigurationError, and then keeps those in force."""
        allowed, denied = _read(self._allow_file), _read(self._deny_file)
        self._allowed, self._denied = allowed, denied
        self._decide_admission()

    def _decide_admission(self) -> None:
        self.admits_all = self._requests is None and not self._denied and not self._denied_for_now

    def admit(self, address: str) -> None:
        """Count a request. Raises ClientDenied and RateExceeded."""
        if address in self._denied or address in self._denied_for_now:
            self._refused(DENIED)
            raise ClientDenied
        if self._requests is not None:
            self._take(self._requests, address)

    def passes(self, address: str) -> bool:
        """Count a request that gets a prepared answer. One that is refused is not counted here."""
        if address in self._denied or address in self._denied_for_now:
            return False
        return self._requests is None or self._may_take(self._requests, address)

    def charge_bypass(self, address: str) -> None:
        """Count a request that bypasses the cache. Raises TooManyBypasses."""
        self._take(self._bypasses, address)

    def may_renew(self, address: str) -> bool:
        """Count a bypass of the cache. False if the client has none left: a cached record is the answer then."""
        return self._may_take(self._bypasses, address)

    def _may_take(self, buckets: ClientBuckets, address: str) -> bool:
        if address in self._allowed:
            return True
        try:
            buckets.take(self._networks.client_of(address))
        except TooManyRequests:
            return False
        return True

    def _take(self, buckets: ClientBuckets, address: str) -> None:
        if address in self._allowed:
            return
        try:
            buckets.take(self._networks.client_of(address))
        except TooManyRequests as error:
            self._refused(error.quota.name)
            raise


def _read(path: Path | None) -> NetworkList:
    return NetworkList() if path is None else read_networks(path)
