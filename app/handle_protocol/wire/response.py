"""An answer: its digest of the request, its body and its credential (RFC 3652, sections 3.2.2 to 3.4)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from handle_protocol.wire.fields import U8, FieldReader
from handle_protocol.wire.message import (
    Credential,
    Envelope,
    Header,
    OpCode,
    OpFlag,
    ResponseStatus,
    decode_credential,
    decode_message,
)
from handle_protocol.wire.site_value import ServiceSite, decode_site
from handle_protocol.wire.value import Value, read_value_list

#: The digest of a request by its code: MD5 (0 below version 2.1), SHA-1 and SHA-256.
DIGEST_NAMES: Final = {0: "md5", 1: "md5", 2: "sha1", 3: "sha256"}
_DIGEST_BYTES: Final = {0: 16, 1: 16, 2: 20, 3: 32}
#: Below this version, an answer to a request with the digest flag has a digest and does not have the flag.
_FLAG_OF_DIGEST_SINCE: Final = (2, 1)
_REFERRALS: Final = (ResponseStatus.SERVICE_REFERRAL, ResponseStatus.PREFIX_REFERRAL)


@dataclass(frozen=True, slots=True)
class Digest:
    """The digest of a request's header and body. `code` is a key of DIGEST_NAMES."""

    code: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class Values:
    """The body of an answer with values. A referral has an empty handle, and values that name other servers."""

    handle: bytes
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class AnswerText:
    """The body of every other answer: a text, which differs by transport, or a nonce. None if the body is empty."""

    text: bytes | None


Body = Values | ServiceSite | AnswerText


@dataclass(frozen=True, slots=True)
class SignedAnswer:
    """A request and the signed answer to it, as they were sent. A kept answer about the root has no request."""

    request: bytes
    answer: bytes


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
    #: The request, if the answer was verified.
    request: bytes = field(default=b"", compare=False, repr=False)
    #: What proves the answer: the signed answers from the root to this one. None if that is not known.
    proof: tuple[SignedAnswer, ...] | None = field(default=None, compare=False, repr=False)

    @property
    def code(self) -> int:
        """The response code; see ResponseStatus."""
        return self.header.response_code


def decode_response(data: bytes, *, digest_requested: bool) -> Response:
    """A whole answer. `digest_requested` matters for versions below 2.1. Raises MalformedMessage."""
    message = decode_message(data)
    header, reader = message.header, FieldReader(message.body, "answer")
    is_old = message.envelope.version < _FLAG_OF_DIGEST_SINCE and digest_requested
    digest = _read_digest(reader) if header.flags & OpFlag.REQUEST_DIGEST or is_old else None
    body = _read_body(reader, header)
    reader.finish()
    return Response(message.envelope, header, body, digest, decode_credential(message.tail), data)


def _read_digest(reader: FieldReader) -> Digest:
    code = reader.number(U8)
    if code not in _DIGEST_BYTES:
        raise reader.malformed(f"the digest {code} is not known")
    return Digest(code, reader.take(_DIGEST_BYTES[code]))


def _read_body(reader: FieldReader, header: Header) -> Body:
    code = header.response_code
    if code == ResponseStatus.SUCCESS and header.op_code == OpCode.SITE_INFORMATION:
        return decode_site(reader.rest())
    if code == ResponseStatus.SUCCESS or code in _REFERRALS:
        return Values(reader.string(), read_value_list(reader))
    return AnswerText(reader.string() if reader.remaining else None)
