"""Where a record leads: its URL value, or one of its locations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import msgspec

from app.doi.name import HandleName
from app.doi.uri import component, template_path
from app.handle.location import (
    MAX_LOCATIONS,
    NO_LOCATIONS,
    REDIRECT_STATUSES,
    Location,
    Locations,
    MalformedLocations,
    is_true,
    merge_locations,
    parse_number,
    read_locations,
)
from app.handle.record import Record
from app.handle.value import HandleValue
from app.resolver.location_choice import choose, matches
from app.resolver.options import DEFAULT_OPTIONS, NO_FACTS, Action, Client, ClientFact, Negotiation, ResolveOptions
from app.resolver.target_url import takes_appendix, web_target

USUAL_STATUS: Final = 302
#: `Link` headers of one answer, and the bytes of their addresses: front proxies take a few kilobytes of headers.
MAX_LINKS: Final = 40
MAX_LINK_BYTES: Final = 4096
#: XML that is read for one name, in bytes: its own values, and the records of other handles that it stands on.
MAX_NAME_XML_BYTES: Final = 262_144
#: The part of it that 10320/links values may take.
MAX_LINKS_XML_BYTES: Final = 65_536
#: XML values of one type in one record.
MAX_XML_VALUES: Final = 100
#: Types of values that make the answer depend on more than the URL values.
_DECIDING_TYPES: Final = ("HS_ALIAS.", "10320/loc.", "10320/links.", "10320/headers.")
#: Targets of longer URLs are made anew each time, so that those kept stay below 20 MB.
_MOST_KEPT_CHARACTERS: Final = 2048


class Target(msgspec.Struct, frozen=True, gc=False):
    """A redirect: `location` is ASCII and safe in a header; `display` is the URL as the record has it."""

    location: str
    display: str
    status: int = USUAL_STATUS


@dataclass(frozen=True, slots=True)
class TargetChoice:
    """A target, None where there is none that a browser may be sent to, and the facts about the client it depends on.

    The facts count without a target too: another client may have one.
    """

    target: Target | None
    facts: ClientFact = NO_FACTS


@dataclass(frozen=True, slots=True)
class NameLocations:
    """Every location that holds for a name: its own with those it includes, and those of its prefix."""

    own: Locations = NO_LOCATIONS
    of_prefix: Locations = NO_LOCATIONS
    #: Whether the record has a 10320/loc value that could be read.
    has_own: bool = False
    #: What was wrong with values that could not be read.
    malformed: tuple[str, ...] = ()
    #: Entries of the 10320/links values of the prefix's service handles.
    links_of_prefix: tuple[Location, ...] = ()
    #: When the first of the other records that these locations stand on ends, in seconds since the epoch.
    ends_at: float | None = field(default=None, compare=False)

    def setting(self, name: str) -> str | None:
        """A setting of the root elements: the record's own before its prefix's."""
        own = self.own.setting(name)
        return self.of_prefix.setting(name) if own is None else own

    def is_set(self, name: str) -> bool:
        """Whether a setting says true."""
        return is_true(self.setting(name))

    @property
    def any(self) -> bool:
        """Whether there is anything to choose from besides URL values."""
        return self.has_own or bool(self.own.items or self.of_prefix.items)


NO_NAME_LOCATIONS: Final = NameLocations()


def read_own_locations(record: Record) -> NameLocations:
    """The locations in a record's own 10320/loc values, in their order, read once; malformed ones count as not there.

    Values beyond MAX_XML_VALUES and the bytes for one name count as malformed.
    """
    return record.derive(_read_own_locations)


def _read_own_locations(record: Record) -> NameLocations:
    values = record.of_type("10320/loc.")
    if not values:
        return NO_NAME_LOCATIONS
    read, malformed = _read_xml(values, MAX_NAME_XML_BYTES - MAX_LINKS_XML_BYTES)
    return NameLocations(own=merge_locations(read), has_own=bool(read), malformed=tuple(malformed))


def _read_xml(values: Sequence[HandleValue], room: int) -> tuple[list[Locations], list[str]]:
    """The locations of as many values as `room` bytes hold, and what was wrong with the others."""
    read, malformed = [], []
    # An empty location takes 4 us to read, and one value can hold 4,000.
    most = MAX_LOCATIONS
    for value in values[:MAX_XML_VALUES]:
        xml = value.text or ""
        if len(xml) > room:
            malformed.append(f"value {value.index}: more XML than is read for one name")
            continue
        room -= len(xml)
        try:
            read.append(read_locations(xml, most))
            most -= len(read[-1].items)
        except MalformedLocations as error:
            malformed.append(f"value {value.index}: {error}")
    if len(values) > MAX_XML_VALUES:
        malformed.append(f"{len(values) - MAX_XML_VALUES} values after the first {MAX_XML_VALUES}")
    return read, malformed


def own_xml_bytes(record: Record) -> int:
    """How much XML is read of a record, in characters; at most MAX_NAME_XML_BYTES."""
    values = (*record.of_type("10320/loc."), *record.of_type("10320/links."))
    return min(sum(len(value.text or "") for value in values), MAX_NAME_XML_BYTES)


def needs_prefix(record: Record, locations: NameLocations, options: ResolveOptions, negotiation: Negotiation) -> bool:
    """Whether the answer can depend on the locations of the name's prefix."""
    if locations.own.is_set("no_nslocs"):
        return False
    if options.action is Action.SHOW_URLS:
        return True
    if not locations.has_own and not record.of_type("URL."):
        return False  # without a target of its own, the record itself is the answer
    # A record that names handles to use where its prefix has none means them for every request.
    return negotiation.conneg or bool(options.locatts) or locations.own.setting("nshdl") is not None


def is_settled(record: Record, locations: NameLocations, options: ResolveOptions, negotiation: Negotiation) -> bool:
    """Whether the locations at hand answer the question, where others that hold for the name cannot be asked for."""
    found = candidates(record, locations)
    if not found or options.action is Action.SHOW_URLS:
        return False
    if not all(any(matches(one, *locatt) for one in found) for locatt in options.locatts):
        return False
    negotiated = [locatt for locatt in negotiation.locatts if locatt[0] != "language"]
    return not negotiation.conneg or any(matches(one, *locatt) for locatt in negotiated for one in found)


def candidates(record: Record, locations: NameLocations) -> list[Location]:
    """The locations to choose from, in order: the record's own, its URL values, those of its prefix."""
    legacy = [] if locations.is_set("no_legacy") else _legacy(record, locations)
    return [*locations.own.items, *legacy, *locations.of_prefix.items]


def _legacy(record: Record, locations: NameLocations) -> list[Location]:
    """URL values as locations: of weight 1 while the record has no 10320/loc value, of weight 0 beside one."""
    values = [v for v in record.of_type("URL.") if v.text][:MAX_LOCATIONS]
    urls = [v for v in values if v.has_type("URL")]
    subtypes = [v for v in values if not v.has_type("URL")]
    weight = parse_number(locations.setting("urlWeight"), 0.0 if locations.has_own else 1.0)
    weights = [(value, weight) for value in urls]
    if urls:
        weight = parse_number(locations.setting("urlSubtypeWeight"), 0.0)
    weights += [(value, weight) for value in subtypes]
    return [
        Location((("mode", "legacy"), ("weight", str(weight)), ("href", (value.text or "").strip())))
        for value, weight in weights
    ]


def unconditional_target(record: Record) -> Target | None:
    """The target of a record that has one for everybody: no alias, and neither locations, links nor headers of its own.

    None for every other record, and where nobody may be sent to the target.
    """
    if any(record.of_type(wanted) for wanted in _DECIDING_TYPES):
        return None
    return _of_urls(record, DEFAULT_OPTIONS)


def _of_urls(record: Record, options: ResolveOptions) -> Target | None:
    """The first value of type exactly URL in record order (not index order), else the first of a subtype "URL.x"."""
    values = record.of_type("URL") or record.of_type("URL.")
    return _to(values[0].text if values else None, USUAL_STATUS, options)


def choose_target(
    name: HandleName, record: Record, locations: NameLocations, options: ResolveOptions, client: Client
) -> TargetChoice:
    """The target of a record for a client.

    Without locations: of its URL values. With locations: one of them by the record's methods. Raises InvalidParameter
    for a `urlappend` that would leave the target's host.
    """
    if not locations.any:
        return TargetChoice(_of_urls(record, options))
    choice = choose(candidates(record, locations), locations.setting("chooseby"), client, options.locatts)
    # A country in the query is part of the URL.
    facts = choice.facts & ~ClientFact.COUNTRY if options.country else choice.facts
    chosen = choice.location
    if chosen is None:
        return TargetChoice(None, facts)
    return TargetChoice(_to(href(chosen, name), _status(chosen, locations), options), facts)


def href(location: Location, name: HandleName) -> str | None:
    """The address of a location for a name, its template filled in."""
    return location.href(component(name), template_path(name))


def _to(url: str | None, status: int, options: ResolveOptions) -> Target | None:
    if url is None:
        return None
    append = options.urlappend if takes_appendix(url) else None
    if append or len(url) > _MOST_KEPT_CHARACTERS:
        return _made(url, status, append)
    return _kept(url, status)


@lru_cache(maxsize=4096)
def _kept(url: str, status: int) -> Target | None:
    return _made(url, status, None)


def _made(url: str, status: int, append: str | None) -> Target | None:
    location = web_target(url, append)
    return None if location is None else Target(location, url.strip() + (append or ""), status)


def _status(chosen: Location, locations: NameLocations) -> int:
    given = chosen.get("http_sc") or locations.setting("http_sc") or ""
    status = int(given) if given.isascii() and given.isdigit() and len(given) == 3 else USUAL_STATUS
    return status if status in REDIRECT_STATUSES else USUAL_STATUS


def links(record: Record, locations: NameLocations, name: HandleName) -> list[tuple[Location, str]]:
    """The locations that become `Link` headers: those with a `rel` and a safe address, each with that address."""
    found: list[tuple[Location, str]] = []
    left = MAX_LINK_BYTES
    encoded = component(name), template_path(name)
    for location in (
        *links_values(record),
        *locations.own.items,
        *locations.links_of_prefix,
        *locations.of_prefix.items,
    ):
        given = location.href(*encoded) if location.get("rel") else None
        # Encoding makes it longer.
        url = web_target(given) if given and len(given) <= left else None
        if url is None or len(url) > left:
            continue
        left -= len(url)
        found.append((location, url))
        if len(found) == MAX_LINKS:
            break
    return found


def links_values(record: Record) -> Sequence[Location]:
    """The entries of a record's 10320/links values, read once; malformed ones count as not there."""
    return record.derive(_read_links)


def _read_links(record: Record) -> Sequence[Location]:
    read, _ = _read_xml(record.of_type("10320/links."), MAX_LINKS_XML_BYTES)
    return merge_locations(read).items
