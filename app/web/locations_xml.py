"""`action=showurls`: the locations of a name as XML, in the form of the handle system's proxy."""

from __future__ import annotations

import re
from typing import Final
from xml.sax.saxutils import quoteattr

from app.doi.name import HandleName
from app.handle.location import Location
from app.handle.record import Record
from app.resolver.target import Places, candidates, href

#: What XML 1.0 cannot hold (section 2.2).
_NO_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ATTRIBUTE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


def write_locations(name: HandleName, record: Record, places: Places) -> bytes:
    """One `location` element a candidate, its address filled in; values that cannot be read become comments."""
    lines = ["<locations>"]
    lines += [_element(one, name) for one in candidates(record, places)]
    lines += [f"<!-- not read: {_comment(reason)} -->" for reason in places.malformed]
    return ("\n".join([*lines, "</locations>"]) + "\n").encode()


def _element(location: Location, name: HandleName) -> str:
    attributes = [
        (key, value) for key, value in location.attributes if key != "href" and _ATTRIBUTE_NAME.fullmatch(key)
    ]
    address = href(location, name)
    if address is not None:
        attributes.append(("href", address))
    return "<location " + " ".join(f"{key}={quoteattr(_NO_XML.sub('', value))}" for key, value in attributes) + "/>"


def _comment(text: str) -> str:
    return re.sub("-(?=-)", "- ", _NO_XML.sub("", text[:300])).replace("<", "(").replace(">", ")")
