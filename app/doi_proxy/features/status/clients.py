"""How many clients sent requests in the last hour, and the share of the busiest. No address is kept or shown.

An address is in memory for at most a second. After that, a number that this process alone can compute stands for its
network.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from doi_proxy.web.stage import Stage


class ClientCounts(Stage):
    """Counts requests by client. `client_of` returns the network of an address."""

    def __init__(self, client_of: Callable[[str], str], clock: Callable[[], float]) -> None:
        """`clock` is in seconds since the epoch."""
        self._client_of = client_of
        self._clock = clock
        self._waiting = Counter[str]()
        #: Requests by client: of the half hour under way, with its number since the epoch, and of the one before.
        self._half_hour = 0
        self._now, self._before = Counter[int](), Counter[int]()

    def count_client(self, address: str, requests: int) -> None:
        """Count requests of an address."""
        self._waiting[address] += requests
        # The addresses that may wait to be counted.
        if len(self._waiting) > 2_000:
            self.refresh()

    def refresh(self) -> None:
        """Count what waits, and drop what is too old. The service calls this every second."""
        half_hour = int(self._clock() // 1_800)
        if half_hour != self._half_hour:
            # After the machine slept, or the clock was set, the last half hour is not the one before this.
            self._before = self._now if half_hour == self._half_hour + 1 else Counter()
            self._half_hour, self._now = half_hour, Counter()
        for address, requests in self._waiting.items():
            # Python salts the hashes of strings at each start (Python language reference, object.__hash__).
            client = hash(self._client_of(address))
            # Clients beyond these of one half hour are counted together.
            if client not in self._now and len(self._now) >= 10_000:
                client = 0
            self._now[client] += requests
        self._waiting.clear()

    def read(self) -> tuple[int, float | None]:
        """The number of clients, and the share of the busiest from 0 to 1, None without a request."""
        self.refresh()
        sums = self._before + self._now
        return len(sums), max(sums.values()) / sums.total() if sums else None
