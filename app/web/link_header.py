"""`Link` headers from the locations of a record (RFC 8288)."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

from app.handle.location import Location
from app.web.responses import Header

#: Attributes of a location and the link parameters they become.
_PARAMETERS: Final = (
    ("anchor", "anchor"),
    ("rel", "rel"),
    ("media-type", "type"),
    ("ctype", "type"),
    ("target-type", "target-type"),
    ("media", "media"),
    ("hreflang", "hreflang"),
)
#: What a quoted string may hold besides escapes (RFC 9110, section 5.6.4), ASCII only.
_UNQUOTED: Final = re.compile(r'[^\x20-\x7e]|["\\]')


def link_header(location: Location, url: str) -> Header:
    """One `Link` header; `url` is ASCII. A title that is not ASCII is written as RFC 8187 has it."""
    parts, seen = [f"<{url.replace('>', '%3E')}>"], set[str]()
    for attribute, parameter in _PARAMETERS:
        value = location.get(attribute)
        if value and parameter not in seen:
            seen.add(parameter)
            parts.append(f'{parameter}="{_UNQUOTED.sub("", value)}"')
    title = location.get("title")
    if title:
        plain = title.isascii() and title.isprintable()
        language = re.sub(r"[^A-Za-z0-9-]", "", location.get("titlelang") or "")
        parts.append(
            f'title="{_UNQUOTED.sub("", title)}"' if plain else f"title*=UTF-8'{language}'{quote(title, safe='')}"
        )
    return b"link", "; ".join(parts).encode("ascii")
