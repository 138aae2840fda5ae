"""The proof of a name as a JSON document, and its check without a network."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from handle_protocol.errors import SignatureInvalid
from handle_protocol.key import write_pem
from handle_protocol.proof import MAX_ANSWERS, read_proof, read_response
from handle_protocol.proof_replay import VerifiedLink, request_handle, verify_proof
from handle_protocol.referral import Answer, HandleService, ResponseCode
from handle_protocol.signature import signed_bytes
from handle_protocol.wire.message import SignedAnswer, decode_signature

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
        "expires": _format_time(min(link.response.header.expiration for link in links)),
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
    if at >= datetime.fromisoformat(proven["expires"]).timestamp():
        raise SignatureInvalid(f"The proof expired at {proven['expires']}; --at TIME asks about an earlier time.")
    says = _SENTENCES[proven["result"]].format(count=len(proven["values"]))
    count = len(proven["messages"]) + len(answers) - len(read.messages)
    return f"{read.handle} {says}: {count} signatures lead from the root to it, until {proven['expires']}."


def _format_time(seconds: float) -> str:
    """Seconds since the epoch as ISO 8601."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


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
