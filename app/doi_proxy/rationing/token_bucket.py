"""A token bucket as arithmetic on three numbers."""

from __future__ import annotations

from math import inf
from typing import Final

import msgspec

#: Limit of a back-off, in seconds. It holds for callers, for damaged rows and after the clock was corrected. It is also
#: the longest Retry-After that the upstream client obeys.
MAX_BACK_OFF: Final = 3_600.0
#: A token may lack this much. A present-day Unix time as a float has a resolution of 0.24 microseconds.
ROUNDING: Final = 1e-6


class Bucket(msgspec.Struct, frozen=True, gc=False):
    """`tokens` at the time `at`. If `blocked_until` is later, the bucket is empty until then and fills afterwards.

    All times are in seconds of one clock.
    """

    tokens: float
    at: float
    blocked_until: float = 0.0


def count_tokens(bucket: Bucket, now: float, rate: float, burst: float) -> float:
    """The tokens in the bucket, 0 to `burst`; `rate` is in tokens a second."""
    # Each prepared answer of a service with limits takes a token: comparisons cost a third of min and max.
    tokens, filled_until = bucket.tokens, bucket.at
    if bucket.blocked_until > bucket.at:
        tokens, filled_until = 0.0, bucket.blocked_until
    elif not tokens > 0.0:  # a damaged row can have NaN
        tokens = 0.0
    # A clock that was set back neither adds nor removes tokens.
    if now > filled_until:
        tokens += (now - filled_until) * rate
    return tokens if tokens < burst else burst


def take_token(
    bucket: Bucket | None, now: float, rate: float, burst: float, leaving: float = 0.0
) -> tuple[Bucket, float]:
    """Take one token or none. None is a full bucket.

    Returns the new bucket, and 0.0 or the seconds until the token can be taken. It is taken only if `leaving` remain,
    or as many as a full bucket can leave.
    """
    bucket = bucket or Bucket(burst, now)
    tokens = count_tokens(bucket, now, rate, burst)
    missing = 1.0 - tokens
    if leaving:
        missing += max(0.0, min(leaving, burst - 1.0))
    if missing <= ROUNDING:
        return Bucket(tokens - 1.0, now, now), 0.0
    blocked_for = _back_off_left(bucket, now)
    wait = blocked_for + missing / rate if rate > 0 else inf
    return Bucket(tokens, now, now + blocked_for), wait


def back_off(bucket: Bucket | None, now: float, seconds: float) -> Bucket:
    """Empty the bucket for `seconds`, then let it fill again. A longer back-off under way is not shortened."""
    left = _back_off_left(bucket, now) if bucket else 0.0
    return Bucket(0.0, now, now + max(left, min(seconds, MAX_BACK_OFF)))


def _back_off_left(bucket: Bucket, now: float) -> float:
    if bucket.blocked_until <= now:
        return 0.0
    # If the clock was set back, the remainder is the one at the time the bucket was written.
    return min(max(0.0, bucket.blocked_until - max(now, bucket.at)), MAX_BACK_OFF)
