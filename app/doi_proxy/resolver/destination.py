"""Where a name leads: its aliases are followed, its values selected, its locations found, and one of them chosen.

The decisions are the pure functions `decide_without_locations` and `decide`. `Destinations` fetches what they need.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from functools import lru_cache
from typing import Final, Literal
from urllib.parse import urlsplit

import msgspec

from doi_names.errors import InvalidName, NotADOI
from doi_names.name import HandleName
from doi_names.presentation import read_path
from doi_proxy.errors import FAILURES
from doi_proxy.resolver.prefix_chain import PrefixChain
from doi_proxy.resolver.resolution import (
    CACHED,
    DEFAULT_OPTIONS,
    MAX_ALIASES,
    NO_FACTS,
    UNKNOWN_CLIENT,
    Action,
    Client,
    ClientFact,
    Conditions,
    Negotiation,
    Origin,
    Resolution,
    ResolveOptions,
    next_alias_target,
)
from doi_proxy.resolver.resolver import MAX_BYTES_NOW, Resolver
from doi_proxy.resolver.target import (
    NO_NAME_LOCATIONS,
    NameLocations,
    Target,
    choose_target,
    links,
    needs_prefix,
    read_own_locations,
    read_unconditional_target,
)
from handle_protocol.location import Location
from handle_protocol.value import Record

_NO_NEGOTIATION: Final = Negotiation()
#: The addresses of doi.org's proxy. An institution that has one of them has them all.
_NAMES_OF_DOI_ORG: Final = ("doi.org", "dx.doi.org", "www.doi.org")
NO_RECORD: Final = Record(())


class Kind(Enum):
    """What a name leads to."""

    TARGET = "target"  # a URL
    ALIAS = "alias"  # another name, which the answer shows
    RECORD = "record"  # the record, as data
    LOCATIONS = "locations"  # the list of its locations
    VALUES = "values"  # its values, for a person to read
    NO_VALUES = "no_values"  # none of its values has one of the requested types or indexes
    NOT_FOUND = "not_found"


class DestinationQuery(msgspec.Struct, frozen=True, gc=False):
    """A name whose destination is to be found, and how."""

    name: HandleName
    options: ResolveOptions = DEFAULT_OPTIONS
    negotiation: Negotiation = _NO_NEGOTIATION
    #: Describes the client. Called only if there are locations to choose from.
    describe_client: Callable[[], Client] = lambda: UNKNOWN_CLIENT
    #: Whether an alias is the answer. Otherwise it is followed.
    shows_alias: bool = False


class Destination(msgspec.Struct, frozen=True, gc=False):
    """Where a name leads, and what decided it."""

    kind: Kind
    resolution: Resolution
    #: The selected values. Empty if only the target matters.
    record: Record = NO_RECORD
    locations: NameLocations = NO_NAME_LOCATIONS
    target: Target | None = None
    #: The facts about the client that decided.
    facts: ClientFact = NO_FACTS
    #: The locations for `Link` headers, with their URLs.
    links: tuple[tuple[Location, str], ...] = ()
    #: Whether it depends only on the records of the name and its aliases, which took no query, and not on the client.
    is_repeatable: bool = False
    #: Whether the target was dropped because it is the name's own URL here: a redirect to it would never end.
    leads_here: bool = False


class Destinations:
    """Finds where names lead."""

    def __init__(
        self, resolver: Resolver, prefixes: PrefixChain, *, resolves: Literal["doi", "any"], own_url: str | None = None
    ) -> None:
        """With `resolves` "any", every handle is resolved. Otherwise only DOI names, short DOIs and prefixes are.

        `own_url` is the URL of this resolver, None if it is not known.
        """
        self.resolver = resolver
        #: The chain in which locations are found.
        self.prefixes = prefixes
        self.resolves = resolves
        self._own_address = None if own_url is None else _match_address(own_url)

    def read_target(self, found: Resolution) -> Target | None:
        """The target of every client by this record alone.

        None if other records or the client decide, or if the record is too large to be parsed at once.
        """
        answer = found.entry.answer
        if len(answer.values) > MAX_BYTES_NOW or not self.resolves_here(found.name):
            return None
        location = answer.target
        target = _cached_unconditional_target(answer.values) if location is None else Target(location, location)
        return None if target is None or self._find_own_name(target) is not None else target

    def _decide_alone(self, resolution: Resolution, record: Record, query: DestinationQuery) -> Destination | None:
        """Decide from the records of the name alone. None if other handles count, or a location is malformed."""
        early = decide_without_locations(resolution, record, query, self.resolves_here)
        if early is not None:
            return early
        locations = read_own_locations(record)
        if locations.malformed or locations.of_name.includes or locations.of_name.namespaces:
            return None
        if _has_prefix(resolution) and needs_prefix(record, locations, query.options, query.negotiation):
            return None
        return decide(resolution, record, locations, query)

    async def _end_loop(self, found: Destination, conditions: Conditions) -> Destination:
        """The destination; its values, if its target is this resolver's URL of a name that leads back to it."""
        own, step = {resolution.name.key for resolution in found.resolution.chain}, found
        for _ in range(MAX_ALIASES):
            name = self._find_own_name(step.target)
            if name is None:
                break
            if name.key in own:
                return msgspec.structs.replace(found, kind=Kind.VALUES, target=None, links=(), leads_here=True)
            try:
                first = await self.resolver.resolve(name, conditions.for_others())
                step = await self._complete(first, DestinationQuery(name), conditions)
            except FAILURES:
                break  # the client will meet that failure
        return found

    def _find_own_name(self, target: Target | None) -> HandleName | None:
        """The name whose URL at this resolver a target is, with any query. None for any other target."""
        if target is None or self._own_address is None or not (own := self._own_address.match(target.location)):
            return None
        try:
            return read_path(target.location[own.end() - 1 :].partition("#")[0].partition("?")[0].encode())
        except InvalidName:
            return None

    async def find(self, query: DestinationQuery, conditions: Conditions) -> Destination:
        """Find where a name leads.

        Raises NotADOI, AliasChainTooLong, PrefixInactive, CouldNotVerify and InvalidParameter.
        """
        if self.resolves_here(query.name):
            return await self.complete(await self.resolver.resolve(query.name, conditions), query, conditions)
        short = query.name.expand_short_doi()
        if short is not None:
            first = await self.resolver.resolve(short, conditions)
            if first.is_registered:
                return await self.complete(first, query, conditions)
        raise NotADOI(
            f"“{query.name.text}” is not a DOI name: a DOI name begins with “10.” and has a slash after its prefix."
        )

    async def complete(self, first: Resolution, query: DestinationQuery, conditions: Conditions) -> Destination:
        """Find where a name leads, given its own record. Raises the errors of `find`, except NotADOI."""
        found = await self._complete(first, query, conditions)
        return found if self._find_own_name(found.target) is None else await self._end_loop(found, conditions)

    async def _complete(self, first: Resolution, query: DestinationQuery, conditions: Conditions) -> Destination:
        resolution = first
        if query.options.action is Action.API:
            return Destination(Kind.RECORD, resolution)
        record = select_values(resolution, query.options)
        while (alias := next_alias_target(resolution, record, query.options)) is not None:
            resolution = (await self.resolver.resolve(alias, conditions)).after(resolution)
            record = select_values(resolution, query.options)
        destination = self._decide_alone(resolution, record, query)
        if destination is not None:
            return destination
        locations = await self.prefixes.find_locations(
            resolution.name,
            record,
            query.options,
            query.negotiation,
            conditions.for_others(),
            has_prefix=_has_prefix(resolution),
        )
        return decide(resolution, record, locations, query)

    def looks_up(self, name: HandleName) -> bool:
        """Whether an input of a list is looked up: DOI names and short DOIs with their "10/" are, prefixes are not."""
        return name.is_doi or name.is_short_doi or (self.resolves == "any" and bool(name.suffix))

    def resolves_here(self, name: HandleName) -> bool:
        """Whether a name is resolved: every handle, or DOI names, short DOIs and prefixes."""
        return self.resolves == "any" or name.is_doi or name.is_short_doi or name.is_prefix


def _match_address(own_url: str) -> re.Pattern[str]:
    """Matches the addresses of a resolver up to the slash before a name: with either scheme, because front proxies
    redirect from one to the other, with the usual port or without it, and with all names of doi.org.
    """
    parts = urlsplit(own_url)
    host = parts.hostname or ""
    hosts = _NAMES_OF_DOI_ORG if host in _NAMES_OF_DOI_ORG else (host,)
    port = r"(?::(?:80|443)?)?" if parts.port in (None, 80, 443) else f":{parts.port}"
    names = "|".join(re.escape(f"[{name}]" if ":" in name else name) for name in hosts)
    return re.compile(rf"(?i:https?://(?:[^/?#@]*@)?(?:{names})\.?){port}{re.escape(parts.path.rstrip('/'))}/")


def _has_prefix(resolution: Resolution) -> bool:
    """Whether locations of its prefix hold for a name. A local record is whole and needs no upstream."""
    return resolution.origin is not Origin.LOCAL


def select_values(resolution: Resolution, options: ResolveOptions) -> Record:
    """The values that the options select."""
    return resolution.record.select(options.types, options.indexes)


def decide_without_locations(
    resolution: Resolution, record: Record, query: DestinationQuery, resolves_here: Callable[[HandleName], bool]
) -> Destination | None:
    """Decide where a name leads, given its selected values. None if its locations are needed."""
    is_repeatable = _is_repeatable(resolution)
    if not resolution.is_registered:
        return Destination(Kind.NOT_FOUND, resolution, is_repeatable=is_repeatable)
    shows_alias = query.shows_alias and query.options.action is Action.REDIRECT
    if shows_alias and resolution.aliases and resolves_here(resolution.name):
        return Destination(Kind.ALIAS, resolution, is_repeatable=is_repeatable)
    return None if record.values else Destination(Kind.NO_VALUES, resolution, is_repeatable=is_repeatable)


def decide(resolution: Resolution, record: Record, locations: NameLocations, query: DestinationQuery) -> Destination:
    """Decide where a name leads, given its selected values and its locations. Raises InvalidParameter."""
    if query.options.action is Action.SHOW_URLS:
        return Destination(Kind.LOCATIONS, resolution, record, locations)
    is_repeatable = _is_repeatable(resolution)
    if query.options.action is not Action.REDIRECT:
        return Destination(Kind.VALUES, resolution, record, locations, is_repeatable=is_repeatable)
    client = query.describe_client() if locations.any else UNKNOWN_CLIENT
    name = resolution.name
    choice = choose_target(name, record, locations, query.options, client)
    is_single = not (resolution.aliases or locations.any or query.negotiation.conneg)
    if choice.target is None:
        return Destination(
            Kind.VALUES, resolution, record, locations, facts=choice.facts, is_repeatable=is_single and is_repeatable
        )
    return Destination(
        Kind.TARGET,
        resolution,
        record,
        locations,
        choice.target,
        choice.facts,
        tuple(links(record, locations, name)),
        is_single and is_repeatable,
    )


def _is_repeatable(resolution: Resolution) -> bool:
    return all(resolution.origin in CACHED for resolution in resolution.chain)


@lru_cache(maxsize=1024)
def _cached_unconditional_target(values: bytes) -> Target | None:
    """The target that a record has for every client, cached by the JSON of its values. Takes at most 32 MiB."""
    return read_unconditional_target(values)
