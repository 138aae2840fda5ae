"""Shares of scarce places, counted in a tree of networks: many networks of one customer have one share.

This module uses no clock and no I/O. Each step of ShareTree takes constant time, whatever the number of clients: a
flood of clients could use a slower one as an attack.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final, Generic, Protocol, TypeVar, cast

from doi_proxy.rationing.client_buckets import find_accounts

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
        """The clients, each with its oldest item. The first one has the next turn; the others are not in order."""
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
        yield cast(str | None, key), next(iter(part))


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
