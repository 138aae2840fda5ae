"""Finds the redirect target of a record: its URL value, or one of its locations."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final
from urllib.parse import quote

import ada_url
import msgspec

from doi_names.name import HandleName
from doi_names.presentation import BLANKS, component, template_path
from doi_proxy.errors import InvalidParameter
from doi_proxy.resolver.resolution import (
    DEFAULT_OPTIONS,
    NO_FACTS,
    Action,
    Client,
    ClientFact,
    Locatt,
    Negotiation,
    ResolveOptions,
    name_media_type,
)
from handle_protocol.location import (
    MAX_LOCATIONS,
    MAX_NETWORKS,
    NO_LOCATIONS,
    REDIRECT_STATUSES,
    Location,
    Locations,
    MalformedLocations,
    is_true_setting,
    merge_locations,
    parse_number,
    read_locations,
)
from handle_protocol.value import HandleValue, Record, read_outline, read_text, read_values

#: Limit of the methods in a record. The rest is ignored.
_MAX_METHODS: Final = 20

Candidates = Sequence[Location]
_Method = Callable[[Candidates, Client], Candidates]


@dataclass(frozen=True, slots=True)
class LocationChoice:
    """A location, and the facts about the client that could change it. The location is None without candidates."""

    location: Location | None
    facts: ClientFact


def choose_location(
    candidates: Candidates, methods: str | None, client: Client, locatts: Sequence[Locatt]
) -> LocationChoice:
    """Choose a location by `methods`, a comma-separated list. The `locatts` of the query count before the client's.

    A single remaining candidate is chosen whatever its weight. Several remaining candidates are chosen by weight. A
    method that is listed twice counts once.
    """
    left, facts = candidates, NO_FACTS
    # The methods of a record that names none, in order (technical manual, version 9).
    names = (
        name.strip().lower()
        for name in (methods or "locatt,address,country,score,weighted").split(",", _MAX_METHODS)[:_MAX_METHODS]
    )
    for name in dict.fromkeys(names):
        if len(left) <= 1:
            break
        method = _METHODS.get(name)
        if method is not None:
            if method is _locatt:
                # The query is part of the URL, so only the choice by the client's headers counts as a fact.
                left = _narrow(left, locatts)
            facts |= _facts_used(method, left, client)
            left = method(left, client) or left
    facts |= _facts_used(_weighted, left, client)
    return LocationChoice(_weighted(left, client)[0] if left else None, facts)


def _facts_used(method: _Method, candidates: Candidates, client: Client) -> ClientFact:
    """The facts about the client that could change the result of `method`."""
    if len(candidates) <= 1:
        return NO_FACTS
    if method is _weighted:
        heavy = sum(location.weight > 0 for location in candidates)
        return NO_FACTS if heavy == 1 else ClientFact.CHANCE
    used = NO_FACTS
    for name, fact in _FACTS_OF_ATTRIBUTES.get(method, {}).items():
        if any(location.get(name) is not None for location in candidates):
            used |= fact
    if ClientFact.ACCEPT in used and client.negotiation.reads_user_agent:
        used |= ClientFact.USER_AGENT
    return used


def _narrow(candidates: Candidates, locatts: Sequence[Locatt]) -> Candidates:
    for name, wanted in locatts:
        candidates = [location for location in candidates if matches(location, name, wanted)] or candidates
    return candidates


def _locatt(candidates: Candidates, client: Client) -> Candidates:
    return _narrow(candidates, client.negotiation.locatts)


def matches(location: Location, name: str, wanted: str | None) -> bool:
    """Whether a location has this attribute and, if `wanted` is given, this value."""
    value = location.get(name)
    if value is None or wanted is None:
        return value is not None
    # The example of the Handbook selects country="gb" with country:uk.
    return _country_code(value) == _country_code(wanted) if name == "country" else value == wanted


def _address(candidates: Candidates, client: Client) -> Candidates:
    # A server that listens on "::" sees IPv4 clients as ::ffff:192.0.2.7 (RFC 4291, section 2.5.5.2).
    address = getattr(client.address, "ipv4_mapped", None) or client.address
    found: list[Location] = []
    left = MAX_NETWORKS
    if address is None:
        return found
    for location in candidates:
        left -= location.network_entries
        if any(network.version == address.version and address in network for network in location.networks):
            found.append(location)
        if left <= 0:
            break
    return found


def _country(candidates: Candidates, client: Client) -> Candidates:
    mine = _country_code(client.country or "")
    if not mine:
        return candidates
    return [location for location in candidates if _country_code(location.get("country") or "") == mine]


def _country_code(text: str) -> str:
    code = text.strip().lower()
    return "gb" if code == "uk" else code


def _score(candidates: Candidates, client: Client) -> Candidates:
    best = max(location.score for location in candidates)
    return [location for location in candidates if location.score == best]


def _weighted(candidates: Candidates, client: Client) -> Candidates:
    """Choose one candidate at random, in proportion to the weights. If all weights are zero, all are equally likely."""
    weights = [location.weight for location in candidates]
    total = sum(weights)
    if total <= 0:
        return [candidates[min(int(client.chance * len(candidates)), len(candidates) - 1)]]
    mark = client.chance * total
    for location, weight in zip(candidates, weights, strict=True):
        mark -= weight
        if mark < 0:
            return [location]
    return [next(location for location, weight in reversed(list(zip(candidates, weights, strict=True))) if weight > 0)]


_METHODS: Final[dict[str, _Method]] = {
    "locatt": _locatt,
    "address": _address,
    "country": _country,
    "score": _score,
    "weighted": _weighted,
}
#: The attributes of a location that a method compares with facts about the client.
_FACTS_OF_ATTRIBUTES: Final[dict[_Method, dict[str, ClientFact]]] = {
    _locatt: {
        "ctype": ClientFact.ACCEPT,
        "media-type": ClientFact.ACCEPT,
        "http_role": ClientFact.ACCEPT,
        "language": ClientFact.LANGUAGE,
    },
    _address: {"addresses": ClientFact.ADDRESS},
    _country: {"country": ClientFact.COUNTRY},
}


#: Schemes of redirect targets. For any other (javascript:, data:, irods:, …), the values page is shown.
SCHEMES: Final = frozenset({"http", "https", "ftp", "mailto"})
#: Schemes whose URLs have a host. Only to these can `urlappend` be added.
_HIERARCHICAL: Final = ("http:", "https:", "ftp:")
#: Characters that are not encoded. "%" is one of them, because a target has its own escapes.
_LITERAL: Final = "-._~!$()*,:@/;=+&'?#[]%"
#: Most URLs: nothing is encoded.
_ENCODED: Final = re.compile(f"(?ai:{'|'.join(sorted(SCHEMES))}):[A-Za-z0-9{re.escape(_LITERAL)}]+")
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
#: scheme://userinfo@host, for Punycode if the host is not ASCII.
_HOST: Final = re.compile(r"((?:https?|ftp)://(?:[^/?#@]*@)?)([^/?#:@\[\]]+)", re.IGNORECASE)
#: Browsers and front proxies refuse longer targets.
MAX_REDIRECT_TARGET_BYTES: Final = 16_384
_MAX_HOST_CHARACTERS: Final = 253
#: The version of these rules and of those of doi_proxy.resolver.target. A store ignores the targets that others found.
TARGET_RULES: Final = 2


def web_target(url: str, append: str | None = None) -> str | None:
    """Encode a URL, with `append` at its end, in ASCII for `Location`. None if a redirect to it is not safe.

    Blanks, a byte order mark and zero-width signs at its ends are removed: they are copying errors of a registrant.

    Raises InvalidParameter if `append` would change the scheme or the host.
    """
    url = url.strip(BLANKS)
    encoded_url = _encode(url)
    if encoded_url is None or not append:
        return encoded_url
    longer = _encode(url + append)
    if longer is None or _origin(longer) != _origin(encoded_url):
        raise InvalidParameter(
            "urlappend may add to the path, query or fragment of the target; here it would change the target's host."
        )
    return longer


def takes_appendix(url: str) -> bool:
    """Whether `urlappend` may be added to a URL. In a mailto: URL it would change the recipient (RFC 6068)."""
    return url.lstrip(BLANKS).lower().startswith(_HIERARCHICAL)


def _encode(url: str) -> str | None:
    if _ENCODED.fullmatch(url) and len(url) <= MAX_REDIRECT_TARGET_BYTES:
        return url
    scheme = _SCHEME.match(url)
    # Check the length first: encoding takes 60 ns per non-ASCII byte.
    if scheme is None or scheme[1].lower() not in SCHEMES or len(url) > 2 * MAX_REDIRECT_TARGET_BYTES:
        return None
    if not url.isascii():
        url = _HOST.sub(_punycode, url, count=1)
    encoded = quote(url, safe=_LITERAL)
    if len(encoded) > MAX_REDIRECT_TARGET_BYTES or len(encoded) == scheme.end():
        return None
    return encoded


def _punycode(found: re.Match[str]) -> str:
    # A host has at most 253 characters (RFC 1123, section 2.1), and Punycode takes quadratic time (RFC 3492).
    if found[2].isascii() or len(found[2]) > _MAX_HOST_CHARACTERS:
        return found[0]
    # The result for a host that IDNA refuses is empty. Such a host is percent-encoded, as browsers do.
    return found[1] + (ada_url.idna_to_ascii(found[2].encode()).decode() or found[2])


def _origin(url: str) -> tuple[str, str, str, str] | None:
    """The origin as browsers see it, by the WHATWG URL standard. RFC 3986 can give another one."""
    try:
        parsed = ada_url.URL(url)
    except ValueError:
        return None
    return parsed.protocol, parsed.username, parsed.password, parsed.host


USUAL_STATUS: Final = 302
#: Limits of the `Link` headers of one answer, and of their URLs. Front proxies accept a few kilobytes of headers.
MAX_LINKS: Final = 40
MAX_LINK_BYTES: Final = 4096
#: Limit of the XML that is parsed for one name, in bytes: its own values and those of other handles.
MAX_NAME_XML_BYTES: Final = 131_072
#: The part of it that is reserved for 10320/links values.
MAX_LINKS_XML_BYTES: Final = 32_768
#: Limit of the XML values of one type in one record.
MAX_XML_VALUES: Final = 100
#: Types of values that can change the target or the headers of a redirect.
_DECIDING_TYPES: Final = ("HS_ALIAS.", "10320/loc.", "10320/links.", "10320/headers.")
_DECIDING_FOLDED: Final = tuple(kind.upper() for kind in _DECIDING_TYPES)


class Target(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """A redirect. `location` is ASCII and safe in a header. `display` is the URL as it is in the record."""

    location: str
    display: str
    status: int = USUAL_STATUS


@dataclass(frozen=True, slots=True)
class TargetChoice:
    """A target, and the facts about the client that it depends on. The target is None if no redirect is safe.

    The facts count even without a target, because another client may have one.
    """

    target: Target | None
    facts: ClientFact = NO_FACTS


@dataclass(frozen=True, slots=True)
class NameLocations:
    """The locations of a name: its own, those that it includes, and those of its prefix."""

    #: Its own, and those that it includes.
    of_name: Locations = NO_LOCATIONS
    of_prefix: Locations = NO_LOCATIONS
    #: Whether the record has a 10320/loc value that could be read.
    has_loc_value: bool = False
    #: The errors in values that could not be read.
    malformed: tuple[str, ...] = ()
    #: Entries of the 10320/links values of the prefix's service handles.
    links_of_prefix: tuple[Location, ...] = ()
    #: When the first of the other records with these locations expires, in seconds since the epoch.
    ends_at: float | None = field(default=None, compare=False)

    def setting(self, name: str) -> str | None:
        """A setting of the root elements. The setting of the record wins over that of the prefix."""
        setting = self.of_name.setting(name)
        return self.of_prefix.setting(name) if setting is None else setting

    def is_set(self, name: str) -> bool:
        """Whether a setting is true."""
        return is_true_setting(self.setting(name))

    @property
    def any(self) -> bool:
        """Whether the name has locations besides its URL values."""
        return self.has_loc_value or bool(self.of_name.items or self.of_prefix.items)


NO_NAME_LOCATIONS: Final = NameLocations()


def read_own_locations(record: Record) -> NameLocations:
    """Read the 10320/loc values of a record, in order and once per record. Malformed values are left out.

    Values after the first MAX_XML_VALUES, or beyond the XML limit of one name, count as malformed.
    """
    return record.derive(_read_own_locations) if record.of_type("10320/loc.") else NO_NAME_LOCATIONS


def _read_own_locations(record: Record) -> NameLocations:
    values = record.of_type("10320/loc.")
    if not values:
        return NO_NAME_LOCATIONS
    read, malformed = _read_xml(values, MAX_NAME_XML_BYTES - MAX_LINKS_XML_BYTES)
    return NameLocations(of_name=merge_locations(read), has_loc_value=bool(read), malformed=tuple(malformed))


def _read_xml(values: Sequence[HandleValue], room: int) -> tuple[list[Locations], list[str]]:
    """Read the values that fit into `room` bytes. Returns their locations, and the errors of the other values."""
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
    """The size of the XML in a record, in characters, at most MAX_NAME_XML_BYTES."""
    values = (*record.of_type("10320/loc."), *record.of_type("10320/links."))
    return min(sum(len(value.text or "") for value in values), MAX_NAME_XML_BYTES)


def needs_prefix(record: Record, locations: NameLocations, options: ResolveOptions, negotiation: Negotiation) -> bool:
    """Whether the answer can depend on the locations of the name's prefix."""
    own = locations.of_name
    if own.settings and own.is_set("no_nslocs"):
        return False
    if options.action is Action.SHOW_URLS:
        return True
    if not locations.has_loc_value and not record.of_type("URL."):
        return False  # a record without a target is shown as a page
    # With `nshdl`, the record names handles for the case that its prefix has none. That counts for every request.
    return negotiation.conneg or bool(options.locatts or (own.settings and own.setting("nshdl") is not None))


def is_sufficient(record: Record, locations: NameLocations, options: ResolveOptions, negotiation: Negotiation) -> bool:
    """Whether these locations are enough to answer if the other locations of the name cannot be fetched."""
    found = list_candidates(record, locations)
    if not found or options.action is Action.SHOW_URLS:
        return False
    if not all(any(matches(location, *locatt) for location in found) for locatt in options.locatts):
        return False
    negotiated = [locatt for locatt in negotiation.locatts if locatt[0] != "language"]
    return not negotiation.conneg or any(matches(location, *locatt) for locatt in negotiated for location in found)


def list_candidates(record: Record, locations: NameLocations) -> list[Location]:
    """The locations to choose from: those of the record, its URL values, then those of the prefix."""
    legacy = [] if locations.is_set("no_legacy") else _url_locations(record, locations)
    return [*locations.of_name.items, *legacy, *locations.of_prefix.items]


def _url_locations(record: Record, locations: NameLocations) -> list[Location]:
    """The URL values as locations. Their weight is 0 if the record has a 10320/loc value, else 1."""
    values = [v for v in record.of_type("URL.") if v.text][:MAX_LOCATIONS]
    urls = [v for v in values if v.has_type("URL")]
    subtypes = [v for v in values if not v.has_type("URL")]
    weight = parse_number(locations.setting("urlWeight"), 0.0 if locations.has_loc_value else 1.0)
    weights = [(value, weight) for value in urls]
    if urls:
        weight = parse_number(locations.setting("urlSubtypeWeight"), 0.0)
    weights += [(value, weight) for value in subtypes]
    return [
        Location((("mode", "legacy"), ("weight", str(weight)), ("href", (value.text or "").strip())))
        for value, weight in weights
    ]


def unconditional_target(record: Record) -> Target | None:
    """The target of a record that leads every client to the same URL, without extra headers.

    None if the record is an alias, has locations, links or headers, or has no URL that is safe to redirect to.
    """
    if any(record.of_type(wanted) for wanted in _DECIDING_TYPES):
        return None
    return _url_target(record, DEFAULT_OPTIONS)


def read_unconditional_target(values: bytes) -> Target | None:
    """The same, from the JSON of a record's values. Raises UnusableAnswer.

    Usual values are not parsed one by one: for recorded answers, that takes 3.7 us in place of 13.5.
    """
    outline = read_outline(values)
    if outline is None:
        return unconditional_target(read_values(values))
    url = similar = None
    for kind, data in outline:
        if f"{kind}.".startswith(_DECIDING_FOLDED):
            return None
        if kind == "URL":
            url = url or data
        elif kind.startswith("URL."):
            similar = similar or data
    first = url or similar
    return _build_target(None if first is None else read_text(first), USUAL_STATUS, DEFAULT_OPTIONS)


def _url_target(record: Record, options: ResolveOptions) -> Target | None:
    """The target of the first URL value, else of the first "URL.x" value, in record order, not by index."""
    values = record.of_type("URL") or record.of_type("URL.")
    return _build_target(values[0].text if values else None, USUAL_STATUS, options)


def choose_target(
    name: HandleName, record: Record, locations: NameLocations, options: ResolveOptions, client: Client
) -> TargetChoice:
    """The target of a record for a client: one of its locations, chosen by its methods, else its URL value.

    Raises InvalidParameter if `urlappend` would change the host of the target.
    """
    if not locations.any:
        return TargetChoice(_url_target(record, options))
    choice = choose_location(list_candidates(record, locations), locations.setting("chooseby"), client, options.locatts)
    # A country in the query is part of the URL. It is not a fact about the client.
    facts = choice.facts & ~ClientFact.COUNTRY if options.country else choice.facts
    chosen = choice.location
    if chosen is None:
        return TargetChoice(None, facts)
    return TargetChoice(_build_target(href(chosen, name), _status(chosen, locations), options), facts)


def href(location: Location, name: HandleName) -> str | None:
    """The URL of a location for a name, with its template filled in."""
    return location.href(component(name), template_path(name))


def _build_target(url: str | None, status: int, options: ResolveOptions) -> Target | None:
    if url is None:
        return None
    if options.media_type is not None:
        url = name_media_type(url.strip(BLANKS), options.media_type)
    append = options.urlappend if options.urlappend and takes_appendix(url) else None
    # Targets of longer URLs are not cached. The cache stays below 20 MB.
    if append or len(url) > 2048:
        return _new_target(url, status, append)
    return _cached_target(url, status)


@lru_cache(maxsize=4096)
def _cached_target(url: str, status: int) -> Target | None:
    return _new_target(url, status, None)


def _new_target(url: str, status: int, append: str | None) -> Target | None:
    location = web_target(url, append)
    return None if location is None else Target(location, url.strip(BLANKS) + (append or ""), status)


def _status(chosen: Location, locations: NameLocations) -> int:
    given = chosen.get("http_sc") or locations.setting("http_sc") or ""
    status = int(given) if given.isascii() and given.isdigit() and len(given) == 3 else USUAL_STATUS
    return status if status in REDIRECT_STATUSES else USUAL_STATUS


def links(record: Record, locations: NameLocations, name: HandleName) -> list[tuple[Location, str]]:
    """The locations for `Link` headers, with their URLs: those with a `rel` and a URL that is safe in a header."""
    found: list[tuple[Location, str]] = []
    left = MAX_LINK_BYTES
    listed = *read_links(record), *locations.of_name.items, *locations.links_of_prefix, *locations.of_prefix.items
    related = [location for location in listed if location.get("rel")]
    encoded = (component(name), template_path(name)) if related else ("", "")
    for location in related:
        given = location.href(*encoded)
        # Skip a URL that is already too long. Encoding cannot shorten it.
        url = web_target(given) if given and len(given) <= left else None
        if url is None or len(url) > left:
            continue
        left -= len(url)
        found.append((location, url))
        if len(found) == MAX_LINKS:
            break
    return found


def read_links(record: Record) -> Sequence[Location]:
    """Read the 10320/links values of a record, once per record. Malformed values are left out."""
    return record.derive(_parse_links) if record.of_type("10320/links.") else ()


def _parse_links(record: Record) -> Sequence[Location]:
    read, _ = _read_xml(record.of_type("10320/links."), MAX_LINKS_XML_BYTES)
    return merge_locations(read).items
