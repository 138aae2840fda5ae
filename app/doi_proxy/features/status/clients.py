"""How the requests of the last hour are spread over clients. There are only counts: no address is kept or shown.

An address is in memory for at most a second. After that, a number that this process alone can compute stands for its
network. The workers of a service count together, in a memory that they share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from doi_proxy.sharing.memory import SharedMemory
from doi_proxy.web.stage import Stage

#: Seconds of one table, and the number of tables: the last 45 to 60 minutes.
STEP: Final = 900
TABLES: Final = 4
#: Clients that one table counts. The requests of further clients are counted together.
MAX_CLIENTS: Final = 10_000
#: Addresses that wait to be counted. One more makes all of them be counted immediately.
MAX_WAITING: Final = 2_000
#: Seconds after which a worker adds what it has counted to the counts of all. With full tables, that takes 10 ms.
SHARE_INTERVAL: Final = 30.0
#: The bits of the number of a client. All tables fit into the memory.
_CLIENT_BITS: Final = 0xFFFF_FFFF
#: The client of requests beyond MAX_CLIENTS.
_OTHERS: Final = 0
_HALF: Final = 0.5
_NINE_TENTHS: Final = 0.9
#: Requests by client, by the start of their table.
_Tables = dict[int, dict[int, int]]


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

    def __init__(
        self, client_of: Callable[[str], str], clock: Callable[[], float], memory: SharedMemory | None = None
    ) -> None:
        """`clock` is in seconds since the epoch. `memory` is shared by the workers, None for a process alone."""
        self._client_of = client_of
        self._clock = clock
        self._waiting: dict[str, int] = {}
        self._memory = memory
        #: The counts of all workers, when this one added its own to them.
        self._tables: _Tables = {}
        self._shared_at = clock()
        #: What this worker has counted since.
        self._new: _Tables = {}

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
        self._tables, self._new = _drop_old(self._tables, start), _drop_old(self._new, start)
        if self._waiting:
            table = self._new.setdefault(start, {})
            for address, requests in self._waiting.items():
                # Python salts the hashes of strings at each start (Python language reference, object.__hash__). The
                # workers are forks, and their hashes are alike.
                _add(table, hash(self._client_of(address)) & _CLIENT_BITS, requests)
            self._waiting.clear()
        if self._memory is None or not 0 <= now - self._shared_at < SHARE_INTERVAL:
            self._share(start)

    def shares(self) -> ClientShares:
        """How the requests of the last hour are spread. Those of other workers are up to SHARE_INTERVAL old."""
        self.refresh()
        now = self._clock()
        self._share(int(now - now % STEP))
        sums: dict[int, int] = {}
        for table in (*self._tables.values(), *self._new.values()):
            for client, requests in table.items():
                sums[client] = sums.get(client, 0) + requests
        return measure_shares(sums)

    def _share(self, start: int) -> None:
        """Add what is new to the counts of all workers. It waits for the next call if another worker adds its own."""
        self._shared_at = self._clock()
        if self._memory is None:
            self._join(self._tables, start)
        else:
            self._memory.change(lambda data: msgspec.msgpack.encode(self._join(_decode(data), start)))

    def _join(self, known: _Tables, start: int) -> _Tables:
        self._tables = _drop_old(known, start)
        for key, new in self._new.items():
            table = self._tables.setdefault(key, {})
            for client, requests in new.items():
                _add(table, client, requests)
        self._new = {}
        return self._tables


def _add(table: dict[int, int], client: int, requests: int) -> None:
    if client not in table and len(table) >= MAX_CLIENTS:
        client = _OTHERS
    table[client] = table.get(client, 0) + requests


def _drop_old(tables: _Tables, start: int) -> _Tables:
    return {key: table for key, table in tables.items() if 0 <= start - key < STEP * TABLES}


def _decode(data: bytes) -> _Tables:
    return msgspec.msgpack.decode(data, type=_Tables) if data else {}


def measure_shares(sums: Mapping[int, int]) -> ClientShares:
    """The shares of clients, given the requests of each."""
    counts = sorted(sums.values(), reverse=True)
    total = sum(counts)
    if not total:
        return ClientShares(0, 0, 0, None)
    return ClientShares(
        len(counts), _clients_for(_HALF * total, counts), _clients_for(_NINE_TENTHS * total, counts), counts[0] / total
    )


def _clients_for(requests: float, counts: list[int]) -> int:
    """The smallest number of clients that sent so many requests."""
    sent = 0
    for number, count in enumerate(counts, 1):
        sent += count
        if sent >= requests:
            return number
    return len(counts)
