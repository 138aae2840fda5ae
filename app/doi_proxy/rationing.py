"""Token buckets of clients and of the networks that contain them, and shares of what is scarce. All are in memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from itertools import islice
from math import ceil, inf
from typing import Final, Generic, Protocol, TypeVar, cast

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


#: Limit of a back-off, in seconds, also after the clock was corrected. It is also the longest Retry-After that the
#: upstream client obeys.
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

    def charge(self, accounts: tuple[Account, ...], cost: float) -> None:
        """Take `cost` tokens, also those that are not there: a bucket owes as many as it can hold, and no more."""
        now = self._clock()
        for account in accounts:
            # Two lists can end one after the other: what is owed for the first stays owed.
            before = _back_off_left(account.bucket, now) * account.rate
            left = count_tokens(account.bucket, now, account.rate, account.burst) - cost - before
            owed = min(max(0.0, -left), account.burst)
            account.bucket = Bucket(max(0.0, left), now, now + owed / account.rate)

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


#: The key of a newcomer in networks that do not contain it.
_NOWHERE: Final = object()

Item = TypeVar("Item", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Share(Generic[Item]):
    """What one client has."""

    client: str | None
    #: Oldest first.
    items: OrderedDict[Item, None]
    #: Where the path to the client leaves that of a newcomer: the items of its part less those of the newcomer's.
    lead: int


class _Network(Generic[Item]):
    """The parts of a network that hold items, in the order of their turns, and their sizes.

    OrderedDict finds its first key in constant time; a dict used as a queue does not.
    """

    __slots__ = ("by_size", "largest", "parts", "sizes")

    def __init__(self) -> None:
        self.parts: OrderedDict[Hashable, _Network[Item] | OrderedDict[Item, None]] = OrderedDict()
        self.sizes: dict[Hashable, int] = {}
        self.by_size: dict[int, OrderedDict[Hashable, None]] = {}
        self.largest = 0

    def resize(self, key: Hashable, by: int) -> None:
        """A part has one item more or less. A part without items is dropped."""
        before = self.sizes.get(key, 0)
        size = before + by
        if before:
            del self.by_size[before][key]
            if not self.by_size[before]:
                del self.by_size[before]
        if size:
            self.sizes[key] = size
            self.by_size.setdefault(size, OrderedDict())[key] = None
        else:
            del self.sizes[key], self.parts[key]
        if size > self.largest or self.largest not in self.by_size:
            self.largest = size if size > self.largest else self.largest - 1


class ShareTree(Generic[Item]):
    """Items by their client, with the size of each share and the order of turns."""

    def __init__(self) -> None:
        self._root = _Network[Item]()
        self._clients: dict[str | None, OrderedDict[Item, None]] = {}

    @property
    def clients(self) -> int:
        """The number of clients with an item."""
        return len(self._clients)

    def count(self, client: str | None) -> int:
        """The number of items of a client."""
        return len(self._clients.get(client, ()))

    def add(self, client: str | None, item: Item) -> None:
        """Add an item, which the client does not have yet."""
        network, path = self._root, find_accounts(client)
        for key in path[:-1]:
            part = network.parts.get(key)
            if not isinstance(part, _Network):
                part = network.parts[key] = _Network()
            network.resize(key, 1)
            network = part
        items = self._clients.setdefault(client, OrderedDict())
        items[item] = None
        network.parts.setdefault(client, items)
        network.resize(client, 1)

    def remove(self, client: str | None, item: Item) -> None:
        """Remove an item of a client."""
        items = self._clients[client]
        del items[item]
        if not items:
            del self._clients[client]
        for network, key in [*self._walk(client)]:
            network.resize(key, -1)

    def turns(self) -> Iterator[tuple[str | None, Item]]:
        """Each item with its client, oldest first. The first client has the next turn; the others are not in order."""
        for key, part in self._root.parts.items():
            yield from _turns(key, part)

    def end_turn(self, client: str | None) -> None:
        """Let a client, and each network that contains it, wait for all others."""
        for network, key in self._walk(client):
            network.parts.move_to_end(key)

    def find_fullest(self, newcomer: str | None) -> Share[Item] | None:
        """The largest share of another client. None if the newcomer itself has it.

        From the widest networks down, this searches the part with most items.
        """
        network, path, lead = self._root, iter(find_accounts(newcomer)), 0
        own = next(path)
        while network.largest:
            fullest = [*islice(network.by_size[network.largest], 2)]
            key = fullest[-1] if fullest[0] == own else fullest[0]
            is_own = key == own
            if not is_own and own is not _NOWHERE:
                lead, own = network.largest - network.sizes.get(own, 0), _NOWHERE
            part = network.parts[key]
            if not isinstance(part, _Network):
                return None if is_own else Share(cast(str | None, key), part, lead)
            network, own = part, next(path) if is_own else _NOWHERE
        return None

    def _walk(self, client: str | None) -> Iterator[tuple[_Network[Item], Hashable]]:
        """Each network above a client that has items or has just lost its last, with the key of its part."""
        part: _Network[Item] | OrderedDict[Item, None] | None = self._root
        for key in find_accounts(client):
            if not isinstance(part, _Network) or key not in part.parts:
                return
            yield part, key
            part = part.parts.get(key)


def _turns(key: Hashable, part: _Network[Item] | OrderedDict[Item, None]) -> Iterator[tuple[str | None, Item]]:
    if isinstance(part, _Network):
        for inner, branch in part.parts.items():
            yield from _turns(inner, branch)
    else:
        for item in part:
            yield cast(str | None, key), item


class Holder(Hashable, Protocol):
    """Holds one of the places of something scarce."""

    @property
    def is_idle(self) -> bool:
        """Whether it waits for its client alone."""

    @property
    def is_overdue(self) -> bool:
        """Whether it has had its place for longer than what is fair while others wait."""

    def speed(self) -> float:
        """Its progress for its time."""

    def give_way(self) -> None:
        """End, because another client needs the place. The place is free already."""


Holding = TypeVar("Holding", bound=Holder)


class SharedPlaces(Generic[Holding]):
    """At most `most` places. A client alone may have all of them.

    If a newcomer finds no free place, the idle holder of another client that has the least speed gives way. If none is
    idle, the one with the least speed of the client with the largest share does, if that share has `least_lead` more
    items than the newcomer's, or one more and this one is overdue. See ShareTree.
    """

    def __init__(self, most: int, *, least_lead: int) -> None:
        self.most = most
        self._least_lead = least_lead
        self._tree = ShareTree[Holding]()
        #: Oldest first.
        self._holders: dict[Holding, str | None] = {}

    def __len__(self) -> int:
        return len(self._holders)

    def enter(self, client: str | None, holder: Holding) -> bool:
        """Hold a place until `leave`. False if there is none."""
        if len(self) >= self.most:
            slowest = self._find_slowest(client)
            if slowest is None:
                return False
            self.leave(slowest)
            slowest.give_way()
        self._tree.add(client, holder)
        self._holders[holder] = client
        return True

    def leave(self, holder: Holding) -> None:
        """Free the place of a holder, unless it gave way."""
        if holder in self._holders:
            self._tree.remove(self._holders.pop(holder), holder)

    def _find_slowest(self, newcomer: str | None) -> Holding | None:
        idle = [holder for holder, client in self._holders.items() if client != newcomer and holder.is_idle]
        if not idle:
            share = self._tree.find_fullest(newcomer)
            if share is not None and share.lead > 0:
                is_rich = share.lead >= self._least_lead
                idle = [holder for holder in reversed(share.items) if is_rich or holder.is_overdue]
        return min(idle, key=lambda holder: holder.speed(), default=None)
