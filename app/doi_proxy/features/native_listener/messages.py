"""The messages of the listener: what a request asks, and the bytes of its answer (RFC 3652)."""

from __future__ import annotations

import hashlib
from functools import partial
from ipaddress import IPv6Address
from typing import Final

import msgspec

from doi_proxy.resolver.resolution import UNCONFIRMED, Origin, Resolution
from doi_proxy.web.client_network import read_address
from doi_proxy.web.freshness import STALE_MAX_AGE
from handle_protocol.answer import ResponseCode
from handle_protocol.errors import MalformedMessage
from handle_protocol.json_wire import to_wire
from handle_protocol.record import Record
from handle_protocol.wire import site_value
from handle_protocol.wire.encoding import EncodedValues, decode_filters, encode_message, encode_values
from handle_protocol.wire.fields import U8, encode_string
from handle_protocol.wire.message import (
    NO_CREDENTIAL,
    NO_REQUEST_ID,
    VERSION,
    Envelope,
    Header,
    Message,
    OpCode,
    OpFlag,
    ResponseStatus,
    decode_message,
    signed_part,
)
from handle_protocol.wire.query import Filters
from handle_protocol.wire.response import DIGEST_NAMES

#: Bytes of the longest request. A name has at most 8 KiB, and a request at most a thousand types.
MAX_REQUEST_BYTES: Final = 65_536
#: The site has one state.
_SERIAL: Final = 1
#: Seconds after which a client drops an answer that is still on its way, as with the reference server.
_LIFETIME: Final = 12 * 3600
#: The flags of a request that its answer repeats.
_REPEATED: Final = OpFlag.PUBLIC_ONLY | OpFlag.REQUEST_DIGEST
#: The digest of a request since a version: SHA-256, SHA-1, and MD5 without the flag.
_DIGESTS: Final = (((2, 7), 3), ((2, 1), 2), ((0, 0), 0))
_MD5: Final = 0


class HandleRequest(msgspec.Struct, frozen=True, gc=False):
    """A request. `digested` are the bytes of which an answer repeats the digest."""

    message: Message
    filters: Filters
    digested: bytes

    @property
    def op_code(self) -> int:
        """What the client requests; see OpCode."""
        return self.message.header.op_code

    def has(self, flag: int) -> bool:
        """Whether the request has a flag."""
        return bool(self.message.header.flags & flag)


def read_request(data: bytes) -> HandleRequest:
    """A whole request. Raises MalformedMessage."""
    message = decode_message(data)
    if message.header.response_code:
        raise MalformedMessage(detail="the message is an answer")
    filters = decode_filters(message.body) if message.header.op_code == OpCode.RESOLUTION else Filters(b"")
    return HandleRequest(message, filters, signed_part(data))


def write_unreadable() -> bytes:
    """The answer to bytes that are not a request."""
    header = Header(0, ResponseStatus.PROTOCOL_ERROR)
    text = encode_string(b"The message is not a request of the Handle protocol.")
    return encode_message(Message(Envelope(NO_REQUEST_ID), header, text, NO_CREDENTIAL))


def encode_answer(request: HandleRequest, code: int, content: bytes, now: float) -> bytes:
    """The bytes of an answer."""
    asked = request.message.envelope
    version = min((asked.suggested_major, asked.suggested_minor), VERSION)
    flags = request.message.header.flags & _REPEATED | OpFlag.RECURSIVE
    if request.has(OpFlag.REQUEST_DIGEST):
        digest = next(code for since, code in _DIGESTS if version >= since)
        hashed = hashlib.new(DIGEST_NAMES[digest], request.digested, usedforsecurity=False).digest()
        content = U8.pack(digest) + hashed + content
        if digest == _MD5:
            flags &= ~OpFlag.REQUEST_DIGEST
    header = Header(request.op_code, code, flags, _SERIAL, int(now) + _LIFETIME)
    envelope = Envelope(asked.request_id, major=version[0], minor=version[1])
    return encode_message(Message(envelope, header, content, NO_CREDENTIAL))


def write_refusal(request: HandleRequest, code: int, text: str, now: float) -> bytes:
    """The answer with a code that is not about the values of a name."""
    return encode_answer(request, code, encode_string(text.encode()), now)


def select_requested_values(request: HandleRequest, found: Resolution) -> Record:
    """The values that are requested."""
    filters = request.filters
    return found.record.select([value_type.decode("utf-8", "replace") for value_type in filters.types], filters.indexes)


def encode_record(record: Record) -> EncodedValues:
    """The values of a record as bytes. Raises InvalidRecord."""
    return encode_values(to_wire(record.values))


def write_record(request: HandleRequest, found: Resolution, values: EncodedValues, now: float) -> bytes:
    """The answer from a resolution, with those of its values that are requested."""
    if (stone := found.tombstone) is not None:
        return write_refusal(request, ResponseStatus.HANDLE_NOT_FOUND, f"{stone.reason} ({stone.date})", now)
    if found.entry.answer.code is ResponseCode.HANDLE_NOT_FOUND:
        return encode_answer(request, ResponseStatus.HANDLE_NOT_FOUND, encode_string(b""), now)
    if not values.count:
        return encode_answer(request, ResponseStatus.VALUES_NOT_FOUND, encode_string(b""), now)
    content = encode_string(request.filters.handle) + _count_down(values, found, now)
    return encode_answer(request, ResponseStatus.SUCCESS, content, now)


def _count_down(values: EncodedValues, found: Resolution, now: float) -> bytes:
    """The values with the rest of each TTL: a client counts it from receipt. Local records have no age."""
    if found.origin in UNCONFIRMED:
        return values.with_ttls(partial(min, int(STALE_MAX_AGE)))
    age = 0 if found.origin is Origin.LOCAL else int(found.entry.age(now))
    return values.with_ttls(lambda ttl: max(ttl - age, 0)) if age else values.data


def write_site(request: HandleRequest, host: str, port: int, *, has_udp: bool, now: float) -> bytes:
    """The site information: one server of a primary site, without a key, where the client reached it.

    A client queries primary sites alone about what must be authoritative, and the listener fetches it from one. UDP is
    last: few of its answers are sent, and a client waits in vain for the rest.
    """
    protocols = (
        site_value.TransportProtocol.TCP,
        site_value.TransportProtocol.HTTP,
        *[site_value.TransportProtocol.UDP] * has_udp,
    )
    ports = tuple(site_value.Interface(site_value.Purpose.QUERY, protocol, port) for protocol in protocols)
    address = read_address(host) or IPv6Address(0)
    site = site_value.ServiceSite(_SERIAL, (site_value.Server(1, site_value.pack_address(address), b"", ports),))
    return encode_answer(request, ResponseStatus.SUCCESS, site_value.encode_site(site), now)
