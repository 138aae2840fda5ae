"""Whether an answer is an answer to the query, and whether the server that was queried signed it."""

from __future__ import annotations

import hashlib
from struct import Struct
from typing import Final

from handle_protocol.errors import AnswerMismatch, MalformedMessage, SignatureInvalid
from handle_protocol.wire import message
from handle_protocol.wire.message import DIGEST_NAMES, Query, Response, Values, encode_digested

#: From this version on, a signature covers the versions and the ids of the envelope.
ENVELOPE_SIGNED_SINCE: Final = (2, 8)
_SIGNED_ENVELOPE: Final = Struct(">BBBBIII")


def check_answer(response: Response, query: Query) -> None:
    """Compare an answer with its query: ids, operation, digest and handle. Raises AnswerMismatch."""
    if response.envelope.request_id != query.request_id:
        raise AnswerMismatch(detail="the request id differs")
    if response.header.op_code != query.op_code:
        raise AnswerMismatch(detail=f"the operation is {response.header.op_code}, not {query.op_code}")
    # Only a challenge opens a session: a failure, which the caller reports.
    if response.envelope.session_id and response.code != message.ResponseStatus.AUTHENTICATION_NEEDED:
        raise AnswerMismatch(detail="the answer belongs to a session")
    if query.flags & message.OpFlag.REQUEST_DIGEST:
        _check_digest(response, encode_digested(query))
    # Handles are the same if they differ in the case of ASCII letters alone. A site is not about a handle.
    body, asked = response.body, query.filters.handle.upper()
    if response.code == message.ResponseStatus.SUCCESS and isinstance(body, Values) and body.handle.upper() != asked:
        raise AnswerMismatch("The handle server's answer is about another name.")


def _check_digest(response: Response, request: bytes) -> None:
    if response.digest is None:
        raise AnswerMismatch(detail="the digest of the request is missing")
    name = DIGEST_NAMES[response.digest.code]
    if response.digest.digest != hashlib.new(name, request, usedforsecurity=False).digest():
        raise AnswerMismatch(detail="the digest of the request differs")


def oldest_version(site_version: tuple[int, int]) -> tuple[int, int]:
    """The oldest version in which a server of a site may sign an answer; see `verify_signature`.

    An answer has the version that its query suggests, which is not signed. Servers with a DSA key sign older answers by
    SHA-1. So one that is older than the site, as its verified record says, was made so on the way.
    """
    return max(ENVELOPE_SIGNED_SINCE, min(message.VERSION, site_version))


def verify_signature(response: Response, public_key: bytes, *, oldest_version: tuple[int, int]) -> None:
    """Check that the holder of a key (the data of an HS_PUBKEY value) signed an answer. Raises SignatureInvalid.

    An answer below `oldest_version` is refused. Below ENVELOPE_SIGNED_SINCE the request id is not signed, so an old
    answer could be replayed. The signature does not name the request: `check_answer` compares its digest.
    """
    # It imports a library that only a proxy with handle servers has.
    from handle_protocol.key import verify_bytes  # noqa: PLC0415

    credential, version = response.credential, response.envelope.version
    if credential is None or credential.type != message.SIGNED:
        raise SignatureInvalid("The handle server did not sign its answer.")
    if version < oldest_version:
        raise SignatureInvalid(f"The handle server signed its answer in version {version[0]}.{version[1]}, too old.")
    if not public_key:
        raise SignatureInvalid("The site value has no public key for the handle server.")
    try:
        signature = message.decode_signature(credential.section)
        # From this version on, servers sign with SHA-256, whatever their key is.
        if version >= (2, 11) and signature.digest_name != b"SHA-256":
            raise SignatureInvalid(detail=f"the digest is {signature.digest_name[:40]!r}")
        verify_bytes(signed_bytes(response, credential), signature, public_key)
    except MalformedMessage as error:
        raise SignatureInvalid(detail=error.detail) from error


def signed_bytes(response: Response, credential: message.Credential) -> bytes:
    """The bytes that the signature of an answer covers. Raises SignatureInvalid if that is not known."""
    content, envelope = message.signed_part(response.data), response.envelope
    # Up to this version, a signature covers the header and the body alone. What lies between is not known.
    if envelope.version <= (2, 5):
        return content
    if envelope.version < ENVELOPE_SIGNED_SINCE:
        raise SignatureInvalid(detail=f"the version is {envelope.version}")
    head = _SIGNED_ENVELOPE.pack(
        envelope.major,
        envelope.minor,
        envelope.suggested_major,
        envelope.suggested_minor,
        envelope.session_id,
        envelope.request_id,
        credential.counter,
    )
    return head + content
