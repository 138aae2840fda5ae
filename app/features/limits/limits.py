"""What one client may do: requests a second, requests that bypass the cache, and whether it is served at all.

A client is the network of its address (see client_network). Networks are in memory alone: this module writes none
into a log, a store or a metric.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from ipaddress import ip_network
from math import inf
from pathlib import Path
from typing import Final

from app.errors import ClientDenied, RateExceeded, TooManyBypasses, TooManyRequests
from app.features.limits.buckets import ClientBuckets, Rate
from app.features.limits.network import ClientNetworks
from app.features.limits.network_list import NetworkList, read_networks
from app.resolver.demand import Demand
from app.resolver.options import ResolveOptions
from app.web.cache_directives import NO_DIRECTIVES, read_directives
from app.web.freshness import CACHE_CONTROL
from app.web.request import Request

#: The names of the limits, in RateLimit headers and in metrics.
RATE: Final = "rate"
BYPASS: Final = "bypass"
DENIED: Final = "denied"


class ClientLimits:
    """The limits of all clients. `clock` is in seconds."""

    def __init__(
        self,
        *,
        networks: ClientNetworks,
        requests: Rate | None,
        bypasses: Rate,
        reload_age: float,
        allow_file: Path | None,
        deny_file: Path | None,
        clock: Callable[[], float],
        refused: Callable[[str], None],
    ) -> None:
        """`requests` is None where requests are not counted; `refused` is called with the name of the limit.

        A record younger than `reload_age` seconds is new enough for every Cache-Control of a request.

        Raises ConfigurationError for a file that cannot be used.
        """
        self._networks = networks
        self._requests = None if requests is None else ClientBuckets(RATE, requests, RateExceeded, clock)
        self._bypasses = ClientBuckets(BYPASS, bypasses, TooManyBypasses, clock)
        self._reload_age = reload_age
        self._allow_file = allow_file
        self._deny_file = deny_file
        self._refused = refused
        #: Whether `admit` can refuse a request. Where it cannot, answers from memory need no check.
        self.is_active = self._is_always_active = requests is not None or deny_file is not None
        self._denied_for_now = NetworkList()
        self.reload()

    def deny(self, networks: Collection[str]) -> None:
        """Refuse the requests of these networks until the next call."""
        self._denied_for_now = NetworkList(ip_network(network) for network in networks)
        self.is_active = self._is_always_active or bool(networks)

    def reload(self) -> None:
        """Read the lists of networks again. Raises ConfigurationError, and then keeps those in force."""
        allowed, denied = _read(self._allow_file), _read(self._deny_file)
        self._allowed, self._denied = allowed, denied

    def client_of(self, request: Request) -> str:
        """The client that sent a request."""
        return self._networks.client_of(request.client_address)

    def client_at(self, address: str) -> str:
        """The client at an address, "" if it is unknown."""
        return self._networks.client_of(address)

    def admit(self, request: Request) -> None:
        """Count a request. Raises ClientDenied and RateExceeded."""
        address = request.client_address
        if address in self._denied or address in self._denied_for_now:
            self._refused(DENIED)
            raise ClientDenied
        if self._requests is not None:
            self._take(self._requests, address)

    def demand(self, request: Request, options: ResolveOptions) -> Demand:
        """The demand of a request: its options, and the client that is charged."""
        address, client = request.client_address, self.client_of(request)
        directives = read_directives(request.header(CACHE_CONTROL))
        if directives is NO_DIRECTIVES and not options.bypasses_cache:
            return Demand(client=client)
        admit_bypass = self._charge_once(address)
        if directives is NO_DIRECTIVES:
            return Demand(options.authoritative, options.certified, client=client, admit_bypass=admit_bypass)
        youngest = directives.max_age
        return Demand(
            options.authoritative,
            options.certified,
            client=client,
            admit_bypass=admit_bypass,
            only_cached=directives.only_if_cached,
            # The reload of a page must not cost a query each time.
            max_age=None if youngest is None else max(youngest, self._reload_age),
            may_renew=lambda: self._may_renew(address),
            max_stale=directives.max_stale,
            stale_if_error=inf if directives.stale_if_error is None else directives.stale_if_error,
        )

    def _charge_once(self, address: str) -> Callable[[], None]:
        """Counts a bypass of the cache at its first call. A request with aliases bypasses it several times."""
        is_charged = False

        def charge() -> None:
            nonlocal is_charged
            if not is_charged:
                self._take(self._bypasses, address)
                is_charged = True

        return charge

    def _may_renew(self, address: str) -> bool:
        """Count a bypass of the cache. False if the client has none left: a cached record is the answer then."""
        if address in self._allowed:
            return True
        try:
            self._bypasses.take(self._networks.client_of(address))
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
