"""From the root to the servers that hold a handle (RFC 3650, section 4; RFC 3651, section 3.2).

The record of a prefix says where its names live: in the sites of its HS_SITE values, or of the service handle in its
HS_SERV value. A server refers the client onwards for derived prefixes (response code 303).
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from app.errors import (
    CouldNotVerify,
    HandleServerUnreachable,
    ServiceNotFound,
    SignatureInvalid,
    UpstreamUnreachable,
)
from app.upstream.native.referral import (
    ROOT_HANDLE,
    SERVICE_TYPES,
    Lead,
    Question,
    Service,
    prefix_record,
    read_lead,
    read_referral,
)
from app.upstream.native.wire.message import ResponseStatus
from app.upstream.native.wire.response import Response, Values

_REFERRALS: Final = (ResponseStatus.SERVICE_REFERRAL, ResponseStatus.PREFIX_REFERRAL)


class Asker(Protocol):
    """Sends one question to a service."""

    async def __call__(self, service: Service, question: Question) -> Response:
        """An answer that belongs to the question, and is signed if the question says so. Raises CouldNotVerify."""


@dataclass(frozen=True, slots=True)
class DirectoryLimits:
    """The bounds of a directory. Times are in seconds."""

    #: Queries for one handle, with those for prefixes, service handles and referrals.
    queries: int
    #: Services that are remembered; a large one counts as several. The one that was used least recently is forgotten.
    services: int
    #: A service is looked up again after the TTL of its record, at least and at most so long.
    shortest_lifetime: float
    longest_lifetime: float


@dataclass(frozen=True, slots=True)
class _Entry:
    """A cached service lookup. `lead` is None if the record does not exist."""

    lead: Lead | None
    is_verified: bool
    fetched_at: float
    ends_at: float

    @property
    def weight(self) -> int:
        """The memory that this takes, in usual services."""
        return self.lead.weight if self.lead else 1


class _Trail:
    """The way to one handle: the records that lead to it, and the queries that are left for all of it."""

    __slots__ = ("_handles", "_left")

    def __init__(self, left: list[int], handles: frozenset[bytes] = frozenset()) -> None:
        self._left = left
        self._handles = handles

    @property
    def is_start(self) -> bool:
        """Whether no record was entered yet."""
        return not self._handles

    def enter(self, handle: bytes) -> _Trail:
        """The way through a record. Raises ServiceNotFound if it came through this record before."""
        key = handle.upper()
        if key in self._handles:
            raise ServiceNotFound(detail=f"the records of the services form a loop at {handle[:100]!r}")
        return _Trail(self._left, self._handles | {key})

    def count_query(self) -> None:
        """One more query. Raises ServiceNotFound if there are too many."""
        if not self._left[0]:
            raise ServiceNotFound(detail="the way has too many queries, service handles and referrals")
        self._left[0] -= 1


class Directory:
    """Finds the servers of a handle, and queries them.

    `root` is the service of the bootstrap file; `clock` returns seconds since the epoch; `report` is called with the
    error if the root could not be refreshed, and with None after it was. For all names under a prefix, one lookup of
    the prefix runs at a time.
    """

    def __init__(
        self,
        root: Service,
        ask: Asker,
        *,
        limits: DirectoryLimits,
        clock: Callable[[], float],
        report: Callable[[CouldNotVerify | None], None],
    ) -> None:
        self._root = root
        self._root_ends_at = 0.0
        self._ask = ask
        self._limits = limits
        self._clock = clock
        self._report = report
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()
        self._weight = 0
        self._lookups: dict[tuple[bytes, bool], asyncio.Task[Service | None]] = {}
        self._refresh: asyncio.Task[None] | None = None

    async def resolve(self, question: Question) -> Response | None:
        """The answer of a server that is responsible for the handle. None if its prefix does not exist.

        Raises CouldNotVerify.
        """
        return await self._resolve(question, self._new_trail())

    async def aclose(self) -> None:
        """Stop the lookups that are under way."""
        tasks = [*self._lookups.values(), *([self._refresh] if self._refresh else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _new_trail(self) -> _Trail:
        return _Trail([self._limits.queries])

    async def _resolve(self, question: Question, trail: _Trail) -> Response | None:
        record = prefix_record(question.handle)
        if record is None:
            return await self._query(self._current_root(), question, trail)
        service = await self._find_shared(record, question.certified, trail)
        if service is None:
            return None
        response = await self._query(service, question, trail)
        if response.code == ResponseStatus.NOT_RESPONSIBLE:
            # The record that led here is old. It is looked up once more.
            self._forget(record, older_than=math.inf)
            service = await self._find_shared(record, question.certified, trail)
            return None if service is None else await self._query(service, question, trail)
        if response.header.site_serial not in {site.serial for site in service.sites}:
            # The service changed. The pause bounds the lookups if its record is never corrected.
            self._forget(record, older_than=self._clock() - self._limits.shortest_lifetime)
        return response

    async def _query(self, service: Service, question: Question, trail: _Trail) -> Response:
        """Ask a service, and follow its referrals."""
        while True:
            trail.count_query()
            if question.certified and not service.is_verified:
                raise SignatureInvalid("No chain of signatures leads from the root to the keys of the handle server.")
            is_root = service is self._root
            try:
                response = await self._ask(service, question)
            except UpstreamUnreachable as error:
                raise error if is_root else HandleServerUnreachable(detail=error.detail) from error
            if response.code not in _REFERRALS or not isinstance(response.body, Values):
                return response
            lead = read_referral(response.body.values, self._clock())
            if lead is None:
                raise ServiceNotFound(detail="a referral names no service")
            service = await self._follow(lead, question.certified, trail)

    async def _find_shared(self, record: bytes, certified: bool, trail: _Trail) -> Service | None:
        """The service that a record names; None if the record does not exist. Concurrent callers share one lookup.

        A lookup does not wait for another: two that wait for each other would wait for ever.
        """
        if not trail.is_start:
            return await self._find(record, certified, trail.enter(record))
        key = (record.upper(), certified)
        task = self._lookups.get(key)
        if task is None:
            task = asyncio.create_task(self._find(record, certified, self._new_trail().enter(record)))
            self._lookups[key] = task
            task.add_done_callback(lambda task: self._end_lookup(key, task))
        # One caller that goes away does not end the lookup of the others.
        return await asyncio.shield(task)

    def _end_lookup(self, key: tuple[bytes, bool], task: asyncio.Task[Service | None]) -> None:
        self._lookups.pop(key, None)
        if not task.cancelled():
            task.exception()  # without this, asyncio reports an error that no caller is left to see

    async def _find(self, record: bytes, certified: bool, trail: _Trail) -> Service | None:
        entry = self._entry(record, certified) or await self._look_up(record, certified, trail)
        return None if entry.lead is None else await self._follow(entry.lead, certified, trail)

    async def _follow(self, lead: Lead, certified: bool, trail: _Trail) -> Service:
        """The service at the end of a lead. With `certified`, every record on the way was signed."""
        if lead.service_handle is None:
            return Service(lead.sites, is_verified=certified)
        service = await self._find(lead.service_handle, certified, trail.enter(lead.service_handle))
        if service is None:
            raise ServiceNotFound(detail=f"the service handle {lead.service_handle[:100]!r} does not exist")
        return service

    async def _look_up(self, record: bytes, certified: bool, trail: _Trail) -> _Entry:
        response = await self._resolve(Question(record, SERVICE_TYPES, certified=certified), trail)
        now, lead, lifetime = self._clock(), None, 0.0
        if response is not None and response.code != ResponseStatus.HANDLE_NOT_FOUND:
            values = response.body.values if isinstance(response.body, Values) else ()
            lead = read_lead(values, now)
            if lead is None:
                raise ServiceNotFound(detail=f"{record[:100]!r} names no service, response code {response.code}")
            lifetime = lead.lifetime
        entry = _Entry(lead, certified, now, now + self._bound(lifetime))
        self._remember(record.upper(), entry)
        return entry

    def _remember(self, key: bytes, entry: _Entry) -> None:
        self._drop(key)
        self._entries[key] = entry
        self._weight += entry.weight
        while self._weight > self._limits.services:
            self._drop(next(iter(self._entries)))

    def _drop(self, key: bytes) -> None:
        entry = self._entries.pop(key, None)
        self._weight -= entry.weight if entry else 0

    def _entry(self, record: bytes, certified: bool) -> _Entry | None:
        entry = self._entries.get(record.upper())
        if entry is None or entry.ends_at <= self._clock() or (certified and not entry.is_verified):
            return None
        self._entries.move_to_end(record.upper())
        return entry

    def _forget(self, record: bytes, older_than: float) -> None:
        """Forget what a record says, and what the record of its service handle says."""
        handle: bytes | None = record
        while handle is not None:
            entry = self._entries.get(handle.upper())
            if entry is None or entry.fetched_at > older_than:
                return
            self._drop(handle.upper())
            handle = entry.lead.service_handle if entry.lead else None

    def _bound(self, lifetime: float) -> float:
        return max(self._limits.shortest_lifetime, min(lifetime, self._limits.longest_lifetime))

    def _current_root(self) -> Service:
        """The root as it is known. If it is due, it is refreshed meanwhile."""
        now = self._clock()
        if self._root_ends_at <= now:
            self._root_ends_at = now + self._limits.shortest_lifetime
            self._refresh = asyncio.create_task(self._refresh_root())
        return self._root

    async def _refresh_root(self) -> None:
        """Read the root's sites at the root. Only an answer that a key of the known root signed replaces them."""
        try:
            question = Question(ROOT_HANDLE, SERVICE_TYPES, certified=True)
            response = await self._query(self._root, question, self._new_trail())
            now = self._clock()
            lead = read_lead(response.body.values, now) if isinstance(response.body, Values) else None
            if lead is None or not lead.sites:
                raise ServiceNotFound(detail=f"the record of the root has no sites, response code {response.code}")
        except CouldNotVerify as error:
            self._report(error)
            return
        self._root = Service(lead.sites, is_verified=True)
        self._root_ends_at = now + self._bound(lead.lifetime)
        self._report(None)
