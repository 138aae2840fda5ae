"""A request for the values of a handle, or for the site of a server (RFC 3652, section 3.2.1)."""

from __future__ import annotations

from dataclasses import dataclass

from handle_protocol.wire.fields import I32, encode_count, encode_string
from handle_protocol.wire.message import (
    NO_CREDENTIAL,
    UNKNOWN_SERIAL,
    Envelope,
    Header,
    OpCode,
    OpFlag,
    encode_envelope,
    encode_header,
)


@dataclass(frozen=True, slots=True)
class Filters:
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
    flags: int = OpFlag.PUBLIC_ONLY
    op_code: int = OpCode.RESOLUTION
    site_serial: int = UNKNOWN_SERIAL


def encode_query(query: Query) -> bytes:
    """The bytes of a request, which does not have a credential."""
    content = encode_digested(query)
    payload = content + NO_CREDENTIAL
    return encode_envelope(Envelope(query.request_id), len(payload)) + payload


def encode_digested(query: Query) -> bytes:
    """The header and the body of a request. An answer repeats their digest."""
    header = Header(query.op_code, 0, query.flags, query.site_serial, query.expiration)
    # A request for the site of a server has no body.
    body = b"" if query.op_code == OpCode.SITE_INFORMATION else encode_filters(query.filters)
    return encode_header(header, body) + body


def encode_filters(filters: Filters) -> bytes:
    """The body of a request."""
    indexes = encode_count(filters.indexes) + b"".join(map(I32.pack, filters.indexes))
    types = encode_count(filters.types) + b"".join(map(encode_string, filters.types))
    return encode_string(filters.handle) + indexes + types
