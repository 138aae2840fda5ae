"""A token bucket for each client. Clients are in memory alone."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import Final

from doi_proxy.errors import Quota, TooManyRequests
from doi_proxy.rationing.token_bucket import Bucket, count_tokens, take_token

#: Clients whose buckets are remembered. One that is forgotten has a full bucket again.
MAX_CLIENTS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Rate:
    """`per_second` requests a second, `burst` at once after a quiet time."""

    per_second: float
    burst: float


class ClientBuckets:
    """A token bucket for each client. The ones not used for longest are forgotten first."""

    def __init__(self, name: str, rate: Rate, error: type[TooManyRequests], clock: Callable[[], float]) -> None:
        self._quota = Quota(name, int(rate.burst), max(1, ceil(rate.burst / rate.per_second)))
        self._rate = rate
        self._error = error
        self._clock = clock
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def take(self, client: str) -> None:
        """Take a token of a client. Raises the error of this limit if there is none."""
        wait = self.take_or_wait(client)
        if wait:
            raise self._error(quota=self._quota, retry_after=wait)

    def tokens(self, client: str) -> float:
        """The tokens that a client has now."""
        bucket = self._buckets.get(client)
        rate = self._rate
        return rate.burst if bucket is None else count_tokens(bucket, self._clock(), rate.per_second, rate.burst)

    def take_or_wait(self, client: str) -> float:
        """Take a token of a client. Returns 0.0, or the seconds until there is one."""
        buckets = self._buckets
        bucket, wait = take_token(buckets.get(client), self._clock(), self._rate.per_second, self._rate.burst)
        buckets[client] = bucket
        buckets.move_to_end(client)
        if len(buckets) > MAX_CLIENTS:
            buckets.popitem(last=False)
        return wait
