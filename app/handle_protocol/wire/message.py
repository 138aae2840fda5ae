"""A message: envelope, header, body and credential (RFC 3652, section 2.2). A UDP packet has an envelope too."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import Final

import msgspec

from handle_protocol.errors import MalformedMessage
from handle_protocol.wire.fields import U32, FieldReader

#: The version that this program speaks. The server answers in the version that the request suggests.
VERSION: Final = (2, 11)
#: The server sends this id in errors about requests that it could not read.
NO_REQUEST_ID: Final = 0xFFFF_FFFF

_ENVELOPE: Final = Struct(">BBBBIIII")
ENVELOPE_BYTES: Final = _ENVELOPE.size
# RFC 3652 has two bytes of flags. Servers use one, with the suggested major version in its low bits.
_TRUNCATED: Final = 0x20
_ENCRYPTED: Final = 0x40
_SUGGESTED_MAJOR: Final = 0x03
#: A site serial number that the client does not know.
UNKNOWN_SERIAL: Final = 0xFFFF
_HEADER: Final = Struct(">IIIHBBII")
SIGNED: Final = b"HS_SIGNED"
_CREDENTIAL: Final = Struct(">BBH")
NO_CREDENTIAL: Final = U32.pack(0)


class OpCode(IntEnum):
    """What a client requests (RFC 3652, section 2.2.2). All other operations administer records."""

    RESOLUTION = 1
    SITE_INFORMATION = 2


class ResponseStatus(IntEnum):
    """The response codes that this program handles by name (RFC 3652, section 2.2.2.3)."""

    SUCCESS = 1
    ERROR = 2
    SERVER_BUSY = 3
    PROTOCOL_ERROR = 4
    OPERATION_DENIED = 5
    HANDLE_NOT_FOUND = 100
    INVALID_HANDLE = 102
    VALUES_NOT_FOUND = 200
    NOT_RESPONSIBLE = 301
    SERVICE_REFERRAL = 302
    PREFIX_REFERRAL = 303
    ACCESS_DENIED = 401
    AUTHENTICATION_NEEDED = 402
    SESSION_TIMEOUT = 500


class OpFlag:
    """The flags of an operation (RFC 3652, section 2.2.2). Numbers: `&` of an IntFlag takes 1.2 us."""

    #: The client selects a server of a primary site. It is set in every answer and means nothing there.
    AUTHORITATIVE: Final = 0x8000_0000
    #: The server signs the answer.
    CERTIFIED: Final = 0x4000_0000
    #: The server resolves names of other services too. It is set in every answer and means nothing there.
    RECURSIVE: Final = 0x1000_0000
    #: The connection stays open for another request. The reference server closes it all the same.
    KEEP_ALIVE: Final = 0x0200_0000
    #: Only values that the public may read. Without it, one other value turns the answer into a challenge.
    PUBLIC_ONLY: Final = 0x0100_0000
    #: The server puts a digest of the request into the answer.
    REQUEST_DIGEST: Final = 0x0080_0000


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """The envelope of a message (RFC 3652, section 2.2.1).

    `message_length` counts all bytes after the envelope, in all packets.
    """

    request_id: int
    message_length: int = 0
    major: int = VERSION[0]
    minor: int = VERSION[1]
    #: 0x80 compressed, 0x40 encrypted, 0x20 part of several packets, 0x03 the suggested major version.
    flags: int = VERSION[0]
    suggested_minor: int = VERSION[1]
    session_id: int = 0
    #: The number of the packet, from 0.
    message_id: int = 0

    @property
    def version(self) -> tuple[int, int]:
        """The version of the message."""
        return self.major, self.minor

    @property
    def is_part(self) -> bool:
        """Whether it is the envelope of one of several packets."""
        return bool(self.flags & _TRUNCATED)

    @property
    def is_encrypted(self) -> bool:
        """Whether only the partner of a session can read the message."""
        return bool(self.flags & _ENCRYPTED)

    @property
    def suggested_major(self) -> int:
        """The major version that the sender suggests for the answer."""
        return self.flags & _SUGGESTED_MAJOR

    @property
    def packet_flags(self) -> int:
        """The flags of an envelope whose message is split into packets."""
        return self.flags | _TRUNCATED


class Header(msgspec.Struct, frozen=True, gc=False):
    """The header of a message (RFC 3652, section 2.2.2). The length of the body is not in it: the body has it."""

    op_code: int
    response_code: int = 0
    flags: int = 0
    site_serial: int = UNKNOWN_SERIAL
    #: Seconds since the epoch.
    expiration: int = 0
    recursion_count: int = 0
    reserved: int = 0


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message whose body and credential are not decoded. `tail` is everything after the body."""

    envelope: Envelope
    header: Header
    body: bytes
    tail: bytes


@dataclass(frozen=True, slots=True)
class Credential:
    """A credential (RFC 3652, section 2.2.4). The section of the type HS_SIGNED is a `Signature`."""

    section: bytes
    type: bytes = SIGNED
    signer: bytes = b""
    #: The message's number in a session; 0 without a session.
    counter: int = 0
    version: int = 0
    reserved: int = 0
    flags: int = 0


@dataclass(frozen=True, slots=True)
class Signature:
    """A signature, and the name of the digest that was signed."""

    digest_name: bytes
    signature: bytes


def decode_envelope(data: bytes) -> Envelope:
    """The envelope at the start of a message or packet. Raises MalformedMessage."""
    layout = FieldReader(data[:ENVELOPE_BYTES], "envelope").numbers(_ENVELOPE)
    major, minor, flags, suggested_minor, session_id, request_id, message_id, message_length = layout
    return Envelope(request_id, message_length, major, minor, flags, suggested_minor, session_id, message_id)


def encode_envelope(envelope: Envelope, message_length: int | None = None) -> bytes:
    """The bytes of an envelope, with another message length if one is passed."""
    return _ENVELOPE.pack(
        envelope.major,
        envelope.minor,
        envelope.flags,
        envelope.suggested_minor,
        envelope.session_id,
        envelope.request_id,
        envelope.message_id,
        envelope.message_length if message_length is None else message_length,
    )


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


def decode_credential(tail: bytes) -> Credential | None:
    """The credential that follows a body; None if its length is 0. Raises MalformedMessage."""
    reader = FieldReader(tail, "credential")
    length = reader.number(U32)
    if length != reader.remaining:
        raise reader.malformed(f"the length is {length}, and {reader.remaining} bytes remain")
    if not length:
        return None
    version, reserved, flags = reader.numbers(_CREDENTIAL)
    signer, counter, kind, section = reader.string(), reader.number(U32), reader.string(), reader.string()
    reader.finish()
    return Credential(section, kind, signer, counter, version, reserved, flags)


def decode_signature(section: bytes) -> Signature:
    """The section of a credential of the type HS_SIGNED. Raises MalformedMessage."""
    reader = FieldReader(section, "signature")
    signature = Signature(reader.string(), reader.string())
    reader.finish()
    return signature
