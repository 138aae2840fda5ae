"""The half of the codec that a server needs (RFC 3652, section 3.2): requests are decoded, and answers are encoded."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from struct import Struct
from typing import Final

from handle_protocol.wire import fields
from handle_protocol.wire.message import Message, encode_envelope, encode_header
from handle_protocol.wire.query import Filters
from handle_protocol.wire.value import TtlType, Value, ValueReference

#: Filters of one request.
_MAX_FILTERS: Final = 1_000
_VALUE: Final = Struct(">iIBiB")
#: Where the TTL of a value is: after its index, timestamp and TTL type.
_TTL_OFFSET: Final = 9


@dataclass(frozen=True, slots=True)
class EncodedValues:
    """A list of values as bytes, and where in it each relative TTL is, with its seconds."""

    count: int
    data: bytes
    ttls: tuple[tuple[int, int], ...]

    def with_ttls(self, change: Callable[[int], int]) -> bytes:
        """The bytes, with another value for each relative TTL above 0."""
        data = bytearray(self.data)
        for offset, ttl in self.ttls:
            fields.I32.pack_into(data, offset, change(ttl))
        return bytes(data)


def decode_filters(body: bytes) -> Filters:
    """The body of a request. Raises MalformedMessage."""
    reader = fields.FieldReader(body, "request")
    handle = reader.string()
    indexes = tuple(reader.number(fields.I32) for _ in range(reader.count(fields.I32.size, _MAX_FILTERS)))
    types = tuple(reader.string() for _ in range(reader.count(fields.COUNT_BYTES, _MAX_FILTERS)))
    reader.finish()
    return Filters(handle, indexes, types)


def encode_message(message: Message) -> bytes:
    """The bytes of a message. Its length is written into the envelope."""
    payload = encode_header(message.header, message.body) + message.body + message.tail
    return encode_envelope(message.envelope, len(payload)) + payload


def encode_values(values: Iterable[Value]) -> EncodedValues:
    """A list of values."""
    pieces, ttls, offset = [b""], list[tuple[int, int]](), fields.COUNT_BYTES
    for value in values:
        pieces.append(encode_value(value))
        if value.ttl_type == TtlType.RELATIVE and value.ttl > 0:
            ttls.append((offset + _TTL_OFFSET, value.ttl))
        offset += len(pieces[-1])
    count = len(pieces) - 1
    pieces[0] = fields.U32.pack(count)
    return EncodedValues(count, b"".join(pieces), tuple(ttls))


def encode_value(value: Value) -> bytes:
    """One value of a list."""
    fixed = _VALUE.pack(value.index, value.timestamp, value.ttl_type, value.ttl, value.permissions)
    return (
        fixed
        + fields.encode_string(value.type)
        + fields.encode_string(value.data)
        + encode_references(value.references)
    )


def encode_references(references: tuple[ValueReference, ...]) -> bytes:
    """A list of references."""
    pieces = [fields.encode_count(references)]
    for reference in references:
        pieces += (fields.U32.pack(len(reference.handle)), reference.handle, fields.I32.pack(reference.index))
    return b"".join(pieces)
