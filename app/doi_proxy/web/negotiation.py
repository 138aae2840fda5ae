"""What Accept and Accept-Language select in a record with several locations.

The classification is that of the handle system's proxy, which content negotiation by DOI relies on: a request is
negotiated only if nothing that a browser shows is among what it likes best.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from enum import Flag, auto
from functools import lru_cache
from typing import Final, Literal

from doi_proxy.resolver.resolution import Locatt, Negotiation
from doi_proxy.web.languages import Catalogue, choose_language
from doi_proxy.web.shown_values import visible

_TIME: Final = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})T([0-9]{2}:[0-9]{2}):[0-9]{2}(?:\.[0-9]+)?Z")
_SECONDS: Final = re.compile(r"[1-9][0-9]{0,10}")


def write_date(texts: Catalogue, iso: str) -> str:
    """A date of ISO 8601 in words, such as "1 March 2026"."""
    day = date.fromisoformat(iso)
    month = texts.texts["date.months"].split(",")[day.month - 1].strip()
    return str(texts("date.first" if day.day == 1 else "date.day", day=day.day, month=month, year=day.year))


def write_moment(texts: Catalogue, at: float | None) -> str:
    """A time in seconds since the epoch, such as "1 March 2026, 17:05 UTC"; "" if it is not known, or 0."""
    if at is None or at <= 0:
        return ""
    iso = datetime.fromtimestamp(at, UTC).isoformat()
    return str(texts("date.moment", day=write_date(texts, iso[:10]), time=iso[11:16]))


def write_timestamp(texts: Catalogue, timestamp: str | None) -> str | None:
    """The timestamp of a value, in ISO 8601 or seconds since the epoch. Other text stays."""
    if timestamp is None or timestamp == "0":
        return None
    if _SECONDS.fullmatch(timestamp):
        return write_moment(texts, int(timestamp))
    at = _TIME.fullmatch(timestamp)
    try:
        return visible(timestamp) if at is None else str(texts("date.moment", day=write_date(texts, at[1]), time=at[2]))
    except ValueError:
        return visible(timestamp)


#: gzip (RFC 1952) and Zstandard (RFC 8878), by their names in Content-Encoding.
Coding = Literal["gzip", "zstd"]
_MAX_ENTRIES: Final = 30
#: Types that a browser shows; besides these any wildcard, and any picture, sound or film.
_SHOWN: Final = frozenset(
    {
        "text/html",
        "text/xhtml",
        "application/xhtml+xml",
        "application/pdf",
        "application/vnd.wap.xhtml+xml",
        "text/vnd.wap.wml",
    }
)
_SHOWN_KINDS: Final = ("image/", "audio/", "video/")
_HTML: Final = frozenset({"text/html", "text/*", "*/*"})
_HTML_PAGES: Final = frozenset({"text/html", "application/xhtml+xml"})
_BROWSERS: Final = ("mozilla/", "opera/")
_WANTS_HTML: Final[tuple[Locatt, ...]] = (("ctype", "text/html"), ("media-type", "text/html"))


def is_browser(user_agent: str | None) -> bool:
    """Whether a User-Agent calls itself a browser."""
    return (user_agent or "").lower().startswith(_BROWSERS)


def negotiate(accept: str | None, accept_language: str | None, browser: bool) -> Negotiation:
    """The negotiation that the headers request. Without Accept, with an empty one or `*/*` alone, none."""
    # Cut before the result is cached: the keys of the cache stay small.
    return _negotiate(_cut(accept), _cut(accept_language), browser)


def wants_page(accept: str | None) -> bool:
    """Whether an Accept header names `text/html` and likes nothing better, as a browser's does.

    A program that sends `*/*`, or no Accept, gets data.
    """
    if accept is None or "text/html" not in accept:
        return False
    entries = _entries(_cut(accept) or "")
    html = max((q for value, q in entries if value == "text/html"), default=0.0)
    return html > 0 and html >= max(q for _, q in entries)


def wants_problem(accept: str | None) -> bool:
    """Whether an Accept header names JSON, and prefers it to a page: by its weight, then by its place.

    A program that sends `*/*` alone, or no Accept, gets a page.
    """
    return accept is not None and "json" in accept.lower() and _prefers_json(_cut(accept) or "")


def wants_data(accept: str | None) -> bool:
    """Whether a request is negotiated. Accept alone decides that."""
    return bool(accept) and _negotiate(_cut(accept), None, False).conneg


def choose_coding(accept_encoding: str | None) -> Coding | None:
    """The coding that a client prefers, None if it prefers none (RFC 9110, section 12.5.3). Of equal ones, zstd.

    A client gets zstd only if it names it: `*` can be older than zstd.
    """
    if not accept_encoding:
        return None
    weights = dict(_entries(_cut(accept_encoding) or ""))
    gzip, zstd = weights.get("gzip", weights.get("x-gzip", weights.get("*", 0.0))), weights.get("zstd", 0.0)
    best: Coding = "zstd" if zstd >= gzip else "gzip"
    return best if max(gzip, zstd) > 0 and max(gzip, zstd) >= weights.get("identity", 0.0) else None


def preferred_languages(accept_language: str | None) -> tuple[str, ...]:
    """The language tags in an Accept-Language, in lower case, the preferred one first."""
    return tuple(value or "" for _, value in _languages(_cut(accept_language)))


def _cut(header: str | None) -> str | None:
    # Longer headers, and entries after so many, are ignored.
    return header if header is None else header[:4096]


@lru_cache(maxsize=1024)
def _prefers_json(accept: str) -> bool:
    # A sort by weight is stable: of equal weights, the first entry stays first.
    ordered = sorted(_entries(accept), key=lambda entry: -entry[1])
    first = next((entry for entry in ordered if _is_json(entry[0]) or entry[0] in _HTML_PAGES), None)
    return first is not None and first[1] > 0 and _is_json(first[0])


def _is_json(value: str) -> bool:
    """Whether a media type is JSON (RFC 6839, section 3.1)."""
    return value == "application/json" or value.endswith("+json")


@lru_cache(maxsize=1024)
def _negotiate(accept: str | None, accept_language: str | None, browser: bool) -> Negotiation:
    # An empty field says nothing (RFC 9110, section 12.5.1: a list of no media types).
    entries = _entries(accept) if accept and accept.strip() else []
    if all(value == "*/*" for value, _ in entries):
        role: tuple[Locatt, ...] = (
            (*_WANTS_HTML, ("http_role", "browser")) if browser else (("http_role", "no_conneg"),)
        )
        return Negotiation(False, role + _languages(accept_language), reads_user_agent=True)
    pages = [q for value, q in entries if "*" in value or value in _SHOWN or value.startswith(_SHOWN_KINDS)]
    if max(pages, default=0.0) < max(q for _, q in entries):
        return Negotiation(True, (*_types(entries), ("http_role", "conneg"), *_languages(accept_language)))
    html = _WANTS_HTML if any(value in _HTML for value, _ in entries) else ()
    return Negotiation(False, (*html, ("http_role", "browser"), *_languages(accept_language)))


def _entries(header: str) -> list[tuple[str, float]]:
    """Each entry of a list header, in lower case, with its weight; a weight that is not a number is 1."""
    found = []
    for entry in header.lower().split(",", _MAX_ENTRIES)[:_MAX_ENTRIES]:
        value, *parameters = entry.split(";")
        weight = next((parameter.strip()[2:] for parameter in parameters if parameter.strip().startswith("q=")), "1")
        found.append((value.strip(), _number(weight)))
    return found


def _number(text: str) -> float:
    try:
        return min(1.0, max(0.0, float(text)))
    except ValueError:
        return 1.0


def _types(entries: list[tuple[str, float]]) -> tuple[Locatt, ...]:
    found: list[Locatt] = []
    for value, _ in sorted(entries, key=lambda entry: -entry[1]):
        if "*" in value:
            break
        if value:
            found += [("ctype", value), ("media-type", value)]
    return tuple(found)


def _languages(header: str | None) -> tuple[Locatt, ...]:
    entries = sorted(_entries(header), key=lambda entry: -entry[1]) if header else []
    return tuple(("language", value) for value, _ in entries if value and value != "*")


#: The headers that select, and the longest of each that does.
SELECTING: Final = (b"accept", b"accept-language", b"accept-encoding")
MAX_SELECTING_CHARACTERS: Final = 1_000


class Varies(Flag):
    """What an answer depends on besides its target and its records."""

    DATA = auto()  # whether Accept is negotiated
    PAGE = auto()  # whether Accept is that of a browser
    PROBLEM = auto()  # whether Accept prefers JSON to a page
    LANGUAGE = auto()
    CODING = auto()


#: The bits of what a request selects (`select_variant`). The language has all higher ones.
WANTS_DATA: Final = 0b1
_BITS: Final = {
    Varies.DATA: WANTS_DATA,
    Varies.PAGE: 0b10,
    Varies.PROBLEM: 0b100,
    Varies.CODING: 0b11000,
    Varies.LANGUAGE: ~0b11111,
}


#: The answer is the same for every Accept, Accept-Language and Accept-Encoding.
SAME_FOR_ALL: Final = Varies(0)


def select_variant(header: Callable[[bytes], str | None], languages: Sequence[str]) -> int | None:
    """What a request selects, given its headers, as bits. None if one of them is too long to be part of a key.

    The language is its place among `languages`.
    """
    accept, accept_language, accept_encoding = map(header, SELECTING)
    for value in (accept, accept_language, accept_encoding):
        if value is not None and len(value) > MAX_SELECTING_CHARACTERS:
            return None
    return _select(accept, accept_language, accept_encoding, tuple(languages))


@lru_cache(maxsize=1024)
def _select(
    accept: str | None, accept_language: str | None, accept_encoding: str | None, languages: tuple[str, ...]
) -> int:
    coding = choose_coding(accept_encoding)
    return (
        wants_data(accept)
        | wants_page(accept) << 1
        | wants_problem(accept) << 2
        | (0 if coding is None else 1 if coding == "gzip" else 2) << 3
        | languages.index(choose_language(accept_language, languages)) << 5
    )


@lru_cache(maxsize=1024)
def mask_of(varies: Varies) -> int:
    """The bits of what a request selects that an answer depends on."""
    return sum(bits for each, bits in _BITS.items() if each in varies)
