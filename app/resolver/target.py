"""Where a record leads: its URL value, or one of its locations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from app.doi.name import HandleName
from app.doi.uri import component, template_path
from app.handle.location import (
    NO_LOCATIONS,
    REDIRECT_STATUSES,
    Location,
    Locations,
    MalformedLocations,
    merged,
    number,
    read_locations,
)
from app.handle.record import Record
from app.resolver.asked import Action, Asked, Client, Negotiation
from app.resolver.location_choice import choose
from app.resolver.target_url import web_target

USUAL_STATUS: Final = 302


@dataclass(frozen=True, slots=True)
class Target:
    """A redirect: `location` is ASCII and safe in a header; `display` is the URL as the record has it."""

    location: str
    display: str
    status: int = USUAL_STATUS


@dataclass(frozen=True, slots=True)
class Places:
    """Every location that holds for a name: its own with those it includes, and those of its prefix."""

    own: Locations = NO_LOCATIONS
    of_prefix: Locations = NO_LOCATIONS
    #: Whether the record has any 10320/loc value, also one that could not be read.
    has_own: bool = False
    #: What was wrong with values that could not be read.
    malformed: tuple[str, ...] = ()
    #: When the first of the records that the prefix's locations stand on ends, in seconds since the epoch.
    ends_at: float | None = field(default=None, compare=False)

    def setting(self, name: str) -> str | None:
        """A setting of the root elements: the record's own before its prefix's."""
        own = self.own.setting(name)
        return self.of_prefix.setting(name) if own is None else own

    @property
    def chooseby(self) -> str | None:
        """The methods of choice, if any are named; `choose_by` wins over `chooseby`."""
        return self.setting("choose_by") or self.setting("chooseby")

    @property
    def any(self) -> bool:
        """Whether there is anything to choose from besides URL values."""
        return self.has_own or bool(self.own.items or self.of_prefix.items)


NO_PLACES: Final = Places()


def read_own_places(record: Record) -> Places:
    """The locations in a record's own 10320/loc values, in their order; malformed ones count as not there."""
    values = record.of_type("10320/loc.")
    if not values:
        return NO_PLACES
    read, malformed = [], []
    for value in values:
        try:
            read.append(read_locations(value.text or ""))
        except MalformedLocations as error:
            malformed.append(f"value {value.index}: {error}")
    return Places(own=merged(read), has_own=bool(read), malformed=tuple(malformed))


def needs_prefix(places: Places, asked: Asked, negotiation: Negotiation) -> bool:
    """Whether the answer can depend on the locations of the name's prefix."""
    if places.own.is_set("no_nslocs"):
        return False
    return negotiation.conneg or bool(asked.locatts) or asked.action is Action.SHOW_URLS


def candidates(record: Record, places: Places) -> list[Location]:
    """The locations to choose from, in order: the record's own, its URL values, those of its prefix."""
    legacy = [] if places.own.is_set("no_legacy") else _legacy(record, places)
    return [*places.own.items, *legacy, *places.of_prefix.items]


def _legacy(record: Record, places: Places) -> list[Location]:
    """URL values as locations: of weight 1 while the record has no 10320/loc value, of weight 0 beside one."""
    plain = [v for v in record.of_type("URL") if v.text]
    subtypes = [v for v in record.of_type("URL.") if v.text and v not in plain]
    weight = number(places.setting("urlWeight"), 0.0 if places.has_own else 1.0)
    weights = [(value, weight) for value in plain]
    if plain:
        weight = number(places.setting("urlSubtypeWeight"), 0.0)
    weights += [(value, weight) for value in subtypes]
    return [
        Location((("mode", "legacy"), ("weight", str(weight)), ("href", (value.text or "").strip())))
        for value, weight in weights
    ]


def choose_target(name: HandleName, record: Record, places: Places, asked: Asked, client: Client) -> Target | None:
    """The target of a record, or None where it has none that a browser may be sent to.

    Without locations: the first value of type exactly URL in record order (not index order), else the first of a
    subtype "URL.x". With locations: one of them by the record's methods. Raises InvalidParameter for a `urlappend`
    that would leave the target's host.
    """
    if not places.any:
        values = record.of_type("URL") or record.of_type("URL.")
        return _to(values[0].text if values else None, USUAL_STATUS, asked)
    wanted = (*asked.locatts, *client.negotiation.locatts)
    chosen = choose(candidates(record, places), places.chooseby, client, wanted)
    if chosen is None:
        return None
    return _to(href(chosen, name), _status(chosen, places), asked)


def href(location: Location, name: HandleName) -> str | None:
    """The address of a location for a name, its template filled in."""
    return location.href(component(name), template_path(name))


def _to(url: str | None, status: int, asked: Asked) -> Target | None:
    return None if url is None else _target(url, status, asked.urlappend)


@lru_cache(maxsize=4096)
def _target(url: str, status: int, append: str | None) -> Target | None:
    location = web_target(url, append)
    return None if location is None else Target(location, url.strip() + (append or ""), status)


def _status(chosen: Location, places: Places) -> int:
    given = chosen.get("http_sc") or places.setting("http_sc") or ""
    status = int(given) if given.isascii() and given.isdigit() and len(given) == 3 else USUAL_STATUS
    return status if status in REDIRECT_STATUSES else USUAL_STATUS


def links(record: Record, places: Places, name: HandleName) -> list[tuple[Location, str]]:
    """The locations that become `Link` headers: those with a `rel` and a safe address, each with that address."""
    found: list[tuple[Location, str]] = []
    for location in (*_links_values(record), *places.own.items, *places.of_prefix.items):
        url = web_target(href(location, name) or "") if location.get("rel") else None
        if url is not None:
            found.append((location, url))
    return found


def _links_values(record: Record) -> Sequence[Location]:
    items: list[Location] = []
    for value in record.of_type("10320/links."):
        try:
            items += read_locations(value.text or "").items
        except MalformedLocations:
            continue
    return items
