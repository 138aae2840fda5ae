"""`action=showurls`: the locations of a name as XML, in the form of the handle system's proxy."""

from __future__ import annotations

import re
from typing import Final
from xml.sax.saxutils import quoteattr

from app.doi.name import HandleName
from app.doi.uri import component, template_path, url_path
from app.handle.location import Location
from app.handle.record import Record
from app.resolver.target import NameLocations, list_candidates

#: What XML 1.0 cannot hold (section 2.2).
_NO_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ATTRIBUTE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


#: The size of an answer after which locations are left out, in characters.
MAX_CHARACTERS: Final = 524_288


def write_locations(name: HandleName, record: Record, locations: NameLocations) -> bytes:
    """One `location` element a candidate, its address filled in; values that cannot be read become comments.

    A comment says how many locations are left out of a long answer, and where the record's JSON is.
    """
    lines = ["<locations>"]
    found = list_candidates(record, locations)
    encoded = component(name), template_path(name)
    room = MAX_CHARACTERS
    for number, one in enumerate(found):
        line = _element(one, one.href(*encoded))
        room -= len(line)
        if room < 0:
            json = _comment(f"/api/handles/{url_path(name)}")
            lines.append(f"<!-- {len(found) - number} more locations are not shown here; all values: {json} -->")
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
    return "<location " + " ".join(f"{key}={quoteattr(_NO_XML.sub('', value))}" for key, value in attributes) + "/>"


def _comment(text: str) -> str:
    return re.sub("-(?=-)", "- ", _NO_XML.sub("", text[:300])).replace("<", "(").replace(">", ")")
