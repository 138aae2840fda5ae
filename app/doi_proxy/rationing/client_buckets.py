"""Token buckets of clients, and of the networks that contain them. They are in memory alone."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from math import ceil
from typing import Final

from doi_proxy.errors import Quota, TooManyRequests
from doi_proxy.rationing.accounts import find_accounts, find_width
from doi_proxy.rationing.token_bucket import ROUNDING, Bucket, count_tokens, take_token

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
