"""How the requests of the last hour are spread over clients. There are only counts: no address is kept or shown.

An address is in memory for at most a second. After that, a number that this process alone can compute stands for its
network.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from doi_proxy.web.stage import Stage

#: Seconds of one table, and the number of tables: the last 45 to 60 minutes.
STEP: Final = 900
TABLES: Final = 4
#: Clients that one table counts. The requests of further clients are counted together.
MAX_CLIENTS: Final = 10_000
#: Addresses that wait to be counted. One more makes all of them be counted immediately.
MAX_WAITING: Final = 2_000


@dataclass(frozen=True, slots=True)
class ClientShares:
    """The number of clients, and how many of them sent half and nine tenths of the requests.

    `largest` is the share of the busiest client, 0 to 1; None without a request.
    """

    clients: int
    half: int
    nine_tenths: int
    largest: float | None


class ClientCounts(Stage):
    """Counts requests by client. `client_of` returns the network of an address."""

    def __init__(self, client_of: Callable[[str], str], clock: Callable[[], float]) -> None:
        """`clock` is in seconds since the epoch."""
        self._client_of = client_of
        self._clock = clock
        self._waiting: dict[str, int] = {}
        #: Requests by client, by the start of their table.
        self._tables: dict[int, dict[int, int]] = {}

    def count_client(self, address: str, requests: int) -> None:
        """Count requests of an address."""
        waiting = self._waiting
        try:
            waiting[address] += requests
        except KeyError:
            waiting[address] = requests
            if len(waiting) > MAX_WAITING:
                self.refresh()

    def refresh(self) -> None:
        """Count what waits, and drop tables that are too old. The service calls this every second."""
        now = self._clock()
        start = int(now - now % STEP)
        self._tables = {key: table for key, table in self._tables.items() if 0 <= start - key < STEP * TABLES}
        if not self._waiting:
            return
        table = self._tables.setdefault(start, {})
        for address, requests in self._waiting.items():
            # Python salts the hashes of strings at each start (Python language reference, object.__hash__).
            client = hash(self._client_of(address))
            if client not in table and len(table) >= MAX_CLIENTS:
                # The client of requests beyond MAX_CLIENTS.
                client = 0
            table[client] = table.get(client, 0) + requests
        self._waiting.clear()

    def shares(self) -> ClientShares:
        """How the requests of the last hour are spread."""
        self.refresh()
        sums: dict[int, int] = {}
        for table in self._tables.values():
            for client, requests in table.items():
                sums[client] = sums.get(client, 0) + requests
        return measure_shares(sums)


def measure_shares(sums: Mapping[int, int]) -> ClientShares:
    """The shares of clients, given the requests of each."""
    counts = sorted(sums.values(), reverse=True)
    total = sum(counts)
    if not total:
        return ClientShares(0, 0, 0, None)
    return ClientShares(
        len(counts), _clients_for(0.5 * total, counts), _clients_for(0.9 * total, counts), counts[0] / total
    )


def _clients_for(requests: float, counts: list[int]) -> int:
    """The smallest number of clients that sent so many requests."""
    sent = 0
    for number, count in enumerate(counts, 1):
        sent += count
        if sent >= requests:
            return number
    return len(counts)


#: What is counted: names, those that are not registered, and those that could not be verified.
PrefixKind = Literal["asked", "missing", "unverified"]
KINDS: Final[tuple[PrefixKind, ...]] = ("asked", "missing", "unverified")
#: A prefix is shown if more networks than this requested it.
MOST_HIDDEN: Final = 5
#: The prefixes that are counted of each kind. One more makes the less requested half go.
MAX_PREFIXES: Final = 1_000
_PREFIX: Final = re.compile(rb"/(?:api/handles/)?(10\.[0-9][0-9.]{1,20})(?:/|%2[Ff])")


@dataclass(slots=True)
class _Counted:
    names: int = 0
    networks: set[int] = field(default_factory=set)


class PrefixCounts(Stage):
    """Counts names by prefix. `client_of` returns the network of an address."""

    def __init__(self, client_of: Callable[[str], str], clock: Callable[[], float]) -> None:
        """`clock` is in seconds since the epoch."""
        self._client_of = client_of
        self._clock = clock
        self._day = -1
        #: The counts of the day, by prefix.
        self._tables: dict[PrefixKind, dict[str, _Counted]] = {}
        #: Requests of the last second, by address, path and status.
        self._waiting: dict[tuple[str, bytes, int], int] = {}

    def count_path(self, address: str, path: bytes, status: int, requests: int) -> None:
        """See Stage."""
        key, waiting = (address, path, status), self._waiting
        try:
            waiting[key] += requests
        except KeyError:
            waiting[key] = requests
            # Requests that wait to be counted, which takes 10 ms with full tables. One more request counts all of them
            # at once.
            if len(waiting) >= 600:
                self.refresh()

    def refresh(self) -> None:
        """Count what waits. The service calls this every second."""
        day = int(self._clock() // 86_400)
        if day != self._day:
            self._day, self._tables = day, {kind: {} for kind in KINDS}
        for (address, path, status), requests in self._waiting.items():
            if (found := _PREFIX.match(path)) is None:
                continue
            # Python salts the hashes of strings at each start (Python language reference, object.__hash__).
            prefix, network = found[1].decode(), hash(self._client_of(address))
            _count(self._tables["asked"], prefix, network, requests)
            if status == 404:
                _count(self._tables["missing"], prefix, network, requests)
            elif status in (502, 503, 504):
                _count(self._tables["unverified"], prefix, network, requests)
        self._waiting.clear()

    def top(self) -> Mapping[PrefixKind, list[tuple[str, int]]]:
        """The prefixes with most names, and their numbers, of those that enough networks requested."""
        self.refresh()
        return {kind: _find_top(table) for kind, table in self._tables.items()}


def _count(table: dict[str, _Counted], prefix: str, network: int, requests: int) -> None:
    if prefix not in table and len(table) >= MAX_PREFIXES:
        for other in sorted(table, key=lambda known: -table[known].names)[MAX_PREFIXES // 2 :]:
            del table[other]
    counted = table.setdefault(prefix, _Counted())
    counted.names += requests
    if len(counted.networks) <= MOST_HIDDEN:
        counted.networks.add(network)


def _find_top(table: Mapping[str, _Counted]) -> list[tuple[str, int]]:
    shown = [(prefix, counted.names) for prefix, counted in table.items() if len(counted.networks) > MOST_HIDDEN]
    # The prefixes that are shown of each kind.
    return sorted(shown, key=lambda item: (-item[1], item[0]))[:10]
