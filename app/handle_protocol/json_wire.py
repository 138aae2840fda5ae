"""Handle values in the JSON of the handle API as values of the native protocol: `json_values` the other way round."""

from __future__ import annotations

import struct
from base64 import b64decode
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Final

import msgspec

from handle_protocol.errors import InvalidRecord
from handle_protocol.json_sites import read_key, read_site
from handle_protocol.json_values import LEGACY_ADMIN_BYTES
from handle_protocol.value import HandleValue
from handle_protocol.wire.encoding import encode_references
from handle_protocol.wire.fields import I32, U16, encode_string
from handle_protocol.wire.site_value import encode_site
from handle_protocol.wire.value import Permission, TtlType, Value, ValueReference

_MAX_I32: Final = (1 << 31) - 1
_U32: Final = 1 << 32
_PERMISSIONS: Final = 0b1111


class _Data(msgspec.Struct):
    format: str
    value: msgspec.Raw


class _Content(msgspec.Struct):
    data: _Data


class _Reference(msgspec.Struct):
    handle: str
    index: int


class _Admin(_Reference, rename="camel"):
    permissions: str
    legacy_byte_length: bool = False


_content: Final = msgspec.json.Decoder(_Content)
_text: Final = msgspec.json.Decoder(str)
_admin: Final = msgspec.json.Decoder(_Admin)
_list: Final = msgspec.json.Decoder(list[_Reference])
_key: Final = msgspec.json.Decoder(dict[str, str])


def to_wire(values: Iterable[HandleValue]) -> tuple[Value, ...]:
    """Those of the values that the public may read, in their order. Raises InvalidRecord.

    A value that the native protocol cannot carry fails them all: without it, the record would be another one.
    """
    return tuple(
        wire_value for wire_value in map(to_wire_value, values) if wire_value.permissions & Permission.PUBLIC_READ
    )


def to_wire_value(value: HandleValue) -> Value:
    """A value. Raises InvalidRecord."""
    try:
        return _to_value(value)
    except (msgspec.DecodeError, RecursionError, struct.error, ValueError, KeyError) as error:
        raise InvalidRecord(
            "The record has a value that the native protocol cannot carry.", detail=str(error)[:200]
        ) from error


def _to_value(value: HandleValue) -> Value:
    I32.pack(value.index)
    return Value(
        value.index,
        value.type.encode(),
        value.text.encode() if value.text is not None else _to_data(value),
        ttl=min(int(value.ttl.seconds), _MAX_I32),
        ttl_type=TtlType.ABSOLUTE if value.ttl.absolute else TtlType.RELATIVE,
        permissions=int(value.permissions, 2) & _PERMISSIONS,
        timestamp=_to_epoch(value.timestamp),
        references=tuple(ValueReference(handle.encode(), index) for handle, index in value.references),
    )


def _to_epoch(text: str | None) -> int:
    """The seconds of a timestamp, 0 without one that can be read."""
    try:
        when = datetime.fromisoformat(text or "")
    except ValueError:
        return 0
    return int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()) % _U32


def _to_data(value: HandleValue) -> bytes:
    # Of a format that is not known, nothing is parsed: 1 MiB of `[[],...]` takes 140 ms.
    data = _content.decode(value.raw).data
    return encode_site(read_site(value.raw)) if data.format == "site" else _WRITERS[data.format](bytes(data.value))


def _to_admin(data: bytes) -> bytes:
    admin = _admin.decode(data)
    rest = bytes(LEGACY_ADMIN_BYTES * admin.legacy_byte_length)
    return U16.pack(int(admin.permissions, 2)) + encode_string(admin.handle.encode()) + I32.pack(admin.index) + rest


def _to_list(data: bytes) -> bytes:
    return encode_references(
        tuple(ValueReference(reference.handle.encode(), reference.index) for reference in _list.decode(data))
    )


#: How the data of a format becomes bytes.
_WRITERS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "base64": lambda data: b64decode(_text.decode(data), validate=True),
    "hex": lambda data: bytes.fromhex(_text.decode(data)),
    "admin": _to_admin,
    "vlist": _to_list,
    "key": lambda data: read_key(_key.decode(data)),
}
