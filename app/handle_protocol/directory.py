"""From the root to the servers that hold a handle (RFC 3652, sections 3.1 and 3.4).

The record of a prefix says where its names live: in the sites of its HS_SITE values, or of a service handle that an
HS_SERV value names. A server refers the client onwards for derived prefixes (response code 303).

A service is looked up again after its lifetime. If that fails, its last known sites are used on for a while: names of
known prefixes do not need the root.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Final, Protocol

from handle_protocol import errors, referral
from handle_protocol.referral import Lead, Lookups, within
from handle_protocol.site import Root, RootKeeper
from handle_protocol.wire.message import Response, ResponseStatus, Values


@dataclass(frozen=True, slots=True)
class ServiceEntry:
    """A service lookup. `lead` is None if the record does not exist. Times are in seconds since the epoch.

    From `due_at`, it is looked up again. Until `ends_at`, it is used if that fails.
    """

    lead: Lead | None
    is_verified: bool
    fetched_at: float
    due_at: float
    ends_at: float

    @property
    def weight(self) -> int:
        """The memory that this takes, in usual services."""
        return self.lead.weight if self.lead else 1


class ServiceCache:
    """A bounded memory of service lookups. The one that was used least recently is dropped first.

    A verified and an unverified lookup of one record are kept side by side: an unsigned answer does not replace proof.
    """

    def __init__(self, most: int) -> None:
        """`most` is the number of usual services; a large one counts as several."""
        self._most = most
        self._weight = 0
        #: Entries that lead to a service. The others are records that do not exist.
        self._leads = 0
        self._entries: OrderedDict[tuple[bytes, bool], ServiceEntry] = OrderedDict()

    @property
    def is_empty(self) -> bool:
        """Whether no service is known."""
        return not self._leads

    def find(self, record: bytes, now: float, *, certified: bool) -> ServiceEntry | None:
        """The usable lookup of a record that is due last. With `certified`, it was verified."""
        keys = [(record.upper(), True)] + ([] if certified else [(record.upper(), False)])
        found = [key for key in keys if key in self._entries and now < self._entries[key].ends_at]
        if not found:
            return None
        last = max(found, key=lambda key: self._entries[key].due_at)
        self._entries.move_to_end(last)
        return self._entries[last]

    def last_lead(self, now: float) -> Lead | None:
        """The sites that were used last. None if no usable lookup has sites."""
        leads = (entry.lead for entry in reversed(self._entries.values()) if now < entry.ends_at)
        return next((lead for lead in leads if lead is not None and lead.sites), None)

    def put(self, record: bytes, entry: ServiceEntry) -> None:
        """Remember a lookup in place of the previous one."""
        key = (record.upper(), entry.is_verified)
        self._drop(key)
        self._entries[key] = entry
        self._weight += entry.weight
        self._leads += entry.lead is not None
        while self._weight > self._most:
            self._drop(next(iter(self._entries)))

    def make_due(self, record: bytes, now: float, *, older_than: float) -> bool:
        """Let a record be looked up again at its next use, if its lookup is old enough; also its service handles.

        Returns whether one will be.
        """
        handles, seen, is_due = [record.upper()], set[bytes](), False
        while handles:
            handle = handles.pop()
            seen.add(handle)
            for key in ((handle, True), (handle, False)):
                entry = self._entries.get(key)
                if entry is not None and entry.fetched_at <= older_than:
                    self._entries[key], is_due = replace(entry, due_at=min(entry.due_at, now)), True
                    names = entry.lead.service_handles if entry.lead else ()
                    handles += [name.upper() for name in names if name.upper() not in seen]
        return is_due

    def _drop(self, key: tuple[bytes, bool]) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._weight -= entry.weight
            self._leads -= entry.lead is not None


_LATE: Final = "The service of a prefix could not be looked up in time."


@dataclass(slots=True)
class Allowance:
    """What is left for all branches of a way, so a record that names many services does not multiply the work."""

    #: Queries to servers.
    queries: int
    #: Records that lead onwards, also those that are remembered.
    records: int
    #: Queries whose tokens of the budget the caller has spent.
    paid: int = 0


@dataclass(frozen=True, slots=True)
class Trail:
    """One branch of a way: the records that it came through."""

    left: Allowance
    handles: frozenset[bytes] = frozenset()

    def enter(self, handle: bytes) -> Trail:
        """The way through a record. Raises ServiceNotFound if it came through this record before, or is too long."""
        key = handle.upper()
        if key in self.handles:
            raise errors.ServiceNotFound(detail=f"the records of the services form a loop at {handle[:100]!r}")
        if not self.left.records:
            raise errors.ServiceNotFound(detail="the way has too many service handles")
        self.left.records -= 1
        return Trail(self.left, self.handles | {key})

    def count_query(self) -> None:
        """One more query. Raises ServiceNotFound if there are too many."""
        if not self.left.queries:
            raise errors.ServiceNotFound(detail="the way has too many queries, service handles and referrals")
        self.left.queries -= 1

    def take_paid(self) -> bool:
        """Whether the token of the next query is spent already. Each is used once."""
        if not self.left.paid:
            return False
        self.left.paid -= 1
        return True


class ServiceStore(Protocol):
    """Keeps lookups beyond this process."""

    async def load(self, record: bytes) -> ServiceEntry | None:
        """The lookup that is kept. None if there is none that names a service."""

    async def save(self, record: bytes, response: Response, found: ServiceEntry, *, sent_at: float) -> None:
        """Keep the record that an answer has, with its lookup. The query was sent at `sent_at`, since the epoch."""


class Directory:
    """Finds the servers of a handle, and queries them.

    `records` has the lookups of other processes and of earlier starts. For all names under a prefix, one lookup of the
    prefix runs at a time.
    """

    def __init__(self, root: RootKeeper, lookups: Lookups, records: ServiceStore | None = None) -> None:
        self._records = records
        self._root = Root(root, lookups)
        self._ask = lookups.ask
        self._limits = lookups.limits
        self._clock = lookups.clock
        self._observer = lookups.observer
        self._admit_query = lookups.admit_query
        self._are_signed = lookups.are_signed and root.service.is_verified
        self._services = ServiceCache(self._limits.services)
        self._lookups: dict[tuple[bytes, bool], asyncio.Task[referral.HandleService | None]] = {}
        self._is_closed = False

    async def resolve(self, question: referral.Question) -> Response | None:
        """The answer of a server that is responsible for the handle. None if its prefix does not exist.

        Raises HandleProtocolError.
        """
        return await self._resolve(question, self._new_trail(paid=1))

    async def probe(self, question: referral.Question) -> Response | None:
        """The answer of the root, or if it fails, of the service that was used last. Raises HandleProtocolError.

        Names of known prefixes can be resolved without the root.
        """
        try:
            return await self.resolve(question)
        except errors.HandleProtocolError:
            lead = self._services.last_lead(self._clock())
            if lead is None:
                raise
            return await self._ask_service(referral.HandleService(lead.sites, is_verified=False), question)

    async def aclose(self) -> None:
        """Stop the lookups that are under way."""
        self._is_closed = True
        running = [*self._lookups.values()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await self._root.aclose()

    def _new_trail(self, paid: int = 0) -> Trail:
        return Trail(Allowance(self._limits.queries, self._limits.queries, paid))

    async def _resolve(self, question: referral.Question, trail: Trail) -> Response | None:
        record = referral.prefix_record(question.handle)
        if record is None:
            return await self._query(None, question, trail)
        service = await self._find_shared(record, question.certified, trail)
        if service is None:
            return None
        response = await self._query(service, question, trail)
        is_refusal = response.code == ResponseStatus.NOT_RESPONSIBLE
        if not is_refusal and response.header.site_serial in {site.serial for site in service.sites}:
            return response
        # The service changed, and the record that led here is old. The pause bounds the lookups if it is never
        # corrected: any registrant can name a server that is not responsible.
        now = self._clock()
        is_due = self._services.make_due(record, now, older_than=now - self._limits.shortest_lifetime)
        if not is_refusal or not is_due:
            return response
        service = await self._find_shared(record, question.certified, trail)
        return None if service is None else await self._query(service, question, trail)

    async def _query(
        self, service: referral.HandleService | None, question: referral.Question, trail: Trail
    ) -> Response:
        """Ask a service, or the root if it is None, and follow the referrals."""
        while True:
            trail.count_query()
            if not trail.take_paid():
                await self._admit_query()
            if service is None:
                response = await self._root.query(question, is_needed=self._services.is_empty)
            else:
                response = await self._ask_service(service, question)
            is_referral = response.code in (ResponseStatus.SERVICE_REFERRAL, ResponseStatus.PREFIX_REFERRAL)
            if not is_referral or not isinstance(response.body, Values):
                return response
            lead = referral.read_referral(response.body.values, self._clock())
            if lead is None:
                raise errors.ServiceNotFound(detail="a referral names no service")
            service = await self._follow(lead, question.certified, trail)

    async def _ask_service(self, service: referral.HandleService, question: referral.Question) -> Response:
        if question.certified and not service.is_verified:
            raise errors.SignatureInvalid(
                "No chain of signatures leads from the root to the keys of the handle server."
            )
        try:
            return await self._ask(service, question)
        except errors.ServerUnreachable as error:
            raise errors.ServiceUnreachable(detail=error.detail) from error

    async def _find_shared(self, record: bytes, certified: bool, trail: Trail) -> referral.HandleService | None:
        """The service that a record names; None if the record does not exist. Concurrent callers share one lookup.

        A lookup does not wait for another: two that wait for each other would wait for ever.
        """
        certified = certified or self._are_signed
        if trail.handles:
            return await self._find(record, certified, trail.enter(record))
        if self._is_closed:
            raise asyncio.CancelledError
        key = record.upper(), certified
        task = self._lookups.get(key)
        if task is None:
            task = self._lookups[key] = asyncio.create_task(self._find_in_time(record, certified))
            task.add_done_callback(lambda done: self._end_lookup(key, done))
        # One caller that goes away does not end the lookup of the others.
        await asyncio.wait((task,))
        return task.result()

    def _end_lookup(self, key: tuple[bytes, bool], task: asyncio.Task[referral.HandleService | None]) -> None:
        del self._lookups[key]
        if not task.cancelled():
            # asyncio reports an exception that is never retrieved, and all callers may have left.
            task.exception()

    async def _find_in_time(self, record: bytes, certified: bool) -> referral.HandleService | None:
        return await within(self._limits.timeout, self._find(record, certified, self._new_trail().enter(record)), _LATE)

    async def _find(self, record: bytes, certified: bool, trail: Trail) -> referral.HandleService | None:
        entry = await self._recall(record, certified)
        if entry is None or entry.due_at <= self._clock():
            entry = await self._look_up_or_keep(record, entry, certified, trail)
            self._services.put(record, entry)
        return None if entry.lead is None else await self._follow(entry.lead, certified, trail)

    async def _recall(self, record: bytes, certified: bool) -> ServiceEntry | None:
        """The lookup that this process remembers. If there is none, or it is due, the cache may have a later one."""
        now = self._clock()
        known = self._services.find(record, now, certified=certified)
        if self._records is None or (known is not None and now < known.due_at):
            return known
        stored = await self._records.load(record)
        if stored is None or now >= stored.ends_at or (certified and not stored.is_verified):
            return known
        if known is not None and stored.fetched_at <= known.fetched_at:
            return known
        self._services.put(record, stored)
        return stored

    async def _look_up_or_keep(
        self, record: bytes, known: ServiceEntry | None, certified: bool, trail: Trail
    ) -> ServiceEntry:
        """Look up a service. If that fails, the one that is known is due again after a pause."""
        if known is None or known.lead is None:
            return await self._look_up(record, certified, trail)
        now = self._clock()
        if not self._root.has_failed(now):
            try:
                return await self._look_up_again(record, certified, trail)
            except errors.HandleProtocolError as error:
                self._observer.record_overdue(error)
                now = self._clock()
        return replace(known, due_at=now + self._limits.shortest_lifetime)

    async def _look_up_again(self, record: bytes, certified: bool, trail: Trail) -> ServiceEntry:
        entry = await within(self._limits.lookup_timeout, self._look_up(record, certified, trail), _LATE)
        if entry.lead is None and not entry.is_verified:
            # The servers of the service say which of its names exist. An unsigned answer does not end all of them.
            raise errors.ServiceNotFound(
                detail=f"{record[:100]!r} does not exist any more, says an answer without signature"
            )
        return entry

    async def _look_up(self, record: bytes, certified: bool, trail: Trail) -> ServiceEntry:
        sent_at = self._clock()
        # All types: the answer is the record of this name in the cache.
        response = await self._resolve(referral.Question(record, certified=certified, is_lookup=True), trail)
        now = self._clock()
        if response is None or response.code == ResponseStatus.HANDLE_NOT_FOUND:
            ends_at = now + self._limits.bound(0.0)
            return ServiceEntry(None, certified, now, ends_at, ends_at)
        lead = referral.read_lead(response.body.values, now) if isinstance(response.body, Values) else None
        if lead is None:
            raise errors.ServiceNotFound(detail=f"{record[:100]!r} names no service, response code {response.code}")
        due_at = now + self._limits.bound(lead.lifetime)
        entry = ServiceEntry(lead, certified, now, due_at, due_at + self._limits.grace)
        if self._records is not None:
            await self._records.save(record, response, entry, sent_at=sent_at)
        return entry

    async def _follow(self, lead: referral.Lead, certified: bool, trail: Trail) -> referral.HandleService:
        """The service at the end of a lead. With `certified`, every record on the way was signed.

        Of several service handles, the first that leads to sites counts. If none does, the first failure is raised.
        """
        if not lead.service_handles:
            return referral.HandleService(lead.sites, certified)
        failures: list[errors.HandleProtocolError] = []
        for handle in lead.service_handles:
            try:
                service = await self._find(handle, certified or self._are_signed, trail.enter(handle))
            except errors.HandleProtocolError as error:
                failures.append(error)
                continue
            if service is not None:
                return service
            failures.append(errors.ServiceNotFound(detail=f"the service handle {handle[:100]!r} does not exist"))
        raise failures[0]
