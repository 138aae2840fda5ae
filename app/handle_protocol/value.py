"""One handle value in the JSON of the handle API (Handle.Net technical manual, chapter 14).

A value keeps the JSON it was read from. Members that this program does not know pass through unchanged, and so do those
that it cannot read: the value names them, and their usual values count.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import msgspec

from doi_names.name import fold
from handle_protocol.errors import AnswerTooLarge, InvalidRecord

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

#: Values of one record, whose JSON has at most 256 KiB. Reading the largest one, and writing its page, takes the event
#: loop 15 ms. Records in use are below 10 kB.
MAX_VALUES: Final = 1_000
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
    if len(values) > 262_144:
        raise AnswerTooLarge(f"The values of the record have {len(values)} bytes; the limit is 262144.")
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


#: A pure function with a cache that all callers share: a service reads the same record several times in a row. Limits
#: per process: the number of records, and the bytes of their JSON. The worst records, lists of networks with 6
#: bytes of JSON and 300 bytes of memory each, take 100 MB in all. Usual records take less than 4 MB.
parse_record: Final = RecordCache(1_024, 2 * 1024 * 1024).parse
