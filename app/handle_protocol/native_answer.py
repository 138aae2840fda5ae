"""The answer of a handle server as the handle API has it: the same bytes as an HTTP API sends."""

from __future__ import annotations

from handle_protocol.errors import ServerRefused
from handle_protocol.json_sites import write_json_values
from handle_protocol.proof import encode_proof
from handle_protocol.referral import Answer, ProvenAnswer, ResponseCode
from handle_protocol.value import parse_record
from handle_protocol.wire.message import (
    Response,
    ResponseStatus,
    Values,
)


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
