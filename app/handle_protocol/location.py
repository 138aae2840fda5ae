"""10320/loc, several locations of one name, and HS_NAMESPACE (technical manual, chapter 12; DOI Handbook).

A value is XML. The attributes of the root are settings, its children are `location` (or the older `loc_template`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Network, IPv6Network, ip_network
from itertools import islice
from typing import Final

from lxml import etree

from handle_protocol.value import Record

#: Limit of one value. Real values are below 10 kB.
MAX_XML_BYTES: Final = 65_536
#: Locations of one name. The rest is ignored.
MAX_LOCATIONS: Final = 500
#: Elements of one value. The rest is ignored.
MAX_ELEMENTS: Final = 1_000
#: Handles in one setting or value. The rest is ignored.
MAX_HANDLES: Final = 100
#: Entries in the `addresses` of one location, and of all locations of one name. The rest is ignored.
MAX_NETWORKS: Final = 500
#: Redirect statuses that a location may choose. Any other value means 302.
REDIRECT_STATUSES: Final = frozenset({301, 302, 303, 307, 308})
#: Greater weights count as this one, so sums of weights stay finite.
MAX_WEIGHT: Final = 1e12


class MalformedLocations(Exception):
    """The value cannot be parsed and is ignored. The message gives the reason."""


@dataclass(frozen=True, slots=True)
class Location:
    """One location: its attributes in document order. A request can select by any of them with `locatt`."""

    attributes: tuple[tuple[str, str], ...]
    _by_name: dict[str, str] = field(init=False, compare=False, repr=False)
    _networks: list[tuple[IPv4Network | IPv6Network, ...]] = field(
        default_factory=list, init=False, compare=False, repr=False
    )

    def __post_init__(self) -> None:
        # A request can compare 110 attributes with 500 locations. Of attributes with one name, the first counts.
        object.__setattr__(self, "_by_name", dict(reversed(self.attributes)))

    def get(self, name: str) -> str | None:
        """The value of an attribute, or None."""
        return self._by_name.get(name)

    @property
    def network_entries(self) -> int:
        """The number of entries in `addresses`, at most MAX_NETWORKS."""
        addresses = self.get("addresses")
        return 0 if addresses is None else min(addresses.count(",") + 1, MAX_NETWORKS)

    @property
    def networks(self) -> tuple[IPv4Network | IPv6Network, ...]:
        """The networks in `addresses`, a comma-separated list. It is parsed once; invalid entries are left out."""
        if not self._networks:
            self._networks.append(_read_networks(self.get("addresses") or ""))
        return self._networks[0]

    @property
    def weight(self) -> float:
        """The weight. It is 1 if absent or not a number, and 0 if negative."""
        return min(max(0.0, parse_number(self.get("weight"), 1.0)), MAX_WEIGHT)

    @property
    def score(self) -> float:
        """The score. It is 0 if absent or not a number."""
        return parse_number(self.get("score"), 0.0)

    def href(self, hdl: str, hdl_path: str) -> str | None:
        """The target: `href`, else `href_template` with the encoded name in place of {hdl} and {hdl:path}."""
        href = self.get("href")
        if href is not None:
            return href
        template = self.get("href_template")
        return None if template is None else fill_template(template, hdl, hdl_path)


@dataclass(frozen=True, slots=True)
class Locations:
    """Locations, and the settings of their root elements. If two roots have the same setting, the first wins."""

    items: tuple[Location, ...] = ()
    settings: Mapping[str, str] | None = None
    #: Handles whose 10320/loc values are to be added.
    includes: tuple[str, ...] = ()
    #: Prefixes whose locations are to be added: those of the service handles that their HS_NAMESPACE names.
    namespaces: tuple[str, ...] = ()

    def setting(self, name: str) -> str | None:
        """A setting of the root element, or None."""
        return None if self.settings is None else self.settings.get(name)

    def is_set(self, name: str) -> bool:
        """Whether a setting is true."""
        return is_true_setting(self.setting(name))

    def __add__(self, other: Locations) -> Locations:
        """Both, in this order, within the limits above."""
        return Locations(
            (self.items + other.items)[:MAX_LOCATIONS],
            {**(other.settings or {}), **(self.settings or {})},
            (self.includes + other.includes)[:MAX_HANDLES],
            (self.namespaces + other.namespaces)[:MAX_HANDLES],
        )


NO_LOCATIONS: Final = Locations()


def fill_template(template: str, hdl: str, hdl_path: str) -> str:
    """Replace {hdl} and {hdl:path} in a template. Returns "" if the result would be longer than any target.

    A template of 64 kB with 13,000 placeholders and a name of 8 kB would become 100 MB.
    """
    longest = len(template) + template.count("{hdl") * max(len(hdl), len(hdl_path))
    # Limit of a filled template, the longest target that is served.
    if longest > 16_384:
        return ""
    return template.replace("{hdl:path}", hdl_path).replace("{hdl}", hdl)


def _read_networks(addresses: str) -> tuple[IPv4Network | IPv6Network, ...]:
    networks, invalid = [], 0
    if not addresses:
        return ()
    for text in addresses.split(",", MAX_NETWORKS)[:MAX_NETWORKS]:
        try:
            networks.append(ip_network(text.strip(), strict=False))
        except ValueError:
            invalid += 1
            # Invalid entries in the `addresses` of one location, which take 40 us each. The rest of the list is
            # ignored.
            if invalid == 100:
                break
    return tuple(networks)


def parse_number(text: str | None, default: float) -> float:
    """Parse a finite number in an attribute. Returns `default` for anything else."""
    try:
        value = float(text) if text is not None else default
    except ValueError:
        return default
    return value if value == value and abs(value) != float("inf") else default


def is_true_setting(text: str | None) -> bool:
    """Whether a setting is true. An absent setting is not."""
    return (text or "").strip().lower() in ("true", "yes", "1")


def parse_xml(xml: str) -> etree._Element:
    """Parse a small XML document without a DOCTYPE, and return its root. Raises MalformedLocations."""
    data = xml.strip().encode("utf-8", "replace")
    if len(data) > MAX_XML_BYTES:
        raise MalformedLocations(f"longer than {MAX_XML_BYTES} bytes")
    if b"<!DOCTYPE" in data or b"<!ENTITY" in data:
        raise MalformedLocations("a DOCTYPE is not allowed")
    # An attribute value cannot contain "<" (XML 1.0, section 2.3). The "=" signs in one element are an upper bound of
    # its attributes. libxml2 takes 150 ms for 7,000 attributes.
    if max(tag.count(b"=") for tag in data.split(b"<")) > 500:
        raise MalformedLocations("an element with more than 500 attributes")
    # No entities, no network, no DTD, and libxml2's limits on depth and size (OWASP, XML external entities).
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
        raise MalformedLocations("no root element")
    return root


def read_locations(xml: str, most: int = MAX_LOCATIONS) -> Locations:
    """Read one 10320/loc value, at most so many locations of it. Raises MalformedLocations."""
    root = parse_xml(xml)
    items: list[Location] = []
    includes, namespaces = [*split_handles(root.get("include"))], [*split_handles(root.get("includeNamespace"))]
    for child in islice(root, MAX_ELEMENTS):
        tag = local_name(child)
        if tag in {"location", "loc_template"}:
            if len(items) == most:
                continue
            items.append(Location(tuple((str(key), str(value)) for key, value in child.attrib.items())))
        elif tag == "include":
            includes += split_handles(child.text)
        elif tag == "includeNamespace":
            namespaces += split_handles(child.text)
    return Locations(tuple(items), _settings(root), tuple(includes[:MAX_HANDLES]), tuple(namespaces[:MAX_HANDLES]))


def _settings(root: etree._Element) -> dict[str, str]:
    settings = {str(key): str(value) for key, value in root.attrib.items()}
    if settings.get("choose_by"):
        # One setting with two names. The newer name wins within a value; between values the first value wins.
        settings["chooseby"] = settings["choose_by"]
    return settings


def local_name(element: etree._Element) -> str:
    """The name of an element without its namespace. Returns "" for a node that is not an element."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def split_handles(text: str | None) -> tuple[str, ...]:
    """Split the handles in a setting at white space."""
    return tuple((text or "").split(maxsplit=MAX_HANDLES)[:MAX_HANDLES])


def merge_locations(parts: Iterable[Locations]) -> Locations:
    """Join the locations of several values, in their order."""
    total = NO_LOCATIONS
    for part in parts:
        total = total + part
    return total


@dataclass(frozen=True, slots=True)
class Namespace:
    """The part of a prefix record that a proxy uses."""

    #: Handles whose 10320/loc values hold for every name under the prefix: usually the agency's service handle.
    locs: tuple[str, ...] = ()
    #: Service handles that HS_SERV values name. They identify the agency if `locs` is empty.
    services: tuple[str, ...] = ()
    #: Stops the inheritance of the parent prefix's locations.
    no_nslocs: bool = False
    contact: str | None = None
    status: str | None = None
    status_message: str | None = None

    @property
    def is_inactive(self) -> bool:
        """Whether the names under the prefix are out of use."""
        return (self.status or "").strip().lower() == "inactive"


def read_namespace(record: Record) -> Namespace:
    """The namespace of a prefix record, read once: of its HS_NAMESPACE values, the well-formed one of lowest index."""
    return record.derive(_parse_record)


def _parse_record(record: Record) -> Namespace:
    namespace, room = Namespace(), MAX_XML_BYTES
    # HS_NAMESPACE values of one record. The rest is ignored.
    for value in sorted(record.of_type("HS_NAMESPACE")[:10], key=lambda value: value.index):
        room -= len(value.text or "")
        if room < 0:
            break
        try:
            namespace = _parse_namespace(value.text or "")
            break
        except MalformedLocations:
            continue
    services = tuple(v.text.strip() for v in record.of_type("HS_SERV")[:MAX_HANDLES] if v.text and v.text.strip())
    contact = namespace.contact or next((v.text for v in record.of_type("EMAIL") if v.text), None)
    return replace(namespace, services=services, contact=contact)


def _parse_namespace(xml: str) -> Namespace:
    locs: list[str] = []
    no_nslocs = False
    texts: dict[str, str] = {}
    for child in islice(parse_xml(xml), MAX_ELEMENTS):
        name, text = local_name(child), "".join(child.itertext()).strip()
        if name == "locs":
            locs += split_handles(text)
            no_nslocs = no_nslocs or is_true_setting(child.get("no_nslocs"))
        elif name and text:
            texts.setdefault(name, text)
    return Namespace(
        tuple(locs[:MAX_HANDLES]),
        (),
        no_nslocs,
        texts.get("contact"),
        texts.get("status"),
        texts.get("statusmsg"),
    )
