"""An answer of the handle API about one name (technical manual, chapter 14).

The body's `responseCode` decides. The HTTP status is ignored.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar, Final

import msgspec

from doi_names.name import fold
from handle_protocol.errors import InvalidRecord, ServerRefused
from handle_protocol.record import parse_record
from handle_protocol.value import escape_separators


class ResponseCode(IntEnum):
    """The response codes that are an answer. Every other code reports a failure."""

    SUCCESS = 1
    HANDLE_NOT_FOUND = 100
    VALUES_NOT_FOUND = 200


class Answer(msgspec.Struct, frozen=True, gc=False):
    """The answer about a name. `values` is the compact JSON array of its values, or `[]`."""

    #: The URL to which the record leads every client, if a store has noted it.
    target: ClassVar[str | None] = None

    code: ResponseCode
    values: bytes = b"[]"
    #: What Cache-Status says about where a new answer came from. Stores do not keep it.
    detail: str | None = None
    #: Whether the handle server's signature of this answer was verified. Stores keep it, bundles do not.
    is_verified: bool = False

    def agrees_with(self, other: Answer) -> bool:
        """Whether another answer says the same about the name."""
        return self.code is other.code and self.values == other.values


class ProvenAnswer(Answer, frozen=True, gc=False):
    """A verified answer with what verifies it again, in the form of its source. Stores keep it."""

    proof: bytes = b""


class _Wire(msgspec.Struct, gc=False):
    responseCode: int
    handle: str | None = None
    values: msgspec.Raw = msgspec.Raw()
    message: str | None = None


_decoder: Final = msgspec.json.Decoder(_Wire)


def read_answer(body: bytes, name: str) -> Answer:
    """Read the body of an answer to the query about `name`.

    Raises ServerRefused if the response code reports a failure. Raises InvalidRecord if the body is not JSON, has no
    response code, has values that cannot be read, or is about another name.
    """
    try:
        wire = _decoder.decode(body)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise InvalidRecord("The answer is not valid JSON of the handle API.", detail=str(error)) from error
    if wire.responseCode not in ResponseCode.__members__.values():
        raise ServerRefused(
            f"The server reported a failure, response code {wire.responseCode}.",
            response_code=wire.responseCode,
            detail=(wire.message or "no reason given")[:200],
        )
    if not _same_name(wire.handle, name):
        raise InvalidRecord("The answer is about another name.")
    if wire.responseCode != ResponseCode.SUCCESS:
        return Answer(ResponseCode(wire.responseCode))
    if not bytes(wire.values):
        raise InvalidRecord("The answer has response code 1 (success) and no `values`.")
    # This removes insignificant white space. Numbers and escapes keep their spelling.
    values = escape_separators(msgspec.json.format(bytes(wire.values), indent=-1))
    return (
        Answer(ResponseCode.SUCCESS, values) if parse_record(values).values else Answer(ResponseCode.VALUES_NOT_FOUND)
    )


def _same_name(handle: str | None, name: str) -> bool:
    if handle is None:
        return False
    handle, name = fold(handle), fold(name)
    # The record of a prefix is the handle 0.NA/<prefix>. Servers echo it with or without the "0.NA/".
    return handle == name or ("/" not in name and handle == "0.NA/" + name)
