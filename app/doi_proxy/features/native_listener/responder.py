"""Answers requests of the native protocol as the HTTP API answers its own: the same cache, limits and truth.

Trouble is never "handle not found". Records are not changed here, so every other operation is refused.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv6Address
from typing import Final

import msgspec

from doi_names.errors import NotUTF8
from doi_names.name import HandleName, without_home
from doi_proxy import errors
from doi_proxy.rationing import FORGEABLE
from doi_proxy.resolver.destination import Destinations
from doi_proxy.resolver.resolution import UNCONFIRMED, Conditions, Origin, Resolution
from doi_proxy.resolver.resolver import MAX_BYTES_NOW
from doi_proxy.web.freshness import STALE_MAX_AGE
from doi_proxy.web.request_path import client_of, read_address
from doi_proxy.web.stage import REQUEST_SECONDS, PreparedRequest, Stages
from handle_protocol.errors import MalformedMessage
from handle_protocol.json_sites import to_wire
from handle_protocol.referral import ResponseCode
from handle_protocol.value import Record
from handle_protocol.wire import site_value
from handle_protocol.wire.message import (
    DIGEST_NAMES,
    ENVELOPE_BYTES,
    NO_CREDENTIAL,
    NO_REQUEST_ID,
    VERSION,
    EncodedValues,
    Envelope,
    Filters,
    Header,
    Message,
    OpCode,
    OpFlag,
    ResponseStatus,
    decode_filters,
    decode_message,
    encode_message,
    encode_values,
    signed_part,
)
from handle_protocol.wire.site_value import U8, Value, encode_string

#: Bytes of the longest request. A name has at most 8 KiB, and a request at most a thousand types.
MAX_REQUEST_BYTES: Final = 65_536
#: The site has one state.
_SERIAL: Final = 1
#: The flags of a request that its answer repeats.
_REPEATED: Final = OpFlag.PUBLIC_ONLY | OpFlag.REQUEST_DIGEST


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
        # The digest of a request since a version: SHA-256, SHA-1, and MD5 without the flag.
        digest = next(code for since, code in (((2, 7), 3), ((2, 1), 2), ((0, 0), 0)) if version >= since)
        hashed = hashlib.new(DIGEST_NAMES[digest], request.digested, usedforsecurity=False).digest()
        content = U8.pack(digest) + hashed + content
        if digest == 0:  # MD5
            flags &= ~OpFlag.REQUEST_DIGEST
    # Seconds after which a client drops an answer that is still on its way, as with the reference server.
    header = Header(request.op_code, code, flags, _SERIAL, int(now) + (12 * 3600))
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


log = logging.getLogger(__name__)

#: The response code for an error, of the first class that fits.
_CODES: Final[tuple[tuple[type[errors.DoiProxyError], int], ...]] = (
    (errors.PrefixDenied, ResponseStatus.NOT_RESPONSIBLE),
    (errors.ShareSpent, ResponseStatus.SERVER_BUSY),
    (errors.TooManyRequests, ResponseStatus.SERVER_BUSY),
    (errors.ClientDenied, ResponseStatus.ACCESS_DENIED),
    (errors.UnreadableName, ResponseStatus.INVALID_HANDLE),
    (errors.DoiProxyError, ResponseStatus.ERROR),
)
#: Where the response code is in an answer: after the envelope and the operation.
_CODE: Final = slice(ENVELOPE_BYTES + 4, ENVELOPE_BYTES + 8)


@dataclass(frozen=True, slots=True)
class Peer:
    """A client, and the address and port where it reached this service.

    A sender of UDP can forge its address. Its requests are not charged to the network of that address, which would then
    get fewer answers by HTTP, but to one client for all such senders.
    """

    client: str
    host: str
    port: int
    is_forgeable: bool = False


class Responder:
    """Answers requests. `count` is called with the result of each: see feature.py."""

    def __init__(
        self,
        destinations: Destinations,
        stages: Stages,
        *,
        clock: Callable[[], float],
        count: Callable[[str], None],
    ) -> None:
        self._destinations = destinations
        self._stages = stages
        self._log = stages.log_prepared
        self._clock = clock
        self.count = count
        #: Whether clients reach this service by UDP too.
        self.has_udp = False

    def is_known(self, request: HandleRequest) -> bool:
        """Whether the answer takes no query: memory has the record."""
        try:
            return self._destinations.resolver.resolve_now(_read_name(request)) is not None
        except errors.FAILURES:
            return True

    def is_exempt(self, address: str) -> bool:
        """Whether the operator lifts the limits of requests for a client."""
        return self._stages.admission.is_exempt(address)

    async def answer(self, request: HandleRequest, peer: Peer) -> bytes:
        """The answer to a request of a client, who is admitted or refused first."""
        began = 0.0 if self._log is None else time.perf_counter()
        answer = await self._answer(request, peer)
        if self._log is not None:
            self._write_line(request, peer, answer, began)
        return answer

    def _write_line(self, request: HandleRequest, peer: Peer, answer: bytes, began: float) -> None:
        """Log a request. Its status is the response code of the protocol."""
        if self._log is not None:
            path, code = b"/" + request.filters.handle, int.from_bytes(answer[_CODE], "big")
            # The route of a native request in the access log.
            line = PreparedRequest("HDL", path, b"", code, len(answer), None, "native")
            self._log(line, peer.client, time.perf_counter() - began)

    async def _answer(self, request: HandleRequest, peer: Peer) -> bytes:
        try:
            self._admit(peer)
            if (refusal := self._refuse(request)) is not None:
                return refusal
            if request.op_code == OpCode.SITE_INFORMATION:
                self.count("answered")
                return write_site(request, peer.host, peer.port, has_udp=self.has_udp, now=self._clock())
            name = _read_name(request)
            if not self._destinations.resolves_here(name):
                return self._write_refusal(
                    request, ResponseStatus.NOT_RESPONSIBLE, "This service does not resolve names of this prefix."
                )
            found = await self._destinations.resolver.resolve(name, self._conditions(request, peer))
            if found.failure is not None and request.has(OpFlag.AUTHORITATIVE):
                # The client would take a stale record for the word of a primary server.
                raise found.failure.without_traceback()
            return self._write(request, found, await encode_in_turns(request, found))
        except errors.FAILURES as error:
            return self._write_error(request, errors.as_failure(error))
        except asyncio.CancelledError:
            raise
        except Exception:
            return self._write_fault(request)

    def _admit(self, peer: Peer) -> None:
        """Count a request of a client. Raises ClientDenied and TooManyRequests."""
        if self._stages.count_client is not None:
            self._stages.count_client(FORGEABLE if peer.is_forgeable else peer.client, 1)
        if not self._stages.admission.admits_all:
            self._stages.admission.admit(peer.client, is_forgeable=peer.is_forgeable)

    def _refuse(self, request: HandleRequest) -> bytes | None:
        envelope = request.message.envelope
        if envelope.session_id or envelope.is_encrypted:
            return self._write_refusal(request, ResponseStatus.SESSION_TIMEOUT, "This service has no sessions.")
        if request.op_code not in (OpCode.RESOLUTION, OpCode.SITE_INFORMATION):
            return self._write_refusal(
                request, ResponseStatus.OPERATION_DENIED, "This service resolves names and does nothing else."
            )
        return None

    def _conditions(self, request: HandleRequest, peer: Peer) -> Conditions:
        return Conditions(
            request.has(OpFlag.AUTHORITATIVE),
            request.has(OpFlag.CERTIFIED),
            client=FORGEABLE if peer.is_forgeable else client_of(peer.client),
            admit_bypass=partial(self._stages.admission.charge_bypass, peer.client),
            due=time.monotonic() + REQUEST_SECONDS,
        )

    def _write(self, request: HandleRequest, found: Resolution, values: EncodedValues) -> bytes:
        data = write_record(request, found, values, self._clock())
        self.count("answered")
        return data

    def _write_refusal(self, request: HandleRequest, code: int, text: str) -> bytes:
        self.count("refused")
        return write_refusal(request, code, text, self._clock())

    def _write_error(self, request: HandleRequest, error: errors.DoiProxyError) -> bytes:
        code = next(code for kind, code in _CODES if isinstance(error, kind))
        self.count("failed" if isinstance(error, errors.CouldNotVerify) else "refused")
        return write_refusal(request, code, error.message, self._clock())

    def _write_fault(self, request: HandleRequest) -> bytes:
        log.exception("an answer of the native listener failed")
        self.count("failed")
        return write_refusal(request, ResponseStatus.ERROR, "The request failed.", self._clock())


async def encode_in_turns(request: HandleRequest, found: Resolution) -> EncodedValues:
    """The values that are requested. Many of them are converted in several turns of the event loop."""
    selected, converted = select_requested_values(request, found), list[Value]()
    if len(found.entry.answer.values) <= MAX_BYTES_NOW:
        return selected.derive(encode_record)
    # Values that one turn of the event loop converts. 1,000 take up to 15 ms.
    for start in range(0, len(selected.values), 100):
        converted += to_wire(selected.values[start : start + 100])
        await asyncio.sleep(0)
    return encode_values(converted)


def _read_name(request: HandleRequest) -> HandleName:
    """The name that a request is about. Raises InvalidName."""
    try:
        text = request.filters.handle.decode()
    except UnicodeDecodeError as error:
        raise NotUTF8("The name is not UTF-8.") from error
    return without_home(HandleName(text))
