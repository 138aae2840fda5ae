"""The proof of an answer: the signed answers that lead to it from the root, as they are kept.

`proof_replay` verifies it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from handle_protocol.errors import MalformedMessage
from handle_protocol.referral import Answer, ProvenAnswer
from handle_protocol.wire.message import (
    SignedAnswer,
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
