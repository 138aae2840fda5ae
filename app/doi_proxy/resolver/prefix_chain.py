"""Adds the locations of other handles to those of a name: of its includes and its prefix (DOI Handbook, chapter 3).

The prefix record 0.NA/10.1000 names a service handle such as 10.SERV/CROSSREF. The 10320/loc values of that handle
count for every name under the prefix. The resolver fetches and caches these records like all others.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from msgspec import structs

from doi_names.errors import InvalidName
from doi_names.name import PREFIX_RECORDS, HandleName, fold
from doi_proxy.errors import CouldNotVerify, PrefixInactive, UpstreamTimeout
from doi_proxy.resolver import target
from doi_proxy.resolver.fetcher import await_shielded
from doi_proxy.resolver.resolution import (
    Action,
    Conditions,
    Negotiation,
    Resolution,
    ResolutionObserver,
    ResolveOptions,
    Standing,
    find_standing,
    read_agency,
    read_record,
)
from doi_proxy.resolver.resolver import Resolver
from doi_proxy.upstream.source import AgencySource, Priority
from handle_protocol.location import Locations, Namespace, merge_locations, read_namespace, split_handles
from handle_protocol.value import Record

#: Limit of the handles that the locations of one name include, directly or indirectly.
MAX_INCLUDES: Final = 20


@dataclass(frozen=True, slots=True)
class PrefixRecord:
    """A prefix, and the namespace in its record. It is empty if the prefix is not registered."""

    resolution: Resolution
    namespace: Namespace

    @property
    def is_registered(self) -> bool:
        """Whether the prefix is registered."""
        return self.resolution.is_registered


@dataclass(frozen=True, slots=True)
class ReportContact:
    """Who can correct a name that is not registered."""

    #: The name of the registration agency, "" if it is not known.
    agency: str
    #: The address of its form, an e-mail address, or words.
    contact: str | None
    #: Whether every record that could name them was found.
    is_complete: bool = True


NO_REPORT_CONTACT: Final = ReportContact("", None)


class _SizeLimit:
    """The limit of the bytes that are read for one name. The records of other handles count with all their values."""

    def __init__(self, left: int) -> None:
        self._left = left
        self.left_out: list[str] = []

    def admit(self, resolution: Resolution) -> bool:
        """Count a record. Returns False if it does not fit into what is left: the answer leaves it out."""
        size = len(resolution.entry.answer.values)
        if size > self._left:
            self.left_out.append(f"{resolution.name.text[:100]}: more XML than is read for one name")
            return False
        self._left -= size
        return True


class PrefixChain:
    """Finds the locations of names, and the records of their prefixes. Conditions say who is charged."""

    def __init__(self, resolver: Resolver, observer: ResolutionObserver | None = None) -> None:
        self._resolver = resolver
        self._observer = observer or ResolutionObserver()

    async def prefix_record(self, prefix: str, conditions: Conditions) -> PrefixRecord:
        """The record of a prefix such as "10.1000". Raises CouldNotVerify."""
        resolution = await self._resolver.resolve(HandleName(prefix), conditions)
        return PrefixRecord(resolution, read_namespace(resolution.record))

    async def find_locations(
        self,
        name: HandleName,
        record: Record,
        options: ResolveOptions,
        negotiation: Negotiation,
        conditions: Conditions,
        *,
        has_prefix: bool = True,
    ) -> target.NameLocations:
        """Find the locations of a name: its own, those that it includes and, if they matter, those of its prefix.

        Without `has_prefix`, those of the prefix do not hold for the name.

        Raises CouldNotVerify if locations are needed that cannot be fetched. Without them, a program that requests
        metadata would be redirected to a page for people.
        """
        locations = target.read_own_locations(record)
        if options.action is not Action.SHOW_VALUES:
            room = _SizeLimit(target.MAX_NAME_XML_BYTES - target.own_xml_bytes(record))
            try:
                if locations.of_name.includes or locations.of_name.namespaces:
                    locations = await self._add_includes(locations, name, room, conditions)
                if has_prefix and target.needs_prefix(record, locations, options, negotiation):
                    locations = await self._add_prefix(locations, name, room, conditions)
            except CouldNotVerify:
                if not target.is_sufficient(record, locations, options, negotiation):
                    raise
            if room.left_out:
                locations = replace(locations, malformed=(*locations.malformed, *room.left_out))
        if locations.malformed:
            self._observer.record_malformed_locations(len(locations.malformed))
        return locations

    async def services(self, prefix: str, conditions: Conditions) -> list[Resolution]:
        """The records of the service handles of a prefix and its parents. Raises CouldNotVerify."""
        found: list[Resolution] = []
        room = _SizeLimit(target.MAX_NAME_XML_BYTES)
        for parent in _prefix_and_parents(prefix):
            namespace = (await self.prefix_record(parent, conditions)).namespace
            found += filter(room.admit, await self._resolve_handles(namespace.locs or namespace.services, conditions))
            if namespace.no_nslocs or namespace.locs:
                break
        return found

    async def find_agency(self, prefix: str, conditions: Conditions) -> str | None:
        """The registration agency in the records of a prefix's services. Raises CouldNotVerify."""
        return read_agency(await self.services(prefix, conditions))

    async def _add_prefix(
        self, locations: target.NameLocations, name: HandleName, room: _SizeLimit, conditions: Conditions
    ) -> target.NameLocations:
        resolutions: list[Resolution] = []
        for parent in _prefix_and_parents(_override_prefix(locations) or name.prefix):
            record = await self._recall_prefix(parent, conditions)
            if record.namespace.is_inactive:
                raise PrefixInactive(status_message=record.namespace.status_message, contact=record.namespace.contact)
            resolutions += filter(
                room.admit, [record.resolution, *await self._resolve_handles(record.namespace.locs, conditions)]
            )
            if record.namespace.no_nslocs:
                break
        if not any(_own_locations(resolution).items for resolution in resolutions):
            resolutions += filter(
                room.admit, await self._resolve_handles(split_handles(locations.of_name.setting("nshdl")), conditions)
            )
        return replace(
            locations,
            of_prefix=merge_locations(_own_locations(resolution) for resolution in resolutions),
            links_of_prefix=tuple(link for resolution in resolutions for link in target.read_links(resolution.record)),
            ends_at=_first_end(locations.ends_at, resolutions),
        )

    async def _recall_prefix(self, prefix: str, conditions: Conditions) -> PrefixRecord:
        """The record of a prefix, or its last "not found" if it cannot be verified now. Raises CouldNotVerify.

        An expired "not found" must not make an answer say that the prefix does not exist, and here none says it. The
        names under the prefix keep their targets.
        """
        try:
            return await self.prefix_record(prefix, conditions)
        except CouldNotVerify:
            absent = await self._resolver.recall_absence(HandleName(prefix))
            if absent is None:
                raise
            return PrefixRecord(absent, read_namespace(absent.record))

    async def _add_includes(
        self, locations: target.NameLocations, name: HandleName, room: _SizeLimit, conditions: Conditions
    ) -> target.NameLocations:
        """Add the locations of the included handles, in the order of the includes."""
        total, ends_at = replace(locations.of_name, includes=(), namespaces=()), locations.ends_at
        waiting, seen = deque(_handles_to_include(locations.of_name)), {name.key}
        while waiting and len(seen) <= MAX_INCLUDES:
            handle, is_namespace = waiting.popleft()
            if fold(handle) in seen:
                continue
            seen.add(fold(handle))
            for resolution in filter(room.admit, await self._resolve_handles([handle], conditions)):
                included = _own_locations(resolution)
                total = total + replace(included, includes=(), namespaces=())
                waiting += _handles_to_include(included)
                if is_namespace:
                    waiting += [(service, False) for service in read_namespace(resolution.record).locs]
                ends_at = _first_end(ends_at, [resolution])
        return replace(locations, of_name=total, ends_at=ends_at)

    async def _resolve_handles(self, named: Sequence[str], conditions: Conditions) -> list[Resolution]:
        found: list[Resolution] = []
        for handle in named[:MAX_INCLUDES]:
            try:
                name = HandleName(handle)
            except InvalidName:
                continue
            resolution = await self._resolver.resolve(name, conditions)
            if resolution.is_registered:
                found.append(resolution)
                # Each record is parsed in a turn of its own: a hundred of 16 KiB take 60 ms.
                read_record(resolution.entry.answer.values)
                await asyncio.sleep(0)
        return found

    def recall_contact(self, name: HandleName) -> ReportContact:
        """What `report_contact` would find, by the records in memory alone."""
        found = self._resolver.resolve_now(HandleName(name.prefix)) if name.is_doi else None
        if found is None:
            return NO_REPORT_CONTACT
        try:
            namespace = read_namespace(found.record)
            handles = [HandleName(_strip_na(service)) for service in (namespace.locs or namespace.services)[:1]]
        except InvalidName:
            return NO_REPORT_CONTACT
        services = [service for handle in handles if (service := self._resolver.resolve_now(handle)) is not None]
        return _choose_contact(services, namespace.contact)

    async def report_contact(self, name: HandleName, conditions: Conditions) -> ReportContact:
        """Who can correct a name that is not registered: from the records of its prefix and of the agency's service."""
        contact = None
        # The contact is optional, so the queries of people go first.
        background = structs.replace(conditions, priority=Priority.BULK)
        try:
            namespace = (await self.prefix_record(name.prefix, background)).namespace
            contact = namespace.contact
            services = await self._resolve_handles((namespace.locs or namespace.services)[:1], background)
        except (CouldNotVerify, InvalidName):
            return ReportContact("", contact, is_complete=False)
        return _choose_contact(services, contact)


def _choose_contact(services: Sequence[Resolution], contact: str | None) -> ReportContact:
    agency = read_agency(services)
    # The type of the value in which an agency's service handle has the address of its form for missing DOIs.
    forms = [value.text for service in services for value in service.record.of_type("PROXY_ERROR_URL") if value.text]
    return ReportContact(agency or "", forms[0] if forms else contact)


def _own_locations(resolution: Resolution) -> Locations:
    return target.read_own_locations(resolution.record).of_name


def _handles_to_include(locations: Locations) -> list[tuple[str, bool]]:
    """The handles to include. True: the handle is a prefix, whose service handles are included too."""
    included = [(handle, False) for handle in locations.includes]
    return included + [(_strip_na(handle), True) for handle in locations.namespaces]


def _override_prefix(locations: target.NameLocations) -> str | None:
    """The prefix that a record names in place of its own. None if it is absent or not valid."""
    try:
        return HandleName(_strip_na((locations.of_name.setting("overridePrefix") or "").strip())).prefix or None
    except InvalidName:
        return None


def _strip_na(prefix: str) -> str:
    """A prefix without "0.NA/", which is the form of the prefixes of names. Both forms name one record."""
    return prefix[len(PREFIX_RECORDS) :] if fold(prefix[: len(PREFIX_RECORDS)]) == PREFIX_RECORDS else prefix


def _first_end(ends_at: float | None, resolutions: Iterable[Resolution]) -> float | None:
    ends = [resolution.entry.fresh_until for resolution in resolutions]
    return min([*ends, *(() if ends_at is None else (ends_at,))], default=None)


def _prefix_and_parents(prefix: str) -> list[str]:
    """A prefix and its parents, except "10", which has no service handles."""
    elements = prefix.split(".")
    # Limit of the prefixes that are read for one name: its prefix and the parents (10.1000.10.1, 10.1000.10, 10.1000).
    counts = range(len(elements), 1, -1)[:5]
    return [".".join(elements[:count]) for count in counts] or [prefix]


#: Names of one request that are looked up at a time.
CONCURRENCY: Final = 8
#: The statuses of the Which RA service. The last one is an addition of this program.
INVALID: Final = "Invalid DOI"
DOES_NOT_EXIST: Final = "DOI does not exist"
UNKNOWN: Final = "Unknown"
COULD_NOT_VERIFY: Final = "Could not verify"


class WhichRa:
    """Finds the registration agencies of names."""

    def __init__(self, resolver: Resolver, prefixes: PrefixChain, agencies: AgencySource | None) -> None:
        """`agencies` is the Which RA service of the upstream. It is queried if the records have no agency."""
        self._resolver = resolver
        self._prefixes = prefixes
        self._agencies = agencies

    async def rows(
        self, names: Sequence[tuple[str, HandleName | None]], conditions: Conditions
    ) -> list[dict[str, str]]:
        """Return a row per name, in order: `{"DOI": …, "RA": …}` or `{"DOI": …, "status": …}`.

        `names` are pairs of the client's spelling, which the row repeats, and the name, None for an invalid one. Does
        not raise: if a name could not be verified, its row says so. The conditions hold for each name.
        """
        request = _Request(self._agencies, conditions)
        try:
            return list(await asyncio.gather(*(self._row(text, name, request) for text, name in names)))
        finally:
            request.cancel()

    async def _row(self, text: str, name: HandleName | None, request: _Request) -> dict[str, str]:
        if name is None or not (name.is_doi or name.is_prefix):
            return {"DOI": text, "status": INVALID}
        try:
            async with request.slots:
                return {"DOI": text} | await self._agency(name, request)
        except CouldNotVerify:
            return {"DOI": text, "status": COULD_NOT_VERIFY}

    async def _agency(self, name: HandleName, request: _Request) -> dict[str, str]:
        resolution = await self._resolver.resolve(name, request.conditions)
        if find_standing(resolution) is Standing.NOT_REGISTERED:
            return {"status": DOES_NOT_EXIST}
        found = await self._prefixes.find_agency(name.prefix, request.conditions)
        if found is None:
            found = await request.agency_of_prefix(name.prefix)
        return {"status": UNKNOWN} if found is None else {"RA": found}


class _Request:
    """The upstream queries of one request. The Which RA service gets one query per prefix."""

    def __init__(self, agencies: AgencySource | None, conditions: Conditions) -> None:
        self.conditions = conditions
        #: Each request has its own slots, so one with many names does not delay another.
        self.slots = asyncio.Semaphore(CONCURRENCY)
        self._agencies = agencies
        self._queries: dict[str, asyncio.Task[str | None]] = {}

    async def agency_of_prefix(self, prefix: str) -> str | None:
        """Query the upstream's Which RA service. None if there is none, or it has no answer. Raises CouldNotVerify."""
        if self._agencies is None:
            return None
        query = self._queries.get(fold(prefix))
        if query is None:
            query = self._queries[fold(prefix)] = asyncio.create_task(self._query(self._agencies, prefix))
        try:
            return await await_shielded(query, self.conditions.due)
        except TimeoutError:
            raise UpstreamTimeout from None

    def cancel(self) -> None:
        """End the queries that no row waits for any more."""
        for query in self._queries.values():
            if not query.done():
                query.cancel()
            elif not query.cancelled():
                query.exception()  # the rows have said it

    async def _query(self, agencies: AgencySource, prefix: str) -> str | None:
        rows = await agencies.registration_agencies([prefix], self.conditions.client)
        return rows[0].get("RA") if rows else None
