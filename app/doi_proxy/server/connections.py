"""The open connections of one process: their number, their deadlines, and which one is closed for a new one.

One sweep a second checks every connection, in slices. A timer for each request would cost more in total.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice
from math import inf
from operator import itemgetter
from typing import Final, Protocol

from doi_proxy.rationing import find_accounts
from doi_proxy.server.plain_head import MalformedRequests

log = logging.getLogger(__name__)

#: Seconds from the connection, or from the first byte, in which the head of a request must arrive. It is a packet or
#: two, and a client on a bad line sends a packet again for some seconds.
HEAD_TIMEOUT: Final = 15.0
#: Seconds without progress after which the rest of a body is not waited for.
BODY_TIMEOUT: Final = 30.0
#: Seconds after which the connection of a client that does not read its answer is closed.
WRITE_TIMEOUT: Final = 30.0
#: Seconds after which an idle connection is closed: longer than nginx keeps one, which is 60 s. Otherwise nginx would
#: send a request on a connection that this server is closing, and answer 502.
IDLE_TIMEOUT: Final = 75.0
#: Open connections of one client, a quarter of the 1,024 files that most systems allow a process.
PER_CLIENT: Final = 256
#: Connections that a sweep checks in one turn of the event loop.
SLICE: Final = 128
#: Connections of each rank that are checked for one that gives way to a new one.
VISITS: Final = 64
#: A whole body may take this many times the deadline for its progress: 120 s by default. Without this limit, a client
#: that sends one byte every 29 s would keep a connection for ever.
BODY_DEADLINES: Final = 4
#: Bytes of a body that give it one more second, so a long list may take longer.
BODY_RATE: Final = 10_000


class Reason(StrEnum):
    """Why a connection ended."""

    CLIENT = "client"
    FINISHED = "finished"
    IDLE = "idle"
    HEAD_TIMEOUT = "head_timeout"
    BODY_TIMEOUT = "body_timeout"
    WRITE_TIMEOUT = "write_timeout"
    CAP = "cap"
    REFUSED = "refused"
    MALFORMED = "malformed"
    HANDSHAKE = "handshake"
    PROXY_HEADER = "proxy_header"


class Phase(StrEnum):
    """The event that a connection waits for."""

    NEW = "the first head, after the handshake if there is one"
    IDLE = "the next request"
    HEAD = "the rest of a head"
    BODY = "the rest of a body"
    ANSWER = "an answer of the application"
    LEFT = "an answer of the application, for a client that has closed its sending side"
    WRITE = "a client that reads its answer"
    CLOSING = "a client that closes its side"


_CLOSING, _NEW, _IDLE, _BUSY, _NEWEST = range(5)
#: The ranks in which connections are closed for a new one, lower ones first; one that is closing has its answer. A
#: client that has closed its side may wait for its answer, but most have gone away: front proxies end a connection so.
#: _NEW needs two sweeps, and is _NEWEST before. _BUSY needs two sweeps without progress, or a client at its cap, or
#: a customer or client with more than its share; a connection that waits for the application needs the last of these.
EVICTION_RANK: Final = {
    Phase.CLOSING: _CLOSING,
    Phase.LEFT: _CLOSING,
    Phase.NEW: _NEW,
    Phase.IDLE: _IDLE,
    Phase.HEAD: _IDLE,
    Phase.BODY: _BUSY,
    Phase.WRITE: _BUSY,
    Phase.ANSWER: _BUSY,
}
#: The share of the places up to which a burst of new connections closes those that have had an answer.
_NEW_SHARE: Final = 0.5
_CLIENT: Final = 1  # of the two holders of a connection: its customer and its client
#: The rank of a connection, and the time of its last progress.
Turn = tuple[int, float]


class Connection(Protocol):
    """The part of a connection that this module uses."""

    #: When the connection began to wait for a request or for the rest of its head, by Connections.now.
    since: float
    #: When the head of its last request arrived, plus a second for each BODY_RATE bytes of the body.
    body_since: float

    def phase(self, now: float) -> tuple[Phase, float]:
        """The phase, and the time of the last progress. A call records how much of the answer is unsent."""

    def expire(self, reason: Reason) -> None:
        """End the connection because of a deadline or a cap."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Deadlines in seconds, and caps. `is_trusted` recognises front proxies, which are exempt from `per_client`."""

    head_timeout: float
    body_timeout: float
    write_timeout: float
    idle_timeout: float
    total: int
    per_client: int
    #: The client of an address: the same for all addresses that count as one client.
    client_of: Callable[[str], str]
    is_trusted: Callable[[str], bool]

    @property
    def sweep_interval(self) -> float:
        """Seconds between two sweeps, at most a quarter of the shortest deadline."""
        shortest = min(self.head_timeout, self.body_timeout, self.write_timeout, self.idle_timeout)
        # The longest time between two sweeps, in seconds.
        return min(1.0, shortest / 4)


class Connections:
    """The open connections of one process."""

    def __init__(self, limits: ConnectionLimits) -> None:
        #: The time of the last sweep (asyncio's clock). It is exact enough for deadlines and cheap to read.
        self.now = 0.0
        self.malformed = MalformedRequests()
        #: How many connections ended, by reason.
        self.closed: dict[Reason, int] = dict.fromkeys(Reason, 0)
        self._limits = limits
        #: The customer and the client of each connection; of a front proxy's, those of its request, or none.
        self._holder: dict[Connection, tuple[Hashable, ...]] = {}
        #: The connections of each customer, the widest of `find_accounts`, and of each client.
        self._held: tuple[dict[Hashable, dict[Connection, None]], ...] = ({}, {})
        #: Evicted connections. They end in the next turn of the loop and no longer count.
        self._evicted: set[Connection] = set()
        #: The connections that the present sweep has yet to check. Some may have ended meanwhile.
        self._unchecked: list[Connection] = []
        #: The connections by rank, with their last progress as far as it is known; those without it for longest first.
        #: Arrivals, first heads, ends and sweeps update them. What else has changed is found by a visit.
        self._ranks: tuple[OrderedDict[Connection, float], ...] = tuple(OrderedDict() for _ in range(_NEWEST))
        self._timer: asyncio.Handle | None = None
        self._is_full = self._is_exhausted = False
        interval = limits.sweep_interval
        body_timeout = limits.body_timeout + interval
        # `since` can be one interval earlier than the event. Without the margin, a connection could end too early.
        self._deadlines = {
            Phase.NEW: (limits.head_timeout + interval, Reason.HEAD_TIMEOUT, inf),
            Phase.IDLE: (limits.idle_timeout + interval, Reason.IDLE, inf),
            Phase.HEAD: (limits.head_timeout + interval, Reason.HEAD_TIMEOUT, inf),
            Phase.BODY: (body_timeout, Reason.BODY_TIMEOUT, body_timeout * BODY_DEADLINES),
            Phase.ANSWER: (inf, Reason.FINISHED, inf),
            Phase.LEFT: (inf, Reason.FINISHED, inf),
            Phase.WRITE: (limits.write_timeout + interval, Reason.WRITE_TIMEOUT, inf),
            Phase.CLOSING: (limits.write_timeout + interval, Reason.FINISHED, inf),
        }

    def __len__(self) -> int:
        return len(self._holder)

    def admit(self, connection: Connection, address: str, loop: asyncio.AbstractEventLoop) -> bool:
        """Add a connection. At a cap, another one is closed for it. Returns False if none can be closed."""
        if self._timer is None:
            self._start(loop)
        connection.since = connection.body_since = self.now
        limits = self._limits
        client = None if self.is_trusted(address) else limits.client_of(address)
        peers = self._held[_CLIENT].get(client, {})
        if len(peers) >= limits.per_client and not self._evict_peer(peers):
            return False
        if len(self._holder) >= limits.total:
            self._report_full(True)
            if not self._evict_first():
                return False
            if len(self._holder) >= limits.total:  # set_total has lowered it
                self._evict_first()
        self._visit(connection)
        self._charge(connection, client)
        return True

    def charge(self, connection: Connection, address: str | None) -> None:
        """A front proxy passes on a request of the client at an address, None if it names no client.

        The connection is charged to this client until another request comes. A client that lets many requests wait
        through a front must not keep the places of all others.
        """
        holder, client = self._holder.get(connection), None if address is None else self._limits.client_of(address)
        if holder is not None and (holder[_CLIENT] if holder else None) != client:
            self._release(connection)
            self._charge(connection, client)

    def _charge(self, connection: Connection, client: str | None) -> None:
        holder = self._holder[connection] = () if client is None else (find_accounts(client)[0], client)
        for held, key in zip(self._held, holder, strict=False):
            held.setdefault(key, {})[connection] = None

    def _release(self, connection: Connection) -> None:
        for held, key in zip(self._held, self._holder.pop(connection, ()), strict=False):
            del held[key][connection]
            if not held[key]:
                del held[key]

    def is_trusted(self, address: str) -> bool:
        """Whether this is the address of a front proxy."""
        return self._limits.is_trusted(address)

    def set_total(self, total: int) -> None:
        """Allow so many connections from now on. While there are more, two of them give way to each new one."""
        self._limits = replace(self._limits, total=total)

    def set_trusted_proxies(self, is_trusted: Callable[[str], bool]) -> None:
        """Change the addresses of front proxies. This affects new connections."""
        self._limits = replace(self._limits, is_trusted=is_trusted)

    def settle(self, connection: Connection) -> None:
        """The first head of a connection has arrived."""
        if self._ranks[_NEW].pop(connection, None) is not None:
            self._ranks[_IDLE][connection] = connection.since

    def remove(self, connection: Connection, reason: Reason) -> None:
        """Remove a connection that has ended, and count it."""
        self.forget(connection)
        self._evicted.discard(connection)
        self.closed[reason] += 1

    def sweep(self, now: float) -> None:
        """Check the next slice of the connections. The first also logs changes of state. `now` is asyncio's clock."""
        self.now = now
        if not self._unchecked:
            self._unchecked = [*self._holder, *self._evicted]
            if len(self._holder) < self._limits.total * 0.9:
                self._report_full(False)
            self._relieve()
            self.malformed.report(now)
        for _ in range(min(SLICE, len(self._unchecked))):
            connection = self._unchecked.pop()
            if connection in self._holder or connection in self._evicted:  # not ended since
                phase, since = self._visit(connection) if connection in self._holder else connection.phase(now)
                seconds, reason, longest = self._deadlines[phase]
                if now - since > seconds or now - connection.body_since > longest:
                    connection.expire(reason)

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        self.now = loop.time()
        self._timer = loop.call_later(self._limits.sweep_interval, self._tick, loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        self.sweep(loop.time())
        if self._unchecked:
            self._timer = loop.call_soon(self._tick, loop)
        elif self._holder or self._evicted or self.malformed.is_pending or self._is_exhausted:
            self._start(loop)

    def forget(self, connection: Connection) -> None:
        """Remove a connection without counting its end: another protocol takes it over, or it is evicted."""
        for rank in self._ranks:
            rank.pop(connection, None)
        self._release(connection)

    def _visit(self, connection: Connection) -> tuple[Phase, float]:
        """Its phase and the time of its last progress. If either has changed, it is the last of its rank."""
        phase, since = connection.phase(self.now)
        rank = self._ranks[EVICTION_RANK[phase]]
        if rank.get(connection) != since:
            for other in self._ranks:
                other.pop(connection, None)
            rank[connection] = since
        return phase, since

    def _evict(self, connection: Connection) -> None:
        self.forget(connection)
        self._evicted.add(connection)
        connection.expire(Reason.CAP)

    def _evict_peer(self, peers: Iterable[Connection]) -> bool:
        """End the first connection in order of eviction of one client. The cap limits the search."""
        turns = [(turn, peer) for peer in peers if (turn := self._turn(peer)) is not None]
        newest = [turn for turn in turns if turn[0][0] == _NEWEST]
        if turns:
            is_burst = len(newest) > self._limits.per_client * _NEW_SHARE
            self._evict(min(newest if is_burst else turns, key=itemgetter(0))[1])
        return bool(turns)

    def _evict_first(self) -> bool:
        """End the first connection in order of eviction: the one for which the server has done the least.

        Without `_NEW_SHARE`, a burst of new connections would close all idle ones. If it were 0, idle connections of an
        attacker could keep nearly every place, and new ones would close each other during their handshakes.
        """
        newest = self._find(_NEW)
        is_burst = len(self._ranks[_NEW]) > self._limits.total * _NEW_SHARE
        first = (self._find_crowded() or newest) if is_burst else self._find(_CLOSING)
        if first is None and newest is not None and self.now - newest.since >= 2 * self._limits.sweep_interval:
            first = newest
        first = first or self._find(_IDLE) or self._find(_BUSY) or newest
        if first is not None:
            self._evict(first)
        return first is not None

    def _find(self, rank: int) -> Connection | None:
        """The connection of a rank that is closed first, of at most VISITS: those without progress for longest."""
        connections, found = self._ranks[rank], list[tuple[Turn, Connection]]()
        for _ in range(min(VISITS, len(connections))):
            connection, known = next(iter(connections.items()))
            turn = self._turn(connection)
            is_unchanged = connections.get(connection) == known
            if turn is not None and (turn[0] < rank or (is_unchanged and rank != _BUSY)):
                return connection
            if is_unchanged:
                # Each has its visit before this one has a second.
                connections.move_to_end(connection)
            if turn is not None and connection in connections:
                found.append((turn, connection))
        return min(found, key=itemgetter(0))[1] if found else None

    def _find_crowded(self) -> Connection | None:
        """The oldest new connection of a holder with more than its share. Others may have a handshake of a second."""
        for connection in list(islice(self._ranks[_NEW], VISITS)):
            if self._is_over_share(connection) and self._visit(connection)[0] is Phase.NEW:
                return connection
        return None

    def _turn(self, connection: Connection) -> Turn | None:
        """The rank and age of a connection; None if it cannot be closed now."""
        phase, since = self._visit(connection)
        rank, is_young = EVICTION_RANK[phase], self.now - since < 2 * self._limits.sweep_interval
        if rank == _BUSY and (is_young or phase is Phase.ANSWER) and not self._has_many(connection, phase):
            return None
        return _NEWEST if is_young and rank == _NEW else rank, since

    def _has_many(self, connection: Connection, phase: Phase) -> bool:
        """Whether its client is at its cap, or a holder of it has more than its share."""
        counts = self._count_held(connection)
        if counts and counts[_CLIENT][0] >= self._limits.per_client and phase is not Phase.ANSWER:
            return True
        return self._is_over_share(connection)

    def _is_over_share(self, connection: Connection) -> bool:
        """Whether a holder of the connection has more than its share, while no place is free."""
        total = self._limits.total
        # A customer or a client may always have this many places.
        return len(self._holder) >= total and any(
            count > max(total // (holders + 1), 2) for count, holders in self._count_held(connection)
        )

    def _count_held(self, connection: Connection) -> list[tuple[int, int]]:
        """The connections of its customer, and the number of customers; the same of its client."""
        holder = self._holder.get(connection, ())
        return [(len(held[key]), len(held)) for held, key in zip(self._held, holder, strict=False)]

    def _report_full(self, is_full: bool) -> None:
        """Log the change to and from the cap."""
        if is_full and not self._is_full:
            log.warning(
                "%d connections are open, the most that max_connections or the limit of open files allows; each new "
                "one takes the place of the one for which least has been done",
                len(self),
            )
        elif self._is_full and not is_full:
            log.info("%d connections are open, fewer than the limit again", len(self))
        self._is_full = is_full

    def _relieve(self) -> None:
        """Close idle connections while no further file can be opened, and log when that state begins and ends."""
        is_exhausted = _are_files_exhausted()
        # Idle connections that one sweep closes while no further file can be opened.
        for _ in range(32 if is_exhausted else 0):
            if not self._evict_first():
                break
        if is_exhausted and not self._is_exhausted:
            log.error("no more files can be opened; %d connections are open; raise LimitNOFILE (ulimit -n)", len(self))
        elif self._is_exhausted and not is_exhausted:
            log.info("files can be opened again; %d connections are open", len(self))
        self._is_exhausted = is_exhausted


def _are_files_exhausted() -> bool:
    """Whether this process or the system has reached its limit of open files."""
    try:
        os.close(os.dup(2))
    except OSError:
        return True
    return False
