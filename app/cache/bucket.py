"""A token bucket, as arithmetic on three numbers."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from math import inf
from typing import Final

#: Buckets that one process remembers; a forgotten one starts full again.
_MOST_BUCKETS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Bucket:
    """`tokens` at the time `at`, none of which may be taken before `blocked_until`; seconds since the epoch."""

    tokens: float
    at: float
    blocked_until: float = 0.0


def take_one(bucket: Bucket | None, now: float, rate: float, burst: float, leaving: float) -> tuple[Bucket, float]:
    """Take a token: the bucket afterwards, and 0.0 or the seconds until there will be one. None is a full bucket.

    One is taken only if `leaving` stay, or as many as the bucket can hold besides.
    """
    if bucket is None:
        bucket = Bucket(tokens=burst, at=now)
    # A clock that was set back gives no tokens and must not hold them back either.
    tokens = min(burst, bucket.tokens + max(0.0, now - bucket.at) * rate)
    if now < bucket.blocked_until:
        return Bucket(tokens, now, bucket.blocked_until), bucket.blocked_until - now
    needed = 1.0 + max(0.0, min(leaving, burst - 1.0))
    if tokens >= needed:
        return Bucket(tokens - 1.0, now, bucket.blocked_until), 0.0
    return Bucket(tokens, now, bucket.blocked_until), (needed - tokens) / rate if rate > 0 else inf


def blocked(bucket: Bucket | None, now: float, seconds: float) -> Bucket:
    """The bucket with no token to be taken for `seconds`; a longer block that exists stays. None is a full bucket."""
    if bucket is None:
        return Bucket(tokens=inf, at=now, blocked_until=now + seconds)
    return Bucket(bucket.tokens, bucket.at, max(bucket.blocked_until, now + seconds))


class Buckets:
    """The token buckets of one process, by name; the ones not used for longest are forgotten first."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def take(self, name: str, now: float, rate: float, burst: float, leaving: float = 0.0) -> float:
        """Take one token and return 0.0, or the seconds until there will be one."""
        bucket, wait = take_one(self._buckets.get(name), now, rate, burst, leaving)
        self._keep(name, bucket)
        return wait

    def back_off(self, name: str, now: float, seconds: float) -> None:
        """Let no token be taken for `seconds`."""
        self._keep(name, blocked(self._buckets.get(name), now, seconds))

    def _keep(self, name: str, bucket: Bucket) -> None:
        self._buckets[name] = bucket
        self._buckets.move_to_end(name)
        while len(self._buckets) > _MOST_BUCKETS:
            self._buckets.popitem(last=False)
