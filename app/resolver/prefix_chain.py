"""The driver for what a prefix says of its names: prefix record, service handle, locations (DOI Handbook, chapter 3).

0.NA/10.1000 names a service handle such as 10.SERV/CROSSREF, whose 10320/loc holds for every name under the prefix.
All records come through the resolver, so that they are cached and asked for once like any other.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from app.doi.name import HandleName, fold
from app.errors import CouldNotVerify, InvalidName, PrefixInactive
from app.handle.location import Locations, merge_locations, split_handles
from app.handle.namespace import Namespace, read_namespace
from app.handle.record import Record
from app.resolver.lookup import Lookup
from app.resolver.observer import NoResolutionObserver, ResolutionObserver
from app.resolver.options import Action, Negotiation, ResolveOptions
from app.resolver.resolution import Resolution
from app.resolver.target import (
    MAX_NAME_XML_BYTES,
    NameLocations,
    is_settled,
    links_values,
    needs_prefix,
    own_xml_bytes,
    read_own_locations,
)

#: Handles that are included by one name's locations, directly or not.
MOST_INCLUDES: Final = 20
#: Prefixes above a sub-divided prefix that are asked: 10.1000.10.1 -> 10.1000.10 -> 10.1000.
_MOST_PARENTS: Final = 5
#: Other requests take their turn before a larger prefix record is parsed.
_USUAL_BYTES: Final = 16_384
#: Prefixes are handles below this one.
_NA: Final = "0.NA/"


@dataclass(frozen=True, slots=True)
class PrefixRecord:
    """A prefix and what its record says; without a record where the prefix is not registered."""

    resolution: Resolution
    namespace: Namespace

    @property
    def found(self) -> bool:
        """Whether the prefix is registered."""
        return self.resolution.found


class _Room:
    """What is left of the bytes that are read for one name; other records count with all of their values."""

    def __init__(self, left: int) -> None:
        self._left = left
        self.left_out: list[str] = []

    def admit(self, resolution: Resolution) -> bool:
        """Whether a record fits; one that does not is left out of the answer."""
        size = len(resolution.entry.answer.values)
        if size > self._left:
            self.left_out.append(f"{resolution.name.text[:100]}: more XML than is read for one name")
            return False
        self._left -= size
        return True


class PrefixChain:
    """Finds the locations that hold for a name."""

    def __init__(self, observer: ResolutionObserver | None = None) -> None:
        self._observer = observer or NoResolutionObserver()

    async def prefix_record(self, prefix: str, lookup: Lookup) -> PrefixRecord:
        """The record of a prefix such as "10.1000". Raises CouldNotVerify."""
        resolution = await lookup.resolve(HandleName(prefix))
        if len(resolution.entry.answer.values) > _USUAL_BYTES:
            # Other requests take their turn: five records of 1 MiB in memory take 60 ms to parse.
            await asyncio.sleep(0)
        return PrefixRecord(resolution, read_namespace(resolution.record))

    async def find_locations(
        self, name: HandleName, record: Record, options: ResolveOptions, negotiation: Negotiation, lookup: Lookup
    ) -> NameLocations:
        """The locations of a name: its own, those it includes and, where the answer depends on them, its prefix's.

        Raises CouldNotVerify where others than its own are needed and cannot be asked for: to answer without them
        would send a program that wants metadata to a page for people.
        """
        locations = read_own_locations(record)
        if options.action is not Action.SHOW_VALUES:
            locations = await self._complete(locations, name, record, options, negotiation, lookup)
        if locations.malformed:
            self._observer.locations_malformed(len(locations.malformed))
        return locations

    async def _complete(
        self,
        locations: NameLocations,
        name: HandleName,
        record: Record,
        options: ResolveOptions,
        negotiation: Negotiation,
        lookup: Lookup,
    ) -> NameLocations:
        room = _Room(MAX_NAME_XML_BYTES - own_xml_bytes(record))
        try:
            if locations.own.includes or locations.own.namespaces:
                locations = await self._with_includes(locations, name, room, lookup)
            if needs_prefix(record, locations, options, negotiation):
                locations = await self._with_prefix(locations, name, room, lookup)
        except CouldNotVerify:
            if not is_settled(record, locations, options, negotiation):
                raise
        return replace(locations, malformed=(*locations.malformed, *room.left_out)) if room.left_out else locations

    async def services(self, prefix: str, lookup: Lookup) -> list[Resolution]:
        """The records of the service handles of a prefix and of the prefixes above it. Raises CouldNotVerify."""
        found: list[Resolution] = []
        room = _Room(MAX_NAME_XML_BYTES)
        for parent in _parents(prefix):
            namespace = (await self.prefix_record(parent, lookup)).namespace
            found += filter(room.admit, await self._resolved(namespace.locs or namespace.services, lookup))
            if namespace.no_nslocs or namespace.locs:
                break
        return found

    async def _with_prefix(
        self, locations: NameLocations, name: HandleName, room: _Room, lookup: Lookup
    ) -> NameLocations:
        resolutions: list[Resolution] = []
        for parent in _parents(_overridden(locations) or name.prefix):
            record = await self.prefix_record(parent, lookup)
            if record.namespace.is_inactive:
                raise PrefixInactive(status_message=record.namespace.status_message, contact=record.namespace.contact)
            resolutions += filter(room.admit, [record.resolution, *await self._resolved(record.namespace.locs, lookup)])
            if record.namespace.no_nslocs:
                break
        if not any(_locations(one).items for one in resolutions):
            resolutions += filter(
                room.admit, await self._resolved(split_handles(locations.own.setting("nshdl")), lookup)
            )
        return replace(
            locations,
            of_prefix=merge_locations(_locations(one) for one in resolutions),
            links_of_prefix=tuple(link for one in resolutions for link in links_values(one.record)),
            ends_at=_earliest(locations.ends_at, resolutions),
        )

    async def _with_includes(
        self, locations: NameLocations, name: HandleName, room: _Room, lookup: Lookup
    ) -> NameLocations:
        """With the locations of the handles that are included, in the order in which they are named."""
        total, ends_at = replace(locations.own, includes=(), namespaces=()), locations.ends_at
        waiting, seen = deque(_included(locations.own)), {name.key}
        while waiting and len(seen) <= MOST_INCLUDES:
            handle, is_namespace = waiting.popleft()
            if fold(handle) in seen:
                continue
            seen.add(fold(handle))
            for resolution in filter(room.admit, await self._resolved([handle], lookup)):
                included = _locations(resolution)
                total = total + replace(included, includes=(), namespaces=())
                waiting += _included(included)
                if is_namespace:
                    waiting += [(service, False) for service in read_namespace(resolution.record).locs]
                ends_at = _earliest(ends_at, [resolution])
        return replace(locations, own=total, ends_at=ends_at)

    async def _resolved(self, named: Sequence[str], lookup: Lookup) -> list[Resolution]:
        found: list[Resolution] = []
        for handle in named[:MOST_INCLUDES]:
            try:
                name = HandleName(handle)
            except InvalidName:
                continue
            resolution = await lookup.resolve(name)
            if resolution.found:
                found.append(resolution)
        return found

    async def contact(self, name: HandleName, lookup: Lookup) -> str | None:
        """The contact that the prefix of a name gives, None where there is none or it cannot be asked for."""
        try:
            # A courtesy, before which the questions of people go.
            return (await self.prefix_record(name.prefix, lookup.in_background())).namespace.contact
        except (CouldNotVerify, InvalidName):
            return None


def _locations(resolution: Resolution) -> Locations:
    return read_own_locations(resolution.record).own


def _included(locations: Locations) -> list[tuple[str, bool]]:
    """The handles to read besides these locations, and whether each stands for a prefix with its service handles."""
    included = [(handle, False) for handle in locations.includes]
    return included + [(_bare(handle), True) for handle in locations.namespaces]


def _overridden(locations: NameLocations) -> str | None:
    """The prefix that a record names in place of its own, if it is one."""
    try:
        return HandleName(_bare((locations.own.setting("overridePrefix") or "").strip())).prefix or None
    except InvalidName:
        return None


def _bare(prefix: str) -> str:
    """A prefix without "0.NA/", so that it is one record with the prefix of a name."""
    return prefix[len(_NA) :] if fold(prefix[: len(_NA)]) == _NA else prefix


def _earliest(ends_at: float | None, resolutions: Iterable[Resolution]) -> float | None:
    ends = [one.entry.fresh_until for one in resolutions]
    return min([*ends, *(() if ends_at is None else (ends_at,))], default=None)


def _parents(prefix: str) -> list[str]:
    """A prefix and those above it; "10" itself says nothing of its names."""
    elements = prefix.split(".")
    counts = range(len(elements), 1, -1)[:_MOST_PARENTS]
    return [".".join(elements[:count]) for count in counts] or [prefix]
