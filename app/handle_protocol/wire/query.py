"""A request for the values of a handle, or for the site of a server (RFC 3652, section 3.2.1)."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from handle_protocol.wire import message
from handle_protocol.wire.fields import I32, encode_count, encode_string


class Filters(msgspec.Struct, frozen=True, gc=False):
    """What is requested: values with one of these indexes or of one of these types. All values if both are empty."""

    handle: bytes
    indexes: tuple[int, ...] = ()
    types: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Query:
    """A request. Its digest and its id identify the answer."""

    filters: Filters
    #: Chosen at random by the client.
    request_id: int
    #: Seconds since the epoch.
    expiration: int
    flags: int = message.OpFlag.PUBLIC_ONLY
    op_code: int = message.OpCode.RESOLUTION
    site_serial: int = message.UNKNOWN_SERIAL


def encode_query(query: Query) -> bytes:
    """The bytes of a request, which does not have a credential."""
    content = encode_digested(query)
    payload = content + message.NO_CREDENTIAL
    return message.encode_envelope(message.Envelope(query.request_id), len(payload)) + payload


def encode_digested(query: Query) -> bytes:
    """The header and the body of a request. An answer repeats their digest."""
    header = message.Header(query.op_code, 0, query.flags, query.site_serial, query.expiration)
    # A request for the site of a server has no body.
    body = b"" if query.op_code == message.OpCode.SITE_INFORMATION else encode_filters(query.filters)
    return message.encode_header(header, body) + body


def encode_filters(filters: Filters) -> bytes:
    """The body of a request."""
    indexes = encode_count(filters.indexes) + b"".join(map(I32.pack, filters.indexes))
    types = encode_count(filters.types) + b"".join(map(encode_string, filters.types))
    return encode_string(filters.handle) + indexes + types
