"""`action=showurls`: the locations of a name as XML, in the form of the handle system's proxy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import quoteattr

from doi_names.name import HandleName
from doi_names.presentation import component, template_path, url_path
from doi_proxy.resolver.target import NameLocations, list_candidates
from doi_proxy.web.shown_values import web_address
from handle_protocol.location import Location
from handle_protocol.value import Record

#: Characters that are not allowed in XML 1.0 (section 2.2).
_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ATTRIBUTE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
#: Limit of all elements of an answer, in characters. Further locations are left out.
MAX_CHARACTERS: Final = 524_288


def write_locations(name: HandleName, record: Record, locations: NameLocations) -> bytes:
    """Write one `location` element for each candidate, with its URL. Values that cannot be read become comments.

    In a long answer, a comment has the number of locations that are left out, and the path of the record's JSON.
    """
    lines = ["<locations>"]
    candidates = list_candidates(record, locations)
    encoded = component(name), template_path(name)
    room = MAX_CHARACTERS
    for number, location in enumerate(candidates):
        line = _element(location, location.href(*encoded))
        room -= len(line)
        if room < 0:
            json = _comment(f"/api/handles/{url_path(name)}")
            lines.append(f"<!-- {len(candidates) - number} more locations are not shown here; all values: {json} -->")
            break
        lines.append(line)
    lines += [f"<!-- not read: {_comment(reason)} -->" for reason in locations.malformed]
    return ("\n".join([*lines, "</locations>"]) + "\n").encode()


def _element(location: Location, address: str | None) -> str:
    attributes = [
        (key, value) for key, value in location.attributes if key != "href" and _ATTRIBUTE_NAME.fullmatch(key)
    ]
    if address is not None:
        attributes.append(("href", address))
    return "<location " + " ".join(f"{key}={quoteattr(_NOT_XML.sub('', value))}" for key, value in attributes) + "/>"


def _comment(text: str) -> str:
    return re.sub("-(?=-)", "- ", _NOT_XML.sub("", text[:300])).replace("<", "(").replace(">", ")")


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
