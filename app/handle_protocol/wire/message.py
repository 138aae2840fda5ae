"""A message: envelope, header, body and credential (RFC 3652, section 2.2). A UDP packet has an envelope too."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from struct import Struct
from typing import Final

import msgspec
from msgspec.structs import replace

from handle_protocol.errors import AnswerTooLarge, MalformedMessage
from handle_protocol.wire import site_value

#: The version that this program speaks. The server answers in the version that the request suggests.
VERSION: Final = (2, 11)
#: The server sends this id in errors about requests that it could not read.
NO_REQUEST_ID: Final = 0xFFFF_FFFF

_ENVELOPE: Final = Struct(">BBBBIIII")
ENVELOPE_BYTES: Final = _ENVELOPE.size
# RFC 3652 has two bytes of flags. Servers use one, with the suggested major version in its low bits.
_TRUNCATED: Final = 0x20
#: A site serial number that the client does not know.
UNKNOWN_SERIAL: Final = 0xFFFF
_HEADER: Final = Struct(">IIIHBBII")
SIGNED: Final = b"HS_SIGNED"
_CREDENTIAL: Final = Struct(">BBH")
NO_CREDENTIAL: Final = site_value.U32.pack(0)


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
        return bool(self.flags & 0x40)

    @property
    def suggested_major(self) -> int:
        """The major version that the sender suggests for the answer."""
        return self.flags & 0x03

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
    layout = site_value.FieldReader(data[:ENVELOPE_BYTES], "envelope").numbers(_ENVELOPE)
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
    reader = site_value.FieldReader(data[ENVELOPE_BYTES:], "message")
    op_code, response_code, flags, serial, recursion, reserved, expiration, body_length = reader.numbers(_HEADER)
    header = Header(op_code, response_code, flags, serial, expiration, recursion, reserved)
    return Message(envelope, header, reader.take(body_length), reader.rest())


def signed_part(data: bytes) -> bytes:
    """The header and the body of a whole message, which its signature is about."""
    end = ENVELOPE_BYTES + _HEADER.size
    (body_length,) = site_value.U32.unpack_from(data, end - site_value.U32.size)
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
    reader = site_value.FieldReader(tail, "credential")
    length = reader.number(site_value.U32)
    if length != reader.remaining:
        raise reader.malformed(f"the length is {length}, and {reader.remaining} bytes remain")
    if not length:
        return None
    version, reserved, flags = reader.numbers(_CREDENTIAL)
    signer, counter, kind, section = reader.string(), reader.number(site_value.U32), reader.string(), reader.string()
    reader.finish()
    return Credential(section, kind, signer, counter, version, reserved, flags)


def decode_signature(section: bytes) -> Signature:
    """The section of a credential of the type HS_SIGNED. Raises MalformedMessage."""
    reader = site_value.FieldReader(section, "signature")
    signature = Signature(reader.string(), reader.string())
    reader.finish()
    return signature


MAX_PACKET_BYTES: Final = 512
_PAYLOAD_BYTES: Final = MAX_PACKET_BYTES - ENVELOPE_BYTES


def split_message(data: bytes) -> list[bytes]:
    """The packets of a whole message. One packet is the message itself."""
    if len(data) <= MAX_PACKET_BYTES:
        return [data]
    envelope, payload = decode_envelope(data), data[ENVELOPE_BYTES:]
    parts = (payload[start : start + _PAYLOAD_BYTES] for start in range(0, len(payload), _PAYLOAD_BYTES))
    return [
        encode_envelope(replace(envelope, flags=envelope.packet_flags, message_id=number)) + part
        for number, part in enumerate(parts)
    ]


class PacketBuffer:
    """The packets of one answer, in any order. It holds at most `max_bytes` of payload.

    The caller drops packets with another request id. After an error the buffer is not used again.
    """

    __slots__ = ("_length", "_max_bytes", "_parts")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._length: int | None = None
        self._parts: dict[int, bytes] = {}

    def add(self, packet: bytes) -> bytes | None:
        """Add a packet. Returns the message once it is complete. Raises MalformedMessage and AnswerTooLarge.

        A packet that arrived before is ignored, whatever it holds.
        """
        envelope, payload = decode_envelope(packet), packet[ENVELOPE_BYTES:]
        length, number = envelope.message_length, envelope.message_id
        if self._length not in (None, length):
            raise MalformedMessage(detail=f"packet: the message length was {self._length}, now it is {length}")
        if length > self._max_bytes:
            raise AnswerTooLarge.over(self._max_bytes)
        expected = min(_PAYLOAD_BYTES, length - number * _PAYLOAD_BYTES)
        if len(payload) != expected or (not payload and number):
            raise MalformedMessage(detail=f"packet {number} of a message of {length} bytes has {len(payload)} bytes")
        self._length = length
        self._parts.setdefault(number, payload)
        count = max(1, -(-length // _PAYLOAD_BYTES))
        if len(self._parts) < count:
            return None
        return encode_envelope(replace(envelope, message_id=0)) + b"".join(self._parts[part] for part in range(count))


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
    indexes = site_value.encode_count(filters.indexes) + b"".join(map(site_value.I32.pack, filters.indexes))
    types = site_value.encode_count(filters.types) + b"".join(map(site_value.encode_string, filters.types))
    return site_value.encode_string(filters.handle) + indexes + types


#: The digest of a request by its code: MD5 (0 below version 2.1), SHA-1 and SHA-256.
DIGEST_NAMES: Final = {0: "md5", 1: "md5", 2: "sha1", 3: "sha256"}
_DIGEST_BYTES: Final = {0: 16, 1: 16, 2: 20, 3: 32}


@dataclass(frozen=True, slots=True)
class Digest:
    """The digest of a request's header and body. `code` is a key of DIGEST_NAMES."""

    code: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class Values:
    """The body of an answer with values. A referral has an empty handle, and values that name other servers."""

    handle: bytes
    values: tuple[site_value.Value, ...]


@dataclass(frozen=True, slots=True)
class AnswerText:
    """The body of every other answer: a text, which differs by transport, or a nonce. None if the body is empty."""

    text: bytes | None


Body = Values | site_value.ServiceSite | AnswerText


@dataclass(frozen=True, slots=True)
class Response:
    """An answer. Nothing in it is compared with the request yet."""

    envelope: Envelope
    header: Header
    body: Body
    digest: Digest | None = None
    credential: Credential | None = None
    #: The message as it arrived. A signature is about these bytes.
    data: bytes = field(default=b"", compare=False, repr=False)

    @property
    def code(self) -> int:
        """The response code; see ResponseStatus."""
        return self.header.response_code


def decode_response(data: bytes, *, digest_requested: bool) -> Response:
    """A whole answer. `digest_requested` matters for versions below 2.1. Raises MalformedMessage."""
    message = decode_message(data)
    header, reader = message.header, site_value.FieldReader(message.body, "answer")
    # Below this version, an answer to a request with the digest flag has a digest and does not have the flag.
    is_old = message.envelope.version < (2, 1) and digest_requested
    digest = _read_digest(reader) if header.flags & OpFlag.REQUEST_DIGEST or is_old else None
    body = _read_body(reader, header)
    reader.finish()
    return Response(message.envelope, header, body, digest, decode_credential(message.tail), data)


def _read_digest(reader: site_value.FieldReader) -> Digest:
    code = reader.number(site_value.U8)
    if code not in _DIGEST_BYTES:
        raise reader.malformed(f"the digest {code} is not known")
    return Digest(code, reader.take(_DIGEST_BYTES[code]))


def _read_body(reader: site_value.FieldReader, header: Header) -> Body:
    code = header.response_code
    if code == ResponseStatus.SUCCESS and header.op_code == OpCode.SITE_INFORMATION:
        return site_value.decode_site(reader.rest())
    if code == ResponseStatus.SUCCESS or code in (ResponseStatus.SERVICE_REFERRAL, ResponseStatus.PREFIX_REFERRAL):
        return Values(reader.string(), site_value.read_value_list(reader))
    return AnswerText(reader.string() if reader.remaining else None)


_VALUE: Final = Struct(">iIBiB")


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
            site_value.I32.pack_into(data, offset, change(ttl))
        return bytes(data)


def decode_filters(body: bytes) -> Filters:
    """The body of a request. Raises MalformedMessage."""
    reader = site_value.FieldReader(body, "request")
    handle = reader.string()
    # Filters of one request.
    indexes = tuple(reader.number(site_value.I32) for _ in range(reader.count(site_value.I32.size, 1_000)))
    types = tuple(reader.string() for _ in range(reader.count(site_value.COUNT_BYTES, 1_000)))
    reader.finish()
    return Filters(handle, indexes, types)


def encode_message(message: Message) -> bytes:
    """The bytes of a message. Its length is written into the envelope."""
    payload = encode_header(message.header, message.body) + message.body + message.tail
    return encode_envelope(message.envelope, len(payload)) + payload


def encode_values(values: Iterable[site_value.Value]) -> EncodedValues:
    """A list of values."""
    pieces, ttls, offset = [b""], list[tuple[int, int]](), site_value.COUNT_BYTES
    for value in values:
        pieces.append(encode_value(value))
        if value.ttl_type == site_value.TtlType.RELATIVE and value.ttl > 0:
            # Where the TTL of a value is: after its index, timestamp and TTL type.
            ttls.append((offset + 9, value.ttl))
        offset += len(pieces[-1])
    count = len(pieces) - 1
    pieces[0] = site_value.U32.pack(count)
    return EncodedValues(count, b"".join(pieces), tuple(ttls))


def encode_value(value: site_value.Value) -> bytes:
    """One value of a list."""
    fixed = _VALUE.pack(value.index, value.timestamp, value.ttl_type, value.ttl, value.permissions)
    return (
        fixed
        + site_value.encode_string(value.type)
        + site_value.encode_string(value.data)
        + encode_references(value.references)
    )


def encode_references(references: tuple[site_value.ValueReference, ...]) -> bytes:
    """A list of references."""
    pieces = [site_value.encode_count(references)]
    for reference in references:
        pieces += (site_value.U32.pack(len(reference.handle)), reference.handle, site_value.I32.pack(reference.index))
    return b"".join(pieces)
