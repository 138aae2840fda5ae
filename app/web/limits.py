"""What one client may do: requests a second, requests that bypass the cache, and whether it is served at all.

A client is the network of its address (see client_network). Networks are in memory alone: this module writes none
into a log, a store or a metric.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Final

from app.errors import ClientDenied, Quota, RateExceeded, TooManyBypasses, TooManyRequests
from app.resolver.options import ResolveOptions
from app.resolver.resolver import Demand
from app.token_bucket import Bucket, take_token
from app.web.client_network import ClientNetworks
from app.web.network_list import NetworkList, read_networks
from app.web.request import Request

#: Clients with a bucket. A client whose bucket was dropped gets a full one.
MAX_CLIENTS: Final = 10_000
#: The names of the limits, in RateLimit headers and in metrics.
RATE: Final = "rate"
BYPASS: Final = "bypass"
DENIED: Final = "denied"


@dataclass(frozen=True, slots=True)
class Rate:
    """`per_second` requests a second, `burst` at once after a quiet time."""

    per_second: float
    burst: float


class ClientLimits:
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
        self._requests = None if requests is None else _ClientBuckets(RATE, requests, RateExceeded, clock)
        self._bypasses = _ClientBuckets(BYPASS, bypasses, TooManyBypasses, clock)
        self._allow_file = allow_file
        self._deny_file = deny_file
        self._refused = refused
        #: Whether `admit` can refuse a request. Where it cannot, answers from memory need no check.
        self.is_active = requests is not None or deny_file is not None
        self.reload()

    def reload(self) -> None:
        """Read the lists of networks again. Raises ConfigurationError, and then keeps those in force."""
        allowed, denied = _read(self._allow_file), _read(self._deny_file)
        self._allowed, self._denied = allowed, denied

    def client_of(self, request: Request) -> str:
        """The client that sent a request."""
        return self._networks.client_of(request.client_address)

    def admit(self, request: Request) -> None:
        """Count a request. Raises ClientDenied and RateExceeded."""
        address = request.client_address
        if address in self._denied:
            self._refused(DENIED)
            raise ClientDenied
        if self._requests is not None:
            self._take(self._requests, address)

    def demand(self, request: Request, options: ResolveOptions) -> Demand:
        """The demand of a request: its options, and the client that is charged. Raises TooManyBypasses."""
        if options.bypasses_cache:
            self._take(self._bypasses, request.client_address)
        return Demand(options.authoritative, options.certified, client=self.client_of(request))

    def _take(self, buckets: _ClientBuckets, address: str) -> None:
        if address in self._allowed:
            return
        try:
            buckets.take(self._networks.client_of(address))
        except TooManyRequests as error:
            self._refused(error.quota.name)
            raise


class _ClientBuckets:
    """A token bucket for each client. The least recently used ones are dropped first."""

    def __init__(self, name: str, rate: Rate, error: type[TooManyRequests], clock: Callable[[], float]) -> None:
        self._quota = Quota(name, int(rate.burst), max(1, ceil(rate.burst / rate.per_second)))
        self._rate = rate
        self._error = error
        self._clock = clock
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def take(self, client: str) -> None:
        """Take a token of a client. Raises the error of this limit if there is none."""
        before = self._buckets.get(client)
        bucket, wait = take_token(before, self._clock(), self._rate.per_second, self._rate.burst)
        self._buckets[client] = bucket
        self._buckets.move_to_end(client)
        if len(self._buckets) > MAX_CLIENTS:
            self._buckets.popitem(last=False)
        if wait:
            raise self._error(quota=self._quota, retry_after=wait)


def _read(path: Path | None) -> NetworkList:
    return NetworkList() if path is None else read_networks(path)
