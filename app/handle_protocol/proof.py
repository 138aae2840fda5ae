"""The proof of an answer: the signed answers that lead to it from the root, as they are kept.

`proof_replay` verifies it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from handle_protocol.errors import MalformedMessage, ServerRefused
from handle_protocol.json_sites import write_json_values
from handle_protocol.referral import Answer, ProvenAnswer, ResponseCode
from handle_protocol.value import parse_record
from handle_protocol.wire.message import Response, ResponseStatus, SignedAnswer, Values
from handle_protocol.wire.site_value import FieldReader, encode_count, encode_string

#: Bytes of a proof that is kept. One answer about a record with a key of 4,096 bits and a site has about 2 kB.
MAX_PROOF_BYTES: Final = 64 * 1024
#: Answers of a proof. One in use has two to five.
MAX_ANSWERS: Final = 40


def encode_proof(answers: Sequence[SignedAnswer]) -> bytes | None:
    """The bytes of a proof in a store. None if it is too large to be kept."""
    data = encode_count(tuple(answers)) + b"".join(encode_string(a.request) + encode_string(a.answer) for a in answers)
    return data if len(data) <= MAX_PROOF_BYTES and len(answers) <= MAX_ANSWERS else None


def decode_proof(data: bytes) -> tuple[SignedAnswer, ...]:
    """The answers of a proof. Raises MalformedMessage."""
    reader = FieldReader(data, "proof")
    count = reader.count(8, MAX_ANSWERS)  # two empty strings
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
