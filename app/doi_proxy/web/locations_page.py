"""What the page of `action=showurls` shows of a name's locations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from doi_names.name import HandleName
from doi_names.presentation import component, template_path
from doi_proxy.web.shown_values import web_address
from handle_protocol.location import Location

MAX_LOCATION_CHARACTERS: Final = 65_536


#: Locations of one page, and the characters of their attributes.
MAX_LOCATIONS_SHOWN: Final = 50


#: Attributes that have a column of their own.
_NO_CONDITIONS: Final = frozenset({"href", "href_template", "weight"})


@dataclass(frozen=True, slots=True)
class ShownLocation:
    """A location of a page. `href` is None if a browser cannot open `address`, which is None without any."""

    address: str | None
    href: str | None
    weight: str
    conditions: tuple[tuple[str, str], ...]


def show_locations(name: HandleName, locations: Sequence[Location]) -> list[ShownLocation]:
    """The first locations, as many as one page shows."""
    encoded = component(name), template_path(name)
    shown: list[ShownLocation] = []
    room = MAX_LOCATION_CHARACTERS
    for location in locations[:MAX_LOCATIONS_SHOWN]:
        address = location.href(*encoded)
        # Attributes of one location.
        conditions = [pair for pair in location.attributes if pair[0] not in _NO_CONDITIONS][:20]
        room -= len(address or "") + sum(len(key) + len(value) for key, value in conditions)
        if room < 0:
            break
        shown.append(ShownLocation(address, web_address(address), f"{location.weight:g}", tuple(conditions)))
    return shown
