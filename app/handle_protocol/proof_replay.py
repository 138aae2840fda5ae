"""Verifies a proof as its answers were found: from the root, over the record of the prefix and its services.

So an answer that is about another name or from another service proves nothing.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from handle_protocol import referral
from handle_protocol.dump import AnswerMismatch, MalformedMessage, ServerRefused, SignatureInvalid
from handle_protocol.json_sites import write_json_values
from handle_protocol.referral import Answer, HandleService, ProvenAnswer, ResponseCode
from handle_protocol.signature_chain import follow_chain, oldest_version, signed_bytes, verify_signature, write_pem
from handle_protocol.site import select_server
from handle_protocol.value import parse_record
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
    decode_signature,
    encode_query,
    signed_part,
)
from handle_protocol.wire.site_value import FieldReader, encode_count, encode_string

#: Bytes of a proof that is kept. One answer about a record with a key of 4,096 bits and a site has about 2 kB.
MAX_PROOF_BYTES: Final = 64 * 1024
#: Answers of a proof. One in use has two to five.
MAX_ANSWERS: Final = 40
_SMALLEST_ANSWER: Final = 8


def join_proofs(first: Iterable[SignedAnswer], second: Iterable[SignedAnswer]) -> tuple[SignedAnswer, ...]:
    """The answers of two proofs, each once."""
    return tuple(dict.fromkeys((*first, *second)))


def encode_proof(answers: Sequence[SignedAnswer]) -> bytes | None:
    """The bytes of a proof in a store. None if it is too large to be kept."""
    data = encode_count(tuple(answers)) + b"".join(encode_string(a.request) + encode_string(a.answer) for a in answers)
    return data if len(data) <= MAX_PROOF_BYTES and len(answers) <= MAX_ANSWERS else None


def decode_proof(data: bytes) -> tuple[SignedAnswer, ...]:
    """The answers of a proof. Raises MalformedMessage."""
    reader = FieldReader(data, "proof")
    count = reader.count(_SMALLEST_ANSWER, MAX_ANSWERS)
    answers = tuple(SignedAnswer(reader.string(), reader.string()) for _ in range(count))
    reader.finish()
    return answers


def read_proof(answer: Answer) -> tuple[SignedAnswer, ...] | None:
    """The proof of an answer of the cache. None if it has none that can be read."""
    try:
        return decode_proof(answer.proof) if isinstance(answer, ProvenAnswer) else None
    except MalformedMessage:
        return None


def read_response(response: Response | None, *, is_verified: bool) -> Answer:
    """The answer of a server as an HTTP API has it. Raises ServerRefused, and UnusableAnswer."""
    proof = encode_proof(response.proof) if is_verified and response is not None and response.proof else None

    def answer(code: ResponseCode, values: bytes = b"[]") -> Answer:
        if proof is None:
            return Answer(code, values, is_verified=is_verified)
        return ProvenAnswer(code, values, is_verified=True, proof=proof)

    if response is None or response.code == ResponseStatus.HANDLE_NOT_FOUND:
        return answer(ResponseCode.HANDLE_NOT_FOUND)
    if response.code == ResponseStatus.VALUES_NOT_FOUND:
        return answer(ResponseCode.VALUES_NOT_FOUND)
    if response.code != ResponseStatus.SUCCESS or not isinstance(response.body, Values):
        raise ServerRefused(
            f"The handle server did not answer about this name, response code {response.code}.",
            response_code=response.code,
        )
    values = write_json_values(response.body.values)
    if not parse_record(values).values:
        return answer(ResponseCode.VALUES_NOT_FOUND)
    return answer(ResponseCode.SUCCESS, values)


_REFERRALS: Final = (ResponseStatus.SERVICE_REFERRAL, ResponseStatus.PREFIX_REFERRAL)
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
            if response.code not in _REFERRALS:
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


#: Bytes of a document. One of the largest proof that is kept has 400 kB.
MAX_DOCUMENT_BYTES: Final = 1024 * 1024
_RESULTS: Final = {
    ResponseCode.SUCCESS: "values",
    ResponseCode.HANDLE_NOT_FOUND: "handle-not-found",
    ResponseCode.VALUES_NOT_FOUND: "values-not-found",
}
_SENTENCES: Final = {
    "values": "has these {count} values",
    "handle-not-found": "does not exist",
    "values-not-found": "has no public values",
}


class _Message(msgspec.Struct):
    request: str
    answer: str


class _Document(msgspec.Struct):
    proof: int
    handle: str
    time: str
    root: list[str]
    messages: list[_Message]


_decoder: Final = msgspec.json.Decoder(_Document)


def write_proof_document(
    root: HandleService, answers: Sequence[SignedAnswer], handle: bytes, *, time: str
) -> dict[str, Any]:
    """The document of a proof, whose signatures are verified from the root. Raises HandleProtocolError."""
    links = verify_proof(root, answers, handle)
    answer = read_response(links[-1].response, is_verified=True)
    return {
        "proof": 1,
        "handle": handle.decode(),
        "result": _RESULTS[answer.code],
        "values": msgspec.json.decode(answer.values),
        "time": time,
        "expires": _format_time(_expiry(links)),
        "root": [_encode(signed_answer.answer) for signed_answer in answers if not signed_answer.request],
        "messages": [_describe(link) for link in links],
    }


def write_proof_of_answer(root: HandleService, text: str, answer: Answer, fetched_at: float) -> bytes:
    """The document of an answer as JSON. `text` is its name; it arrived at `fetched_at`, in seconds since the epoch.

    Raises HandleProtocolError.
    """
    answers = read_proof(answer)
    if not answers:
        raise SignatureInvalid("it cannot be read.")
    # A prefix is a handle with and without its 0.NA/.
    handle = text.encode() if "/" in text else request_handle(answers[-1])
    return msgspec.json.encode(write_proof_document(root, answers, handle, time=_format_time(fetched_at)))


def verify_document(content: bytes, root: HandleService, at: float) -> str:
    """What a document proves at a time, in one sentence. The message of a HandleProtocolError says what is wrong."""
    try:
        read, document = _decoder.decode(content), json.loads(content)
        answers = [SignedAnswer(b"", b64decode(answer, validate=True)) for answer in read.root[: MAX_ANSWERS + 1]]
        for message in read.messages[: MAX_ANSWERS + 1]:
            request, answer = (b64decode(text, validate=True) for text in (message.request, message.answer))
            if not request:
                raise SignatureInvalid("A message of the proof has no request.")
            answers.append(SignedAnswer(request, answer))
        handle = read.handle.encode()
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise SignatureInvalid(f"This is not a document of /api/proof: {error}.") from error
    if read.proof != 1:
        raise SignatureInvalid("The document has a later form than this release reads.")
    proven = write_proof_document(root, answers, handle, time=read.time)
    differs = sorted(name for name in {*proven, *document} if proven.get(name) != document.get(name))
    if differs:
        raise SignatureInvalid(f"The member {differs[0]!r} of the document is not what its signed messages say.")
    if at >= _parse_time(proven["expires"]):
        raise SignatureInvalid(f"The proof expired at {proven['expires']}; --at TIME asks about an earlier time.")
    says = _SENTENCES[proven["result"]].format(count=len(proven["values"]))
    count = len(proven["messages"]) + len(answers) - len(read.messages)
    return f"{read.handle} {says}: {count} signatures lead from the root to it, until {proven['expires']}."


def _format_time(seconds: float) -> str:
    """Seconds since the epoch as ISO 8601."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _parse_time(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _expiry(links: Sequence[VerifiedLink]) -> int:
    return min(link.response.header.expiration for link in links)


def _describe(link: VerifiedLink) -> dict[str, str]:
    response, credential = link.response, link.response.credential
    if credential is None:
        raise SignatureInvalid
    signature = decode_signature(credential.section)
    return {
        "handle": link.handle.decode("utf-8", "replace"),
        "request": _encode(link.message.request),
        "answer": _encode(link.message.answer),
        "signed": _encode(signed_bytes(response, credential)),
        "signature": _encode(signature.signature),
        "digest": signature.digest_name.decode("ascii", "replace"),
        "key": write_pem(link.key),
        "expires": _format_time(response.header.expiration),
    }


def _encode(data: bytes) -> str:
    return b64encode(data).decode()
