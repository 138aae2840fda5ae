"""10320/loc: several locations under one name (technical manual, chapter 12; DOI Handbook, section "Resolution").

A value is XML: a root with settings as attributes, and children `location` (or the older `loc_template`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_network
from itertools import islice
from typing import Final

from lxml import etree

#: Longer values are not read: real ones are below 10 kB.
MAX_XML_BYTES: Final = 65_536
#: "=" signs in one element, which has at most as many attributes: libxml2 takes 150 ms for one with 7,000 of them.
MAX_ATTRIBUTES: Final = 500
#: Locations of one name after this many are not looked at.
MAX_LOCATIONS: Final = 1_000
#: Elements of one value after this many are not looked at.
MAX_ELEMENTS: Final = 2_000
#: Handles after this many in one setting or value are not looked at.
MAX_HANDLES: Final = 100
#: Entries in the `addresses` of one location, and of all locations of one name, after which none is looked at.
MAX_NETWORKS: Final = 1_000
#: Entries of one location that are not networks, which take 40 us each, after which the rest is not looked at.
_MAX_WRONG_NETWORKS: Final = 100
#: Filled-in templates are not longer: no target is.
_MAX_HREF_CHARACTERS: Final = 16_384
#: Status codes that a location may ask for; anything else is 302.
REDIRECT_STATUSES: Final = frozenset({301, 302, 303, 307, 308})
#: Greater weights count as this one, so that sums of weights stay finite.
MAX_WEIGHT: Final = 1e12
_LOCATION_TAGS: Final = frozenset({"location", "loc_template"})


class MalformedLocations(Exception):
    """The value is no XML that we read; it counts as if it were not there. Its message says why."""


@dataclass(frozen=True, slots=True)
class Location:
    """One location: its attributes in their order. Any attribute can be matched by `locatt`."""

    attributes: tuple[tuple[str, str], ...]
    _by_name: dict[str, str] = field(init=False, compare=False, repr=False)
    _networks: list[tuple[IPv4Network | IPv6Network, ...]] = field(
        default_factory=list, init=False, compare=False, repr=False
    )

    def __post_init__(self) -> None:
        # 110 attributes of a request are compared with 1,000 locations. The first of several counts.
        object.__setattr__(self, "_by_name", dict(reversed(self.attributes)))

    def get(self, name: str) -> str | None:
        """The value of an attribute, None where it is absent."""
        return self._by_name.get(name)

    @property
    def network_entries(self) -> int:
        """How many entries of `addresses` are looked at."""
        addresses = self.get("addresses")
        return 0 if addresses is None else min(addresses.count(",") + 1, MAX_NETWORKS)

    @property
    def networks(self) -> tuple[IPv4Network | IPv6Network, ...]:
        """The networks in `addresses`, a comma list; parsed once, and without entries that are not networks."""
        if not self._networks:
            self._networks.append(_read_networks(self.get("addresses") or ""))
        return self._networks[0]

    @property
    def weight(self) -> float:
        """The weight, 1 where it is absent or no number; negative weights count as 0."""
        return min(max(0.0, number(self.get("weight"), 1.0)), MAX_WEIGHT)

    @property
    def score(self) -> float:
        """The score, 0 where it is absent or no number."""
        return number(self.get("score"), 0.0)

    def href(self, hdl: str, hdl_path: str) -> str | None:
        """The address: `href`, else `href_template` with {hdl} and {hdl:path} filled in by the encoded name."""
        given = self.get("href")
        if given is not None:
            return given
        template = self.get("href_template")
        return None if template is None else fill_template(template, hdl, hdl_path)


@dataclass(frozen=True, slots=True)
class Locations:
    """Locations and the settings of their root elements, of which the first found wins."""

    items: tuple[Location, ...] = ()
    settings: Mapping[str, str] | None = None
    #: Handles whose own 10320/loc values are to be read as well.
    includes: tuple[str, ...] = ()
    #: Prefixes whose locations are to be read as well: those of the service handles that their HS_NAMESPACE names.
    namespaces: tuple[str, ...] = ()

    def setting(self, name: str) -> str | None:
        """A setting of the root element, None where it is absent."""
        return None if self.settings is None else self.settings.get(name)

    def is_set(self, name: str) -> bool:
        """Whether a setting says true."""
        return says_true(self.setting(name))

    def __add__(self, other: Locations) -> Locations:
        """Both, in this order."""
        return Locations(
            (self.items + other.items)[:MAX_LOCATIONS],
            {**(other.settings or {}), **(self.settings or {})},
            (self.includes + other.includes)[:MAX_HANDLES],
            (self.namespaces + other.namespaces)[:MAX_HANDLES],
        )


NO_LOCATIONS: Final = Locations()


def fill_template(template: str, hdl: str, hdl_path: str) -> str:
    """A template with {hdl} and {hdl:path} filled in; "" where that would be longer than any target.

    A template of 64 kB with 13,000 places and a name of 8 kB would become 100 MB.
    """
    filled = len(template) + template.count("{hdl") * max(len(hdl), len(hdl_path))
    if filled > _MAX_HREF_CHARACTERS:
        return ""
    return template.replace("{hdl:path}", hdl_path).replace("{hdl}", hdl)


def _read_networks(addresses: str) -> tuple[IPv4Network | IPv6Network, ...]:
    found, wrong = [], 0
    for text in addresses.split(",", MAX_NETWORKS)[:MAX_NETWORKS]:
        try:
            found.append(ip_network(text.strip(), strict=False))
        except ValueError:
            wrong += 1
            if wrong == _MAX_WRONG_NETWORKS:
                break
    return tuple(found)


def number(text: str | None, default: float) -> float:
    """A number in an attribute; `default` where there is none."""
    try:
        value = float(text) if text is not None else default
    except ValueError:
        return default
    return value if value == value and abs(value) != float("inf") else default


def says_true(text: str | None) -> bool:
    """Whether a setting says true; absent, it does not."""
    return (text or "").strip().lower() in ("true", "yes", "1")


def parse_xml(xml: str) -> etree._Element:
    """The root of a small XML document without a DOCTYPE. Raises MalformedLocations."""
    data = xml.strip().encode("utf-8", "replace")
    if len(data) > MAX_XML_BYTES:
        raise MalformedLocations(f"longer than {MAX_XML_BYTES} bytes")
    if b"<!DOCTYPE" in data or b"<!ENTITY" in data:
        raise MalformedLocations("a DOCTYPE is not read")
    # An attribute value holds no "<" (XML 1.0, section 2.3).
    if max(tag.count(b"=") for tag in data.split(b"<")) > MAX_ATTRIBUTES:
        raise MalformedLocations(f"an element with more than {MAX_ATTRIBUTES} attributes")
    # No entities, no network, no DTD, libxml2's own limits on depth and size (OWASP, XML external entities).
    parser = etree.XMLParser(
        encoding="utf-8",
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
    )
    try:
        root = etree.fromstring(data, parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        raise MalformedLocations(str(error)) from error
    if root is None:
        raise MalformedLocations("no element")
    return root


def read_locations(xml: str) -> Locations:
    """Read one 10320/loc value. Raises MalformedLocations."""
    root = parse_xml(xml)
    items: list[Location] = []
    includes, namespaces = [*handles(root.get("include"))], [*handles(root.get("includeNamespace"))]
    for child in islice(root, MAX_ELEMENTS):
        tag = local_name(child)
        if tag in _LOCATION_TAGS and len(items) < MAX_LOCATIONS:
            items.append(Location(tuple((str(key), str(value)) for key, value in child.attrib.items())))
        elif tag == "include":
            includes += handles(child.text)
        elif tag == "includeNamespace":
            namespaces += handles(child.text)
    return Locations(tuple(items), _settings(root), tuple(includes[:MAX_HANDLES]), tuple(namespaces[:MAX_HANDLES]))


def _settings(root: etree._Element) -> dict[str, str]:
    settings = {str(key): str(value) for key, value in root.attrib.items()}
    if settings.get("choose_by"):
        # Two names of one setting: the newer wins within a value, and neither over another value's.
        settings["chooseby"] = settings["choose_by"]
    return settings


def local_name(element: etree._Element) -> str:
    """The name of an element without its namespace; "" for what is no element."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def handles(text: str | None) -> tuple[str, ...]:
    """The handles in a setting, separated by white space."""
    return tuple((text or "").split(maxsplit=MAX_HANDLES)[:MAX_HANDLES])


def merged(several: Iterable[Locations]) -> Locations:
    """Several values of one record, in their order."""
    total = NO_LOCATIONS
    for one in several:
        total = total + one
    return total
