"""One handle value, as the handle API's JSON carries it (Handle.Net technical manual, chapter 14).

A value keeps the exact JSON it was read from, so that members nobody here knows pass through untouched.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from app.doi.name import fold
from app.errors import InvalidAnswer
from app.handle.ttl import DEFAULT_TTL, Ttl, read_ttl

#: The permissions that the API leaves out because nearly every value has them: public read, admin read and write.
USUAL_PERMISSIONS: Final = "1110"


#: A JSON string (RFC 8259, section 7), which never fails to match: a search takes linear time.
JSON_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
#: Digits as 0 and everything else as a blank.
_DIGITS: Final = bytes(0x30 if 0x30 <= byte <= 0x39 else 0x20 for byte in range(256))
#: JSON readers refuse a number of more digits: Python's takes 4,300.
_TOO_MANY_DIGITS: Final = b"0" * 4301


class _Wire(msgspec.Struct, gc=False):
    """The members we read; all others stay in the raw JSON."""

    index: int
    type: str
    data: msgspec.Raw = msgspec.Raw(b"null")
    ttl: int | float | str | None = None
    timestamp: str | int | None = None
    permissions: str | None = None
    references: list[_Reference] | None = None


class _Reference(msgspec.Struct, gc=False):
    handle: str
    index: int


class _Text(msgspec.Struct, gc=False):
    """Data that are a string."""

    value: str
    format: str = "string"


_decoder: Final = msgspec.json.Decoder(_Wire)
_text: Final = msgspec.json.Decoder(_Text)
_string: Final = msgspec.json.Decoder(str)


class Data(msgspec.Struct, frozen=True, gc=False):
    """The data of a value: `format` names the shape of `value`.

    string: str · base64 and hex: the encoded text · admin: {handle, index, permissions} · vlist: a list of
    {handle, index} · site and key: nested objects. Old servers send a bare string, which is read as "string".
    """

    format: str
    value: Any


class HandleValue(msgspec.Struct, frozen=True, gc=False):
    """One typed value of a record; `raw` is the JSON it came from, without insignificant white space."""

    index: int
    type: str
    #: The data where they are a string, else None.
    text: str | None
    ttl: Ttl
    timestamp: str | None
    permissions: str
    references: tuple[tuple[str, int], ...]
    raw: bytes
    #: The type with its ASCII letters in upper case, by which types are compared.
    folded_type: str

    @property
    def data(self) -> Data:
        """The data, parsed again by each call: only pages look at them, and a mebibyte of `[[],…]` takes 140 ms."""
        if self.text is not None:
            return Data("string", self.text)
        try:
            return _read_data(msgspec.json.decode(_decoder.decode(self.raw).data))
        except (msgspec.DecodeError, RecursionError, ValueError):
            # Valid JSON that this program cannot hold, such as the number 1e400.
            return Data("unknown", None)

    def has_type(self, wanted: str) -> bool:
        """Whether the type equals `wanted`, ASCII letters of either case; "X." also takes "X" and every "X.y"."""
        return matches_type(self.folded_type, fold(wanted))


def matches_type(folded: str, wanted: str) -> bool:
    """Whether a type is the wanted one, or with a dot at the end one of its subtypes; both folded."""
    if wanted.endswith("."):
        return folded == wanted[:-1] or folded.startswith(wanted)
    return folded == wanted


def read_value(raw: bytes) -> HandleValue:
    """Read one value from its JSON object. Raises InvalidAnswer that says which member is wrong."""
    try:
        wire = _decoder.decode(raw)
        text = _read_text(bytes(wire.data))
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise InvalidAnswer("The upstream's answer holds a value that cannot be read.", detail=str(error)) from error
    if text is None and _has_long_number(raw):
        raise InvalidAnswer("The upstream's answer holds a number that JSON readers do not take.")
    return HandleValue(
        index=wire.index,
        type=wire.type,
        text=text,
        ttl=DEFAULT_TTL if wire.ttl is None else read_ttl(wire.ttl),
        timestamp=None if wire.timestamp is None else str(wire.timestamp),
        permissions=wire.permissions or USUAL_PERMISSIONS,
        references=tuple((item.handle, item.index) for item in wire.references or ()),
        raw=raw,
        folded_type=fold(wire.type),
    )


def _has_long_number(raw: bytes) -> bool:
    if _TOO_MANY_DIGITS not in raw.translate(_DIGITS):
        return False
    return _TOO_MANY_DIGITS in JSON_STRING.sub(b" ", raw).translate(_DIGITS)


def _read_text(data: bytes) -> str | None:
    if data.startswith(b'"'):
        return _string.decode(data)
    if not data.startswith(b"{"):
        return None
    try:
        found = _text.decode(data)
    except msgspec.ValidationError:
        return None  # JSON of another shape
    return found.value if found.format == "string" else None


def _read_data(data: Any) -> Data:
    if isinstance(data, dict):
        given, value = data.get("format", "string"), data.get("value")
        # A string that is no string (a number, a list) must not be taken for a target later.
        return Data(str(given) if given != "string" or isinstance(value, str) else "unknown", value)
    return Data("string", data) if isinstance(data, str) else Data("unknown", data)
