"""How the requests of the last hour are spread over clients. There are only counts: no address is kept or shown.

An address is in memory for at most a second. After that, a number that this process alone can compute stands for its
network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

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
