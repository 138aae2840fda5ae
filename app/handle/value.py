"""One handle value, as the handle API's JSON carries it (Handle.Net technical manual, chapter 14).

A value keeps the exact JSON it was read from, so that members nobody here knows pass through untouched.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from app.doi.name import fold
from app.errors import InvalidAnswer
from app.handle.ttl import DEFAULT_TTL, Ttl, read_ttl

#: The permissions that the API leaves out because nearly every value has them: public read, admin read and write.
USUAL_PERMISSIONS: Final = "1110"


class _Wire(msgspec.Struct, gc=False):
    """The members we read; all others stay in the raw JSON."""

    index: int
    type: str
    data: Any = None
    ttl: int | float | str | None = None
    timestamp: str | int | None = None
    permissions: str | None = None
    references: list[dict[str, Any]] | None = None


_decoder: Final = msgspec.json.Decoder(_Wire)


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
    data: Data
    ttl: Ttl
    timestamp: str | None
    permissions: str
    references: tuple[tuple[str, int], ...]
    raw: bytes
    #: The type with its ASCII letters in upper case, by which types are compared.
    folded_type: str

    @property
    def text(self) -> str | None:
        """The data where they are a string, else None."""
        return self.data.value if self.data.format == "string" else None

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
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise InvalidAnswer("The upstream's answer holds a value that cannot be read.", detail=str(error)) from error
    return HandleValue(
        index=wire.index,
        type=wire.type,
        data=_read_data(wire.data),
        ttl=DEFAULT_TTL if wire.ttl is None else read_ttl(wire.ttl),
        timestamp=None if wire.timestamp is None else str(wire.timestamp),
        permissions=wire.permissions or USUAL_PERMISSIONS,
        references=tuple(_read_reference(item) for item in wire.references or ()),
        raw=raw,
        folded_type=fold(wire.type),
    )


def _read_data(data: Any) -> Data:
    if isinstance(data, dict):
        given, value = data.get("format", "string"), data.get("value")
        # A string that is no string (a number, a list) must not be taken for a target later.
        return Data(str(given) if given != "string" or isinstance(value, str) else "unknown", value)
    return Data("string", data) if isinstance(data, str) else Data("unknown", data)


def _read_reference(item: dict[str, Any]) -> tuple[str, int]:
    handle, index = item.get("handle"), item.get("index")
    if not isinstance(handle, str) or not isinstance(index, int):
        raise InvalidAnswer("The upstream's answer holds a reference without a handle and an index.")
    return handle, index
