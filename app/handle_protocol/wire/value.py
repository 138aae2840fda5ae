"""Handle values and references to them (RFC 3651, section 3.1)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag
from struct import Struct
from typing import Final

import msgspec

from handle_protocol.errors import AnswerTooLarge
from handle_protocol.record import MAX_VALUES
from handle_protocol.wire.fields import COUNT_BYTES, I32, FieldReader

# RFC 3651 has a timestamp of 8 bytes in milliseconds. Its erratum and the servers have seconds in 4 bytes.
_FIXED: Final = Struct(">iIBiB")
#: A value with an empty type, empty data and no references.
SMALLEST_VALUE_BYTES: Final = _FIXED.size + 3 * COUNT_BYTES
_SMALLEST_REFERENCE_BYTES: Final = COUNT_BYTES + I32.size
#: References of one message that are read. Records in use have a few. 120,000 in 1 MiB would take 0.4 s.
_MAX_REFERENCES: Final = 1_000


class Permission(IntFlag):
    """The permissions of a value (RFC 3651, section 3.1), in the order of the REST API's four digits."""

    ADMIN_READ = 8
    ADMIN_WRITE = 4
    PUBLIC_READ = 2
    PUBLIC_WRITE = 1


class TtlType(IntEnum):
    """What the TTL of a value counts (RFC 3651, section 3.1)."""

    RELATIVE = 0
    ABSOLUTE = 1


class ValueReference(msgspec.Struct, frozen=True, gc=False):
    """A handle, and the index of one of its values. A record can have thousands."""

    handle: bytes
    index: int


@dataclass(frozen=True, slots=True)
class Value:
    """One handle value. Type and data are bytes, because they are not always UTF-8."""

    index: int
    type: bytes
    data: bytes
    ttl: int = 86_400
    ttl_type: int = TtlType.RELATIVE
    permissions: int = Permission.ADMIN_READ | Permission.ADMIN_WRITE | Permission.PUBLIC_READ
    #: Seconds since the epoch.
    timestamp: int = 0
    references: tuple[ValueReference, ...] = ()


def read_value_list(reader: FieldReader) -> tuple[Value, ...]:
    """A list of values in the server's order. References beyond the first thousand are ignored.

    Raises AnswerTooLarge, and MalformedMessage.
    """
    values: list[Value] = []
    room, count = _MAX_REFERENCES, reader.count(SMALLEST_VALUE_BYTES)
    if count > MAX_VALUES:
        raise AnswerTooLarge(f"The record has {count} values; the limit is {MAX_VALUES}.")
    for _ in range(count):
        index, timestamp, ttl_type, ttl, permissions = reader.numbers(_FIXED)
        value_type, data, announced = reader.string(), reader.string(), reader.count(_SMALLEST_REFERENCE_BYTES)
        references = _read_references(reader, min(announced, room))
        reader.skip(announced - len(references), I32.size)
        room -= len(references)
        values.append(Value(index, value_type, data, ttl, ttl_type, permissions, timestamp, references))
    return tuple(values)


def decode_references(data: bytes) -> tuple[ValueReference, ...]:
    """The data of an HS_VLIST value: a list of references (RFC 3651, section 3.2.7). Raises MalformedMessage."""
    reader = FieldReader(data, "HS_VLIST")
    references = _read_references(reader, reader.count(_SMALLEST_REFERENCE_BYTES, _MAX_REFERENCES))
    reader.finish()
    return references


def _read_references(reader: FieldReader, count: int) -> tuple[ValueReference, ...]:
    return tuple(ValueReference(reader.string(), reader.number(I32)) for _ in range(count))
