"""Token buckets of clients, and of the networks that contain them. They are in memory alone."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from math import ceil, inf
from typing import Final

import msgspec

from doi_proxy.errors import Quota, TooManyRequests

#: Prefix lengths of the networks above a client, in bits, by the version of IP. A provider has a /32 of IPv6, and a
#: customer a /48, a /56 or a /64 (RFC 6177, section 2).
LEVELS: Final = {4: (20,), 6: (32, 48, 56, 64)}
#: The client of all peers that can forge their address, as a sender of UDP can. What they do is charged to no network.
FORGEABLE: Final = "udp"
#: The rate of a network, as a multiple of a client's rate. A /48 has 65,536 clients, a /32 those of a whole provider.
_WIDTHS: Final = {20: 8, 32: 64, 48: 8, 56: 4, 64: 1}
_FORGEABLE_WIDTH: Final = 64


def find_accounts(client: str | None) -> tuple[Hashable, ...]:
    """The accounts that a client is charged to: the networks of LEVELS that contain it, widest first, and the client.

    A client is a network in CIDR notation. Any other text, and None, is a client without networks above it.
    """
    text, _, length = (client or "").partition("/")
    try:
        address = IPv6Address(text) if ":" in text else IPv4Address(text)  # Much faster than ip_network.
        longest = int(length or address.max_prefixlen)
    except ValueError:
        return (client,)
    number, bits, version = int(address), address.max_prefixlen, address.version
    return (*((version, level, number >> (bits - level)) for level in LEVELS[version] if level < longest), client)


def find_width(account: Hashable) -> int:
    """The rate of an account, as a multiple of a client's rate."""
    if isinstance(account, tuple):
        return _WIDTHS[account[1]]
    return _FORGEABLE_WIDTH if account == FORGEABLE else 1


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


#: Accounts whose buckets are remembered. One that is forgotten has a full bucket again.
MAX_ACCOUNTS: Final = 20_000


@dataclass(frozen=True, slots=True)
class Rate:
    """`per_second` requests a second, `burst` at once after a quiet time."""

    per_second: float
    burst: float


class Account:
    """The bucket of a client, or of a network that contains it."""

    __slots__ = ("bucket", "burst", "rate")

    def __init__(self, rate: Rate, width: int, now: float) -> None:
        self.rate, self.burst = width * rate.per_second, width * rate.burst
        self.bucket = Bucket(self.burst, now)


class ClientBuckets:
    """A token bucket for each account; see find_accounts. The ones not opened for longest are forgotten first."""

    def __init__(self, name: str, rate: Rate, error: type[TooManyRequests], clock: Callable[[], float]) -> None:
        """`rate` is that of a client. Wider networks have a multiple of it."""
        self._quota = Quota(name, int(rate.burst), max(1, ceil(rate.burst / rate.per_second)))
        self._rate = rate
        self._error = error
        self._clock = clock
        self._accounts: OrderedDict[Hashable, Account] = OrderedDict()

    def open(self, client: str) -> tuple[Account, ...]:
        """The accounts that a client is charged to, widest first. A caller may use them for some seconds."""
        found, accounts = list[Account](), self._accounts
        for key in find_accounts(client):
            account = accounts.get(key)
            if account is None:
                account = accounts[key] = Account(self._rate, find_width(key), self._clock())
            accounts.move_to_end(key)
            found.append(account)
        while len(accounts) > MAX_ACCOUNTS:
            accounts.popitem(last=False)
        return tuple(found)

    def take(self, accounts: tuple[Account, ...]) -> None:
        """Take a token of each account of a client. Raises the error of this limit if one of them has none."""
        wait = self.take_or_wait(accounts)
        if wait:
            raise self._error(quota=self._quota, retry_after=wait)

    def tokens(self, accounts: tuple[Account, ...]) -> float:
        """The tokens that a client has now: those of its poorest account."""
        now = self._clock()
        return min(count_tokens(account.bucket, now, account.rate, account.burst) for account in accounts)

    def take_or_wait(self, accounts: tuple[Account, ...]) -> float:
        """Take a token of each account of a client. Returns 0.0, or the seconds until all have one; none is taken."""
        now = self._clock()
        left = [count_tokens(account.bucket, now, account.rate, account.burst) - 1 for account in accounts]
        if min(left) < -ROUNDING:
            return max([take_token(account.bucket, now, account.rate, account.burst)[1] for account in accounts])
        for account, tokens in zip(accounts, left, strict=True):
            account.bucket = Bucket(tokens, now)
        return 0.0
