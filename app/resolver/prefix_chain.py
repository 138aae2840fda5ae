"""The driver for what a prefix says of its names: prefix record, service handle, locations (DOI Handbook, chapter 3).

0.NA/10.1000 names a service handle such as 10.SERV/CROSSREF, whose 10320/loc holds for every name under the prefix.
All records come through the resolver, so that they are cached and asked for once like any other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from app.doi.name import HandleName
from app.errors import CouldNotVerify, InvalidName, PrefixInactive
from app.handle.location import Locations, merged
from app.handle.namespace import Namespace, read_namespace
from app.handle.record import Record
from app.resolver.asked import Asked, Negotiation
from app.resolver.resolution import Resolution
from app.resolver.resolver import Resolver
from app.resolver.target import Places, needs_prefix, read_own_places

#: Handles that are included by one name's locations, directly or not.
MOST_INCLUDES: Final = 20
#: Prefixes above a sub-divided prefix that are asked: 10.1000.10.1 -> 10.1000.10 -> 10.1000.
_MOST_PARENTS: Final = 5


@dataclass(frozen=True, slots=True)
class PrefixRecord:
    """A prefix and what its record says; without a record where the prefix is not registered."""

    resolution: Resolution
    namespace: Namespace

    @property
    def found(self) -> bool:
        """Whether the prefix is registered."""
        return self.resolution.found


class PrefixChain:
    """Finds the locations that hold for a name."""

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver

    async def prefix_record(self, prefix: str) -> PrefixRecord:
        """The record of a prefix such as "10.1000". Raises CouldNotVerify."""
        name = HandleName.asked(prefix)
        resolution = self._resolver.peek(name) or await self._resolver.resolve(name)
        return PrefixRecord(resolution, read_namespace(resolution.record))

    async def places(self, name: HandleName, record: Record, asked: Asked, negotiation: Negotiation) -> Places:
        """The locations of a name: its own, those it includes and, where the answer depends on them, its prefix's.

        Raises CouldNotVerify where the prefix's alone could tell and cannot be asked for: to answer without them would
        send a program that wants metadata to a page for people.
        """
        places = read_own_places(record)
        if places.own.includes:
            places = replace(places, own=await self._with_includes(places.own))
        if not needs_prefix(places, asked, negotiation):
            return places
        try:
            return await self._with_prefix(places, name)
        except CouldNotVerify:
            if places.any:
                return places
            raise

    async def services(self, prefix: str) -> list[Resolution]:
        """The records of the service handles of a prefix and of the prefixes above it. Raises CouldNotVerify."""
        found: list[Resolution] = []
        for parent in _parents(prefix):
            namespace = (await self.prefix_record(parent)).namespace
            found += await self._resolved(namespace.locs or namespace.services)
            if namespace.no_nslocs or namespace.locs:
                break
        return found

    async def _with_prefix(self, places: Places, name: HandleName) -> Places:
        prefix = places.own.setting("overridePrefix") or name.prefix
        resolutions: list[Resolution] = []
        for parent in _parents(prefix):
            record = await self.prefix_record(parent)
            if record.namespace.is_inactive:
                raise PrefixInactive(status_message=record.namespace.status_message, contact=record.namespace.contact)
            resolutions.append(record.resolution)
            resolutions += await self._resolved(record.namespace.locs)
            if record.namespace.no_nslocs:
                break
        if not any(_locations(one).items for one in resolutions):
            resolutions += await self._resolved((places.own.setting("nshdl") or "").split())
        of_prefix = merged(_locations(one) for one in resolutions)
        ends_at = min((one.entry.fresh_until for one in resolutions), default=None)
        return replace(places, of_prefix=of_prefix, ends_at=ends_at)

    async def _with_includes(self, own: Locations) -> Locations:
        total, waiting, seen = replace(own, includes=()), list(own.includes), set[str]()
        while waiting and len(seen) < MOST_INCLUDES:
            handle = waiting.pop(0)
            if handle.upper() in seen:
                continue
            seen.add(handle.upper())
            for resolution in await self._resolved([handle]):
                included = _locations(resolution)
                total = total + replace(included, includes=())
                waiting += included.includes
        return total

    async def _resolved(self, handles: Iterable[str]) -> list[Resolution]:
        found: list[Resolution] = []
        for handle in list(handles)[:MOST_INCLUDES]:
            try:
                name = HandleName.asked(handle)
            except InvalidName:
                continue
            resolution = self._resolver.peek(name) or await self._resolver.resolve(name)
            if resolution.found:
                found.append(resolution)
        return found

    async def contact(self, name: HandleName) -> str | None:
        """The contact that the prefix of a name gives, None where there is none or it cannot be asked for."""
        try:
            return (await self.prefix_record(name.prefix)).namespace.contact
        except (CouldNotVerify, InvalidName):
            return None


def _locations(resolution: Resolution) -> Locations:
    return read_own_places(resolution.record).own


def _parents(prefix: str) -> list[str]:
    """A prefix and those above it; "10" itself says nothing of its names."""
    elements = prefix.split(".")
    return [".".join(elements[:count]) for count in range(len(elements), 1, -1)][:_MOST_PARENTS] or [prefix]
