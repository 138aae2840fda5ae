"""A message: envelope, header, body and credential (RFC 3652)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag
from struct import Struct
from typing import Final

from app.errors import MalformedMessage
from app.features.native.wire.envelope import ENVELOPE_BYTES, Envelope, decode_envelope
from app.features.native.wire.fields import U32, FieldReader

#: A site serial number that the client does not know.
UNKNOWN_SERIAL: Final = 0xFFFF
_HEADER: Final = Struct(">IIIHBBII")


class OpCode(IntEnum):
    """What a client requests (RFC 3652). All other operations administer records."""

    RESOLUTION = 1
    SITE_INFORMATION = 2


class ResponseStatus(IntEnum):
    """The response codes that this program handles by name (RFC 3652, section 2.2.2.3)."""

    SUCCESS = 1
    HANDLE_NOT_FOUND = 100
    VALUES_NOT_FOUND = 200
    NOT_RESPONSIBLE = 301
    SERVICE_REFERRAL = 302
    PREFIX_REFERRAL = 303
    AUTHENTICATION_NEEDED = 402


class OpFlag(IntFlag):
    """The flags of an operation (RFC 3652)."""

    #: The client selects a server of a primary site. It is set in every answer and means nothing there.
    AUTHORITATIVE = 0x8000_0000
    #: The server signs the answer.
    CERTIFIED = 0x4000_0000
    #: The server resolves names of other services too. It is set in every answer and means nothing there.
    RECURSIVE = 0x1000_0000
    #: The connection stays open for another request. The reference server closes it all the same.
    KEEP_ALIVE = 0x0200_0000
    #: Only values that the public may read. Without it, one other value turns the answer into a challenge.
    PUBLIC_ONLY = 0x0100_0000
    #: The server puts a digest of the request into the answer.
    REQUEST_DIGEST = 0x0080_0000


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a message. The length of the body is not in it: the body has it."""

    op_code: int
    response_code: int = 0
    flags: int = 0
    site_serial: int = UNKNOWN_SERIAL
    #: Seconds since the epoch.
    expiration: int = 0
    recursion_count: int = 0
    reserved: int = 0


@dataclass(frozen=True, slots=True)
class Message:
    """A message whose body and credential are not decoded. `tail` is everything after the body."""

    envelope: Envelope
    header: Header
    body: bytes
    tail: bytes


def decode_message(data: bytes) -> Message:
    """A whole message. Raises MalformedMessage."""
    envelope = decode_envelope(data)
    if envelope.message_length != len(data) - ENVELOPE_BYTES:
        raise MalformedMessage(
            detail=f"envelope: the message length is {envelope.message_length}, not {len(data) - ENVELOPE_BYTES}"
        )
    reader = FieldReader(data[ENVELOPE_BYTES:], "message")
    op_code, response_code, flags, serial, recursion, reserved, expiration, body_length = reader.numbers(_HEADER)
    header = Header(op_code, response_code, flags, serial, expiration, recursion, reserved)
    return Message(envelope, header, reader.take(body_length), reader.rest())


def signed_part(data: bytes) -> bytes:
    """The header and the body of a whole message, which its signature is about."""
    end = ENVELOPE_BYTES + _HEADER.size
    (body_length,) = U32.unpack_from(data, end - U32.size)
    return data[ENVELOPE_BYTES : end + body_length]


def encode_header(header: Header, body: bytes) -> bytes:
    """The header of a message with this body."""
    return _HEADER.pack(
        header.op_code,
        header.response_code,
        header.flags,
        header.site_serial,
        header.recursion_count,
        header.reserved,
        header.expiration,
        len(body),
    )
