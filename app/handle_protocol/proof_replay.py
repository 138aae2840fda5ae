"""Verifies a proof as its answers were found: from the root, over the record of the prefix and its services.

So an answer that is about another name or from another service proves nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from handle_protocol import referral
from handle_protocol.errors import AnswerMismatch, SignatureInvalid
from handle_protocol.proof import MAX_ANSWERS
from handle_protocol.signature import oldest_version, verify_signature
from handle_protocol.signature_chain import follow_chain
from handle_protocol.site import select_server
from handle_protocol.wire.message import (
    DIGEST_NAMES,
    Filters,
    Message,
    OpCode,
    Query,
    Response,
    ResponseStatus,
    SignedAnswer,
    Values,
    decode_message,
    decode_response,
    encode_query,
    signed_part,
)
from handle_protocol.wire.site_value import FieldReader

_ENDS: Final = (ResponseStatus.SUCCESS, ResponseStatus.HANDLE_NOT_FOUND, ResponseStatus.VALUES_NOT_FOUND)


@dataclass(frozen=True, slots=True)
class VerifiedLink:
    """A verified answer of a proof, and the key that signed it (the data of an HS_PUBKEY value)."""

    handle: bytes
    message: SignedAnswer
    response: Response
    key: bytes


def verify_proof(root: referral.HandleService, answers: Sequence[SignedAnswer], handle: bytes) -> list[VerifiedLink]:
    """The answers that lead from the root to that about a handle, which is the last, or to that its prefix is absent.

    The time of expiry is not compared. Raises HandleProtocolError with the sentence of what is wrong.
    """
    if len(answers) > MAX_ANSWERS:
        raise SignatureInvalid(f"The proof has over {MAX_ANSWERS} answers.")
    # Answers about the root are verified as at a start: their expiry does not count there either.
    root = follow_chain(root, [signed_answer.answer for signed_answer in answers if not signed_answer.request])
    return _Replay(root, [signed_answer for signed_answer in answers if signed_answer.request]).resolve(handle)


class _Replay:
    """Finds a handle as a Directory does, with the answers of a proof in place of queries."""

    def __init__(self, root: referral.HandleService, answers: Sequence[SignedAnswer]) -> None:
        self._root = root
        self._left = [(_read_request(signed_answer), signed_answer) for signed_answer in answers]
        # Signatures that are verified to find the keys of the answers.
        self._signatures = 100
        self._links: list[VerifiedLink] = []
        #: The services of the prefixes that were found. Several service handles can have one prefix.
        self._services: dict[bytes, referral.HandleService] = {}

    def resolve(self, handle: bytes) -> list[VerifiedLink]:
        """The links of the way, in order."""
        if self._find(handle).code not in _ENDS:
            raise SignatureInvalid("The last answer of the proof does not say what is at the name.")
        return self._links

    def _find(self, handle: bytes) -> Response:
        record = referral.prefix_record(handle)
        service = self._root
        if record is not None and record.upper() not in self._services:
            response = self._find(record)
            if response.code == ResponseStatus.HANDLE_NOT_FOUND:
                return response
            self._services[record.upper()] = self._follow(_read(response, is_referral=False))
        if record is not None:
            service = self._services[record.upper()]
        while True:
            response = self._take(handle, service)
            if response.code not in (ResponseStatus.SERVICE_REFERRAL, ResponseStatus.PREFIX_REFERRAL):
                return response
            service = self._follow(_read(response, is_referral=True))

    def _follow(self, lead: referral.Lead | None) -> referral.HandleService:
        if lead is None:
            raise SignatureInvalid("An answer of the proof leads to no handle server.")
        if not lead.service_handles:
            return referral.HandleService(lead.sites, is_verified=True)
        known = {handle.upper() for (handle, _), _ in self._left}
        found = next((handle for handle in lead.service_handles if handle.upper() in known), None)
        if found is None:
            raise SignatureInvalid("The proof has no answer about the service that its prefix names.")
        return self._follow(_read(self._find(found), is_referral=False))

    def _take(self, handle: bytes, service: referral.HandleService) -> Response:
        """The answer about a handle that a key of a service signed. Each answer is used once, so this ends."""
        for place, ((about, request), message) in enumerate(self._left):
            if about.upper() == handle.upper():
                response = decode_response(message.answer, digest_requested=True)
                key = self._find_key(response, handle, service)
                _check_request(response, request, message.request)
                del self._left[place]
                self._links.append(VerifiedLink(handle, message, response, key))
                return response
        raise SignatureInvalid(f"The proof has no answer about {handle.decode('utf-8', 'replace')[:100]!r}.")

    def _find_key(self, response: Response, handle: bytes, service: referral.HandleService) -> bytes:
        failure = SignatureInvalid("The site of a handle server in the proof has no key.")
        for site in service.sites:
            server = select_server(site, handle)
            if server is None or not server.public_key or self._signatures <= 0:
                continue
            self._signatures -= 1
            try:
                verify_signature(response, server.public_key, oldest_version=oldest_version((site.major, site.minor)))
            except SignatureInvalid as error:
                failure = error
            else:
                return server.public_key
        if service is self._root:
            raise SignatureInvalid("The first answer of the proof is not signed by a key of this root.") from failure
        raise failure


def _read(response: Response, *, is_referral: bool) -> referral.Lead | None:
    if not isinstance(response.body, Values):
        return None
    # The TTL of a record does not count: the expiry of its answer does.
    return (referral.read_referral if is_referral else referral.read_lead)(response.body.values, 0.0)


def _read_request(signed_answer: SignedAnswer) -> tuple[bytes, Message]:
    """The handle of a request for all public values, and the request."""
    message = decode_message(signed_answer.request)
    handle = FieldReader(message.body, "request").string()
    header = message.header
    query = Query(
        Filters(handle), message.envelope.request_id, header.expiration, header.flags, OpCode.RESOLUTION,
        header.site_serial,
    )  # fmt: skip
    if encode_query(query) != signed_answer.request:
        raise AnswerMismatch("A request of the proof is not about all values of a name.")
    return handle, message


def request_handle(signed_answer: SignedAnswer) -> bytes:
    """The handle that a request is about. Raises MalformedMessage, and AnswerMismatch."""
    return _read_request(signed_answer)[0]


def _check_request(response: Response, request: Message, data: bytes) -> None:
    """Compare an answer with its request as `check_answer` does with a query: an answer does not name its request."""
    digest, ids = response.digest, (response.envelope.request_id, response.header.op_code)
    if ids != (request.envelope.request_id, request.header.op_code) or digest is None:
        raise AnswerMismatch("An answer of the proof belongs to another request.")
    if hashlib.new(DIGEST_NAMES[digest.code], signed_part(data), usedforsecurity=False).digest() != digest.digest:
        raise AnswerMismatch("An answer of the proof belongs to another request: its digest differs.")
    handle = FieldReader(request.body, "request").string()
    if response.code == ResponseStatus.SUCCESS and (
        not isinstance(response.body, Values) or response.body.handle.upper() != handle.upper()
    ):
        raise AnswerMismatch("An answer of the proof is about another name.")
