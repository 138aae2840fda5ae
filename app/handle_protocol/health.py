"""What was learned about servers: which interfaces fail, how long answers take, and how often a server is queried."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, TypeVar

Known = TypeVar("Known")
#: Weight of the newest answer in the mean of a server's times.
_NEWEST: Final = 0.2


@dataclass(frozen=True, slots=True)
class HealthLimits:
    """The bounds of a Health. Times are in seconds."""

    #: The pause after the first failure of an interface. It doubles with each further failure in a row.
    first_pause: float = 5.0
    longest_pause: float = 600.0
    #: Queries of about the last minute from which a server counts as busy, and is queried by a kept HTTP tunnel in
    #: place of UDP. From about 20 on the tunnel takes less time: its connection costs as much as a few queries.
    busy_queries: float = 20.0
    #: Mean seconds of a server's answers from which it counts as slow: UDP repeats a message after so long.
    slow_seconds: float = 0.5
    #: Seconds of a query from which its server is known as slow, and for how long without a quick answer.
    slow_query: float = 1.0
    slow_server: float = 600.0
    #: Interfaces, and servers, that are remembered. The one that was used least recently is forgotten.
    entries: int = 10_000


@dataclass(frozen=True, slots=True)
class _Interface:
    failures: int = 0
    rests_until: float = 0.0


@dataclass(frozen=True, slots=True)
class _Server:
    queries: float = 0.0
    counted_at: float = 0.0
    seconds: float | None = None


class ServerHealth:
    """The health of interfaces and of servers, by keys that the caller chooses. The caller passes the time."""

    #: The seconds in which a count of queries falls to a third.
    WINDOW: Final = 60.0

    def __init__(self, limits: HealthLimits | None = None) -> None:
        self._limits = limits or HealthLimits()
        self._interfaces: OrderedDict[Hashable, _Interface] = OrderedDict()
        self._servers: OrderedDict[Hashable, _Server] = OrderedDict()
        #: Until when a server is known for its slow queries.
        self._slow: OrderedDict[Hashable, float] = OrderedDict()

    def record_query(self, server: Hashable, now: float) -> None:
        """A query is sent to a server."""
        known = self._servers.get(server) or _Server(counted_at=now)
        self._remember(self._servers, server, _Server(self._count(known, now) + 1, now, known.seconds))

    def record_answer(self, interface: Hashable, server: Hashable, seconds: float) -> None:
        """A server answered at an interface after `seconds`."""
        self.record_recovery(interface)
        if seconds < self._limits.slow_query and self._slow:
            self._slow.pop(server, None)
        known = self._servers.get(server) or _Server()
        mean = seconds if known.seconds is None else known.seconds + _NEWEST * (seconds - known.seconds)
        self._remember(self._servers, server, _Server(known.queries, known.counted_at, mean))

    def record_recovery(self, interface: Hashable) -> None:
        """Forget the failures of an interface."""
        if self._interfaces:
            self._interfaces.pop(interface, None)

    def record_end(self, server: Hashable, seconds: float, now: float) -> None:
        """A query to a server ended after `seconds`, with an answer or without."""
        if seconds >= self._limits.slow_query:
            self._remember(self._slow, server, now + self._limits.slow_server)

    def has_slow_queries(self, server: Hashable, now: float) -> bool:
        """Whether the last query to a server, of those that were answered or slow, was slow."""
        return bool(self._slow) and now < self._slow.get(server, now)

    def record_failure(self, interface: Hashable, now: float) -> None:
        """An interface refused the connection, or stayed silent."""
        failures = self._interfaces.get(interface, _Interface()).failures + 1
        # The exponent is bounded: 2.0 ** 1024 overflows.
        pause = min(self._limits.first_pause * 2.0 ** min(failures - 1, 32), self._limits.longest_pause)
        self._remember(self._interfaces, interface, _Interface(failures, now + pause))

    def rests(self, interface: Hashable, now: float) -> bool:
        """Whether an interface failed and its pause is not over. It is still tried if all others rest."""
        if not self._interfaces:
            return False  # This is usual. The hash of an address takes longer than all the rest.
        known = self._interfaces.get(interface)
        return known is not None and now < known.rests_until

    def round_trip(self, server: Hashable) -> float:
        """The mean time of a server's answers; 0 for a new server, which is tried first."""
        known = self._servers.get(server)
        return 0.0 if known is None else known.seconds or 0.0

    def is_slow(self, server: Hashable) -> bool:
        """Whether a server is slower than UDP waits, which would send each message several times."""
        return self.round_trip(server) > self._limits.slow_seconds

    def is_busy(self, server: Hashable, now: float) -> bool:
        """Whether a server is queried often, so a kept connection pays."""
        known = self._servers.get(server)
        return known is not None and self._count(known, now) >= self._limits.busy_queries

    def _count(self, known: _Server, now: float) -> float:
        return known.queries * math.exp(-max(0.0, now - known.counted_at) / self.WINDOW)

    def _remember(self, known: OrderedDict[Hashable, Known], key: Hashable, value: Known) -> None:
        known[key] = value
        known.move_to_end(key)
        if len(known) > self._limits.entries:
            known.popitem(last=False)
