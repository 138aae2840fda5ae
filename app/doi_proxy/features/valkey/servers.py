"""The servers of a store: which one has a key, and which one took its place after a failover."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Any, Final

from doi_proxy.errors import DamagedEntry, StoreError
from doi_proxy.features.valkey.node import Access, Node, Redirect, Result, Words, Work, ask_first, command, pipeline
from doi_proxy.features.valkey.url import Address, StoreKind, StoreUrl

#: Seconds between two searches for the primaries while one of them fails.
_SEARCH_INTERVAL: Final = 0.25
#: The last hash slot.
_LAST_SLOT: Final = 16_383
#: Servers of each kind that one search queries: those of the store URL, then those that an earlier search found.
_MAX_ASKED: Final = 3
#: Servers that are remembered for a search.
_MAX_FOUND: Final = 64


@dataclass(frozen=True, slots=True)
class Placement:
    """The primaries, with the ranges of their hash slots: first, last, address.

    `guides` are the servers that know the primaries too.
    """

    ranges: tuple[tuple[int, int, Address], ...]
    guides: tuple[Address, ...] = ()

    def find(self, slot: int) -> Address | None:
        """The primary that has the slot."""
        return next((address for first, last, address in self.ranges if first <= slot <= last), None)

    @property
    def addresses(self) -> tuple[Address, ...]:
        """The primaries."""
        return tuple(dict.fromkeys(address for _, _, address in self.ranges))


#: Queries a server for the primaries.
Search = Callable[[Node], Awaitable[Placement]]


class Servers:
    """The primaries that have the keys of a store. After a failure or a redirection, they are looked up again.

    Every method may raise StoreError.
    """

    def __init__(self, url: StoreUrl, *, clock: Callable[[], float], timeout: float) -> None:
        """No connection is opened yet. `clock` gives seconds; for `timeout` see Node.

        Raises ValueError or TypeError for an invalid option.
        """
        self.label, self._ask, redirects = _describe(url)

        def connect(address: Address) -> Node:
            return Node(address, url.options, clock=clock, timeout=timeout, redirects=redirects)

        def connect_guide(address: Address) -> Node:
            return Node(address, url.seed_options, clock=clock, timeout=timeout)

        # An invalid option is an error now, not when the first primary is known.
        connect(url.addresses[0])
        self._connect = connect
        self._connect_guide = connect_guide
        self._seeds = deque(map(connect_guide, url.addresses))
        #: Other servers to ask. All of `seeds` may have been replaced since this process started.
        self._found: deque[Node] = deque()
        self._clock = clock
        self._nodes: dict[Address, Node] = {}
        self._placement: Placement | None = None
        #: Whether the placement may have changed since the last search.
        self._is_doubtful = True
        self._searched_at = -inf
        self._search_failure = ""
        self._lock = asyncio.Lock()

    async def call(self, slot: int, work: Work[Result], access: Access) -> Result:
        """Do `work` on the server that has the hash slot; see Node.call."""
        node = await self._find(slot)
        try:
            return await self._try(node, work, access)
        except Redirect as redirect:
            if redirect.address is None:
                # A primary became a replica.
                await self._search(min_interval=0.0)
                node = await self._find(slot)
            else:
                node = self._open(redirect.address)
            return await self._follow(node, ask_first(work) if redirect.must_ask else work, access)

    async def query_each(
        self, commands: Sequence[tuple[int, Words]], read: Callable[[Any], Result]
    ) -> list[Result | StoreError]:
        """The results of commands that may be sent twice, each on the server of its slot.

        The result of a failed server is its StoreError.
        """
        results: list[Result | StoreError] = [StoreError("not queried")] * len(commands)
        places: dict[Node, list[int]] = {}
        for index, (slot, _) in enumerate(commands):
            try:
                places.setdefault(await self._find(slot), []).append(index)
            except StoreError as error:
                results[index] = error

        async def query(node: Node, indexes: list[int]) -> None:
            try:
                words = [commands[index][1] for index in indexes]
                found: Sequence[Result | StoreError] = await self._follow(node, pipeline(words, read), Access.READ)
            except StoreError as error:
                found = [error] * len(indexes)
            for index, result in zip(indexes, found, strict=True):
                results[index] = result

        await asyncio.gather(*(query(node, indexes) for node, indexes in places.items()))
        return results

    async def primaries(self) -> tuple[Node, ...]:
        """The servers that have keys."""
        return tuple(self._open(address) for address in (await self._current()).addresses)

    async def primaries_of(self, slots: Sequence[int]) -> tuple[Address | None, ...]:
        """The primary of each hash slot."""
        placement = await self._current()
        return tuple(map(placement.find, slots))

    async def call_node(self, node: Node, work: Work[Result]) -> Result:
        """Do `work` that changes nothing on one of the primaries."""
        return await self._follow(node, work, Access.READ)

    async def close(self) -> None:
        """Close the connections."""
        await asyncio.gather(*(node.close() for node in (*self._nodes.values(), *self._seeds, *self._found)))

    async def _find(self, slot: int) -> Node:
        address = (await self._current()).find(slot)
        if address is None:
            self._is_doubtful = True
            raise StoreError(f"The store failed: no primary of the {self.label} has the slot {slot}.")
        return self._open(address)

    def _open(self, address: Address) -> Node:
        if address not in self._nodes:
            self._nodes[address] = self._connect(address)
        return self._nodes[address]

    async def _follow(self, node: Node, work: Work[Result], access: Access) -> Result:
        try:
            return await self._try(node, work, access)
        except Redirect as redirect:
            raise StoreError(f"The store failed: {node.address} does not have the key any more.") from redirect

    async def _try(self, node: Node, work: Work[Result], access: Access) -> Result:
        try:
            return await node.call(work, access)
        except DamagedEntry:
            raise
        except (StoreError, Redirect):
            self._is_doubtful = True
            raise

    async def _current(self) -> Placement:
        if self._is_doubtful:
            await self._search(_SEARCH_INTERVAL)
        if self._placement is None:
            raise StoreError(f"The store failed: {self._search_failure}")
        return self._placement

    async def _search(self, min_interval: float) -> None:
        """Look the primaries up, unless that was done less than `min_interval` seconds ago."""
        if self._placement is not None and self._lock.locked():
            # Another command does it. This one tries the primaries that are known.
            return
        async with self._lock:
            now = self._clock()
            # A clock that was set back must not prolong the interval.
            if 0.0 <= now - self._searched_at < min_interval:
                return
            self._searched_at = now
            for guide in self._choose_guides():
                try:
                    placement = await self._ask(guide)
                except StoreError as error:
                    self._search_failure = error.message
                else:
                    await self._use(placement)
                    return

    def _choose_guides(self) -> list[Node]:
        """The servers that this search asks, in turn."""
        guides = []
        for nodes in (self._seeds, self._found):
            nodes.rotate(-1)
            guides += list(nodes)[:_MAX_ASKED]
        return guides

    async def _use(self, placement: Placement) -> None:
        self._placement, self._is_doubtful = placement, False
        unused = [self._nodes.pop(address) for address in self._nodes.keys() - set(placement.addresses)]
        found = {node.address: node for node in self._found}
        named = {node.address for node in self._seeds}
        guides = [address for address in dict.fromkeys(placement.guides) if address not in named][:_MAX_FOUND]
        self._found = deque(
            found.pop(address) if address in found else self._connect_guide(address) for address in guides
        )
        for node in (*unused, *found.values()):
            with suppress(StoreError):
                await node.close()


def _describe(url: StoreUrl) -> tuple[str, Search, bool]:
    """What an operator calls the store, how its primaries are found, and whether its nodes redirect."""
    names = ", ".join(map(str, url.addresses))
    if url.kind is StoreKind.CLUSTER:
        return f"Valkey cluster {names}", _search_cluster, True
    if url.kind is StoreKind.SENTINEL:
        return f"Valkey primary {url.service!r} of {names}", _search_sentinel(url.service), True
    return f"Valkey server {names}", _search_nothing, False


async def _search_nothing(node: Node) -> Placement:
    """The one server that has every key. It is not queried for that."""
    return Placement(((0, _LAST_SLOT, node.address),))


async def _search_cluster(node: Node) -> Placement:
    """The primaries of the cluster of a node. https://valkey.io/commands/cluster-slots/"""

    def read(ranges: Any) -> Placement:
        return Placement(
            tuple((int(first), int(last), _read_address(primary, node)) for first, last, primary, *_ in ranges),
            tuple(_read_address(member, node) for _, _, *members in ranges for member in members),
        )

    placement = await node.call(command("CLUSTER", "SLOTS", read=read), Access.READ)
    if not placement.ranges:
        raise StoreError(f"The cluster node {node.address} knows no primary; correct the store URL.")
    return placement


def _search_sentinel(service: str) -> Search:
    """The search for the primary with the name `service`, which has all keys. https://valkey.io/topics/sentinel/"""

    async def search(node: Node) -> Placement:
        def read(reply: Any) -> Address | None:
            return None if reply is None else _read_address(reply, node)

        look_up = command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", service, read=read)
        primary = await node.call(look_up, Access.READ)
        if primary is None:
            raise StoreError(f"The Sentinel {node.address} does not know a primary {service!r}; correct the store URL.")
        others = await node.call(command("SENTINEL", "SENTINELS", service, read=_read_sentinels), Access.READ)
        return Placement(((0, _LAST_SLOT, primary),), others)

    return search


def _read_sentinels(reply: Any) -> tuple[Address, ...]:
    facts = [dict(zip(fields[::2], fields[1::2], strict=True)) for fields in reply]
    return tuple(Address(fact[b"ip"].decode(), int(fact[b"port"])) for fact in facts)


def _read_address(primary: Sequence[Any], node: Node) -> Address:
    # An empty host is the one at which the node was reached.
    host = (primary[0] or b"").decode()
    return Address(host or node.address.host, int(primary[1]))
