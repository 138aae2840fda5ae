"""The half of the codec that only a handle server needs: requests are decoded, and answers encoded.

What the client accepts is encoded again to the same bytes.
"""

from __future__ import annotations

from dataclasses import replace
from struct import Struct
from typing import Final

from handle_protocol.wire.message import (
    NO_CREDENTIAL,
    AnswerText,
    Credential,
    Filters,
    Message,
    OpCode,
    Query,
    Response,
    Signature,
    Values,
    decode_filters,
    decode_message,
    encode_header,
    encode_message,
    encode_values,
)
from handle_protocol.wire.site_value import U8, U32, ServiceSite, encode_site, encode_string

_CREDENTIAL: Final = Struct(">BBH")


def decode_query(data: bytes) -> Query:
    """A request, without its versions and its credential. Raises MalformedMessage."""
    message = decode_message(data)
    header = message.header
    has_filters = header.op_code != OpCode.SITE_INFORMATION or message.body
    return Query(
        decode_filters(message.body) if has_filters else Filters(b""),
        message.envelope.request_id,
        header.expiration,
        header.flags,
        header.op_code,
        header.site_serial,
    )


def encode_response(response: Response) -> bytes:
    """The bytes of an answer."""
    credential = encode_credential(response.credential)
    return encode_message(Message(response.envelope, response.header, _encode_body(response), credential))


def as_received(response: Response) -> Response:
    """The answer with the bytes in which it arrives."""
    return replace(response, data=encode_response(response))


def encode_content(response: Response) -> bytes:
    """The header and the body of an answer: the part that is signed."""
    body = _encode_body(response)
    return encode_header(response.header, body) + body


def _encode_body(response: Response) -> bytes:
    digest = response.digest
    start = b"" if digest is None else U8.pack(digest.code) + digest.digest
    match response.body:
        case Values(handle, values):
            return start + encode_string(handle) + encode_values(values).data
        case ServiceSite() as site:
            return start + encode_site(site)
        case AnswerText(text):
            return start + (b"" if text is None else encode_string(text))


def encode_credential(credential: Credential | None) -> bytes:
    """The bytes that follow the body."""
    if credential is None:
        return NO_CREDENTIAL
    return encode_string(
        _CREDENTIAL.pack(credential.version, credential.reserved, credential.flags)
        + encode_string(credential.signer)
        + U32.pack(credential.counter)
        + encode_string(credential.type)
        + encode_string(credential.section)
    )


def encode_signature(signature: Signature) -> bytes:
    """The section of a credential of the type HS_SIGNED."""
    return encode_string(signature.digest_name) + encode_string(signature.signature)
