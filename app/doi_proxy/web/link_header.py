"""`Link` headers from the locations of a record (RFC 8288)."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

from doi_names.presentation import to_url
from doi_proxy.resolver.resolution import Resolution, Standing, find_standing
from doi_proxy.web.request_path import Header
from handle_protocol.location import Location

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


#: Characters that are removed from a quoted string, and those that need a backslash (RFC 9110, section 5.6.4).
_DROPPED: Final = re.compile(r"[^\x20-\x7e]")


_ESCAPED: Final = re.compile(r'["\\]')


#: Longer parameters are cut, because front proxies accept only a few kilobytes of headers.
MAX_CHARACTERS: Final = 500


_MAX_LANGUAGE: Final = 35


def link_header(location: Location, url: str) -> Header:
    """One `Link` header; `url` is ASCII. A title that is not ASCII is encoded by RFC 8187."""
    parts, seen = [f"<{url.replace('>', '%3E')}>"], set[str]()
    for attribute, parameter in _PARAMETERS:
        value = location.get(attribute)
        if value and parameter not in seen:
            seen.add(parameter)
            parts.append(f"{parameter}={_quote(value)}")
    title = (location.get("title") or "")[:MAX_CHARACTERS]
    if title:
        is_ascii = title.isascii() and title.isprintable()
        language = re.sub(r"[^A-Za-z0-9-]", "", location.get("titlelang") or "")[:_MAX_LANGUAGE]
        coded = quote(title.encode("utf-8", "replace"), safe="")
        parts.append(f"title={_quote(title)}" if is_ascii else f"title*=UTF-8'{language}'{coded}")
    return b"link", "; ".join(parts).encode("ascii")


def cite_as(resolution: Resolution) -> tuple[Header, ...]:
    """The address by which a registered DOI name is cited (RFC 8574). No header for other names and local records."""
    if not resolution.name.is_doi or find_standing(resolution) is not Standing.REGISTERED:
        return ()
    return ((b"link", f'<{to_url(resolution.name)}>; rel="cite-as"'.encode()),)


def _quote(text: str) -> str:
    return '"' + _ESCAPED.sub(r"\\\g<0>", _DROPPED.sub("", text[:MAX_CHARACTERS])) + '"'
