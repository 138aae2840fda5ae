"""One handle value in the JSON of the handle API (Handle.Net technical manual, chapter 14).

A value keeps the JSON it was read from. Members that this program does not know pass through unchanged, and so do those
that it cannot read: the value names them, and their usual values count.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from ipaddress import IPv4Network, IPv6Network, ip_network
from itertools import islice
from typing import Any, Final, TypeVar

import msgspec
from lxml import etree

from doi_names.name import fold
from handle_protocol.dump import AnswerTooLarge, InvalidRecord

#: Limit of one value. Real values are below 10 kB.
MAX_XML_BYTES: Final = 65_536
#: "=" signs in one element, an upper bound of its attributes. libxml2 takes 150 ms for 7,000 attributes.
MAX_ATTRIBUTES: Final = 500
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
_LOCATION_TAGS: Final = frozenset({"location", "loc_template"})


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
    # An attribute value cannot contain "<" (XML 1.0, section 2.3).
    if max(tag.count(b"=") for tag in data.split(b"<")) > MAX_ATTRIBUTES:
        raise MalformedLocations(f"an element with more than {MAX_ATTRIBUTES} attributes")
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
        if tag in _LOCATION_TAGS:
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


#: A JSON string (RFC 8259, section 7). The pattern matches at every quote, so a search takes linear time.
JSON_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
#: Translates every digit to "0" and every other byte to a blank.
_DIGITS: Final = bytes(0x30 if 0x30 <= byte <= 0x39 else 0x20 for byte in range(256))
#: One digit more than Python's JSON reader accepts in a number (4,300).
_TOO_MANY_DIGITS: Final = b"0" * 4301


class _Needed(msgspec.Struct, gc=False):
    """The members without which a JSON object is not a handle value, and its data."""

    index: int
    type: str
    data: msgspec.Raw = msgspec.Raw(b"null")


class _Wire(_Needed, gc=False):
    """The members that this program reads."""

    ttl: int | float | str | None = None
    timestamp: str | int | None = None
    permissions: str | None = None
    references: list[_Reference] | None = None


class _Reference(msgspec.Struct, gc=False):
    handle: str
    index: int


class _Text(msgspec.Struct, gc=False):
    """The data of a value whose data is a string."""

    value: str
    format: str = "string"


_decoder: Final = msgspec.json.Decoder(_Wire)
_array: Final = msgspec.json.Decoder(list[_Wire])
_needed: Final = msgspec.json.Decoder(_Needed)
_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
#: The readers of the members that a value may lack.
_OPTIONAL: Final[dict[str, msgspec.json.Decoder[Any]]] = {
    "ttl": msgspec.json.Decoder(int | float | str | None),
    "timestamp": msgspec.json.Decoder(str | int | None),
    "permissions": msgspec.json.Decoder(str | None),
    "references": msgspec.json.Decoder(list[_Reference] | None),
}
_text: Final = msgspec.json.Decoder(_Text)
_string: Final = msgspec.json.Decoder(str)


class Ttl(msgspec.Struct, frozen=True, gc=False):
    """A TTL (RFC 3651, section 3.1): seconds after the answer arrived, or since the epoch if `absolute`."""

    seconds: float
    absolute: bool = False


#: The handle system's TTL of a value without one: 24 hours.
DEFAULT_TTL: Final = Ttl(86400)
#: 100 years. Greater numbers overflow date arithmetic, and in practice mean "for ever" too.
_MAX_SECONDS: Final = 100 * 365 * 86400.0


class Data(msgspec.Struct, frozen=True, gc=False):
    """The data of a value. `format` names the shape of `value`.

    string: str · base64 and hex: the encoded text · admin: {handle, index, permissions} · vlist: a list of
    {handle, index} · site and key: nested objects. A bare string, which old servers send, has the format "string".
    """

    format: str
    value: Any


class HandleValue(msgspec.Struct, frozen=True, gc=False):
    """One typed value of a record. `raw` is its JSON without insignificant white space."""

    index: int
    type: str
    #: The data if it is a string, else None.
    text: str | None
    ttl: Ttl
    timestamp: str | None
    permissions: str
    references: tuple[tuple[str, int], ...]
    raw: bytes
    #: The type with its ASCII letters in upper case, for comparisons.
    folded_type: str
    #: The members that cannot be read.
    unread: tuple[str, ...] = ()

    @property
    def data(self) -> Data:
        """The data, parsed by each call. Only pages use it, and parsing 1 MiB of `[[],…]` takes 140 ms."""
        if self.text is not None:
            return Data("string", self.text)
        try:
            return _read_data(msgspec.json.decode(_decoder.decode(self.raw).data))
        except (msgspec.DecodeError, RecursionError, ValueError):
            # Valid JSON that Python cannot represent, such as the number 1e400.
            return Data("unknown", None)

    def has_type(self, pattern: str) -> bool:
        """Whether the type matches, ignoring the case of ASCII letters.

        "X." matches "X" and every "X.y". "." alone names no type.
        """
        wanted = fold(pattern)
        if wanted == ".":
            return False
        return f"{self.folded_type}.".startswith(wanted) if wanted.endswith(".") else self.folded_type == wanted


def read_value(raw: bytes) -> HandleValue:
    """Read one value from its JSON object. Raises InvalidRecord for JSON of another shape."""
    unread: tuple[str, ...] = ()
    try:
        wire = _decoder.decode(raw)
        ttl = DEFAULT_TTL if wire.ttl is None else read_ttl(wire.ttl)
    except (msgspec.DecodeError, RecursionError, ValueError):
        wire, ttl, unread = _read_odd_value(raw)
    try:
        text = read_text(bytes(wire.data))
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise InvalidRecord("The answer holds a value that cannot be read.", detail=str(error)) from error
    if text is None and _has_long_number(raw):
        raise InvalidRecord("The answer holds a number with more digits than JSON readers accept.")
    # The permissions that the API omits because nearly every value has them: public read, admin read and write.
    return HandleValue(
        index=wire.index,
        type=wire.type,
        text=text,
        ttl=ttl,
        timestamp=None if wire.timestamp is None else str(wire.timestamp),
        permissions=wire.permissions or "1110",
        references=tuple((item.handle, item.index) for item in wire.references or ()),
        raw=raw,
        folded_type=fold(wire.type),
        unread=unread,
    )


def _read_odd_value(raw: bytes) -> tuple[_Wire, Ttl, tuple[str, ...]]:
    """A value with members that cannot be read, its TTL, and their names. Raises InvalidRecord for any other JSON."""
    try:
        members: dict[str, msgspec.Raw] = _members.decode(raw)
        needed = _needed.decode(raw)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise InvalidRecord("The answer holds a value that cannot be read.", detail=str(error)) from error
    wire, ttl, unread = _Wire(needed.index, needed.type, needed.data), DEFAULT_TTL, []
    for name, decoder in _OPTIONAL.items():
        try:
            if name in members:
                setattr(wire, name, decoder.decode(members[name]))
            if name == "ttl" and wire.ttl is not None:
                ttl = read_ttl(wire.ttl)
        except (msgspec.DecodeError, RecursionError, ValueError):
            unread.append(name)
    return wire, ttl, tuple(unread)


def read_ttl(member: int | float | str) -> Ttl:
    """Read the `ttl` member: a number of seconds, or an ISO 8601 time. Raises ValueError for anything else."""
    if isinstance(member, str) and member.isdecimal():
        # Of a TTL as text: more mean "for ever" too.
        member = int(member[:20])
    if isinstance(member, (int, float)):
        if member != member:  # NaN
            raise ValueError("the ttl is not a number")
        # The limit comes first: a JSON number can have too many digits for a float.
        return Ttl(float(max(-_MAX_SECONDS, min(member, _MAX_SECONDS))))
    # Python has no leap seconds (ISO 8601-1:2019, section 4.3.1).
    when = datetime.fromisoformat(member.replace(":60", ":59"))
    try:
        # A time without a zone is UTC, like all times of the handle system.
        return Ttl((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp(), absolute=True)
    except OverflowError as error:
        raise ValueError(str(error)) from error


def _has_long_number(raw: bytes) -> bool:
    if _TOO_MANY_DIGITS not in raw.translate(_DIGITS):
        return False
    return _TOO_MANY_DIGITS in JSON_STRING.sub(b" ", raw).translate(_DIGITS)


def read_outline(values: bytes) -> list[tuple[str, bytes]] | None:
    """The folded type and the JSON of the data of each value in a JSON array.

    None if `read_value` has to decide whether the array can be read. That takes five times as long.
    """
    # Escapes can be halves of characters, and a number can have too many digits.
    if not values.isascii() or b"\\u" in values or len(values) >= len(_TOO_MANY_DIGITS):
        return None
    try:
        wires = _array.decode(values)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None
    outline = []
    for wire in wires:
        if isinstance(wire.ttl, str):
            return None
        # The text is ASCII: this is `fold` without a call.
        outline.append((wire.type.upper(), bytes(wire.data)))
    return outline


def escape_separators(json: bytes) -> bytes:
    """JSON with U+2028 and U+2029 as escapes, as the reference server writes them.

    RFC 8259 does not need it. In JavaScript before 2019, both end a line, so they would break JSONP.
    """
    if b"\xe2\x80" not in json:
        return json
    return json.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")


def read_text(data: bytes) -> str | None:
    """The data of a value if it is a string, else None. Raises msgspec.DecodeError."""
    if data.startswith(b'"'):
        return _string.decode(data)
    if not data.startswith(b"{"):
        return None
    try:
        text = _text.decode(data)
    except msgspec.ValidationError:
        return None  # JSON of another shape
    return text.value if text.format == "string" else None


def _read_data(data: Any) -> Data:
    if isinstance(data, dict):
        name, value = data.get("format", "string"), data.get("value")
        # A number or a list with the format "string" must not become a redirect target.
        return Data(str(name) if name != "string" or isinstance(value, str) else "unknown", value)
    return Data("string", data) if isinstance(data, str) else Data("unknown", data)


T = TypeVar("T")

#: Limits of one record: its values, and the bytes of their JSON. Reading the largest one, and writing its page, takes
#: the event loop 15 ms. Records in use are below 10 kB.
MAX_VALUES: Final = 1_000
MAX_VALUES_BYTES: Final = 262_144
#: Limits per process: the number of records, and the bytes of their JSON. The worst records, lists of networks with
#: 6 bytes of JSON and 300 bytes of memory each, take 100 MB in all. Usual records take less than 4 MB.
MAX_CACHED_RECORDS: Final = 1_024
MAX_CACHED_BYTES: Final = 2 * 1024 * 1024
_values_array: Final = msgspec.json.Decoder(list[msgspec.Raw])


@dataclass(frozen=True, slots=True)
class Record:
    """The values of one name in the server's order. That order decides which value wins; the index does not."""

    values: tuple[HandleValue, ...]
    _by_type: dict[str, tuple[HandleValue, ...]] = field(default_factory=dict, init=False, compare=False, repr=False)
    _derived: dict[Callable[[Record], Any], Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    def derive(self, compute: Callable[[Record], T]) -> T:
        """The result of `compute` for this record. It is computed once and kept with the record."""
        if compute not in self._derived:
            self._derived[compute] = compute(self)
        result: T = self._derived[compute]
        return result

    def select(self, types: Collection[str] = (), indexes: Collection[int] = ()) -> Record:
        """The values with one of these types or one of these indexes. Without types and indexes, all values."""
        if not types and not indexes:
            return self
        index_set, folded_types = frozenset(indexes), [fold(item) for item in types]
        # 200 types against 5,000 values cost one hash look-up and one `startswith` per value.
        # "." alone names no type.
        exact = frozenset(item.removesuffix(".") for item in folded_types if item != ".")
        families = tuple(item for item in folded_types if item.endswith(".") and item != ".")
        return Record(
            tuple(
                v
                for v in self.values
                if v.index in index_set or v.folded_type in exact or v.folded_type.startswith(families)
            )
        )

    def of_type(self, pattern: str) -> tuple[HandleValue, ...]:
        """The values of one type; see HandleValue.has_type.

        `pattern` is a constant of this program. The result is kept, so a client's types go to `select`.
        """
        values = self._by_type.get(pattern)
        if values is None:
            folded = pattern.upper()  # it is ASCII
            if folded.endswith("."):
                values = tuple(value for value in self.values if f"{value.folded_type}.".startswith(folded))
            else:
                values = tuple(value for value in self.values if value.folded_type == folded)
            self._by_type[pattern] = values
        return values

    def ends_at(self, fetched_at: float) -> float:
        """When the first TTL of the values ends, in seconds since the epoch. Without values, DEFAULT_TTL counts."""
        ttls = [value.ttl for value in self.values] or [DEFAULT_TTL]
        return min(ttl.seconds if ttl.absolute else fetched_at + ttl.seconds for ttl in ttls)


def read_values(values: bytes) -> Record:
    """Read a record from the JSON array of its values. Raises InvalidRecord."""
    if len(values) > MAX_VALUES_BYTES:
        raise AnswerTooLarge(f"The values of the record have {len(values)} bytes; the limit is {MAX_VALUES_BYTES}.")
    try:
        items: list[msgspec.Raw] = _values_array.decode(values)
        # Members that this program does not parse must be UTF-8 too (RFC 8259, section 8.1).
        values.isascii() or values.decode()
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise InvalidRecord("The `values` of the answer are not a JSON array.", detail=str(error)) from error
    if len(items) > MAX_VALUES:
        raise AnswerTooLarge(f"The record has {len(items)} values; the limit is {MAX_VALUES}.")
    return Record(tuple(read_value(bytes(item)) for item in items))


def write_values(record: Record) -> bytes:
    """The JSON array of a record's values. Each value keeps the bytes that the server sent."""
    return b"[" + b",".join(value.raw for value in record.values) + b"]"


class RecordCache:
    """Parsed records by their JSON. The least recently used record is evicted first."""

    def __init__(self, max_records: int, max_bytes: int) -> None:
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._records: OrderedDict[bytes, Record] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._records)

    def parse(self, values: bytes) -> Record:
        """Parse the JSON array of a record's values, or return the cached record. Raises InvalidRecord."""
        cached = self._records.get(values)
        if cached is not None:
            self._records.move_to_end(values)
            return cached
        record = read_values(values)
        self._records[values] = record
        self.bytes += len(values)
        while self.bytes > self._max_bytes or len(self._records) > self._max_records:
            evicted, _ = self._records.popitem(last=False)
            self.bytes -= len(evicted)
        return record


#: A pure function with a cache that all callers share: a service reads the same record several times in a row.
parse_record: Final = RecordCache(MAX_CACHED_RECORDS, MAX_CACHED_BYTES).parse


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
