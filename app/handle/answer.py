"""An answer of the handle API: what the upstream says about one name (technical manual, chapter 14).

The body's `responseCode` decides, whatever the HTTP status says.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import msgspec

from app.doi.name import fold
from app.errors import InvalidAnswer, UpstreamRefused
from app.handle.parsed import parse_record


class ResponseCode(IntEnum):
    """The response codes that answer a question about a name."""

    SUCCESS = 1
    HANDLE_NOT_FOUND = 100
    VALUES_NOT_FOUND = 200


class Answer(msgspec.Struct, frozen=True, gc=False):
    """What was said about a name: `values` is the compact JSON array of its values, `[]` where there are none."""

    code: ResponseCode
    values: bytes = b"[]"


class _Wire(msgspec.Struct, gc=False):
    responseCode: int
    handle: str | None = None
    values: msgspec.Raw = msgspec.Raw()
    message: str | None = None


_decoder: Final = msgspec.json.Decoder(_Wire)


def read_answer(body: bytes, asked: str) -> Answer:
    """Read the body of an answer to the question about `asked`.

    Raises UpstreamRefused where the upstream says that it failed, and InvalidAnswer for everything that is
    no answer to this question: no JSON, no response code, values that cannot be read, another name.
    """
    try:
        wire = _decoder.decode(body)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise InvalidAnswer("The upstream's answer is not JSON of the handle API.", detail=str(error)) from error
    if wire.responseCode not in ResponseCode.__members__.values():
        raise UpstreamRefused(
            f"The upstream failed with response code {wire.responseCode}.",
            response_code=wire.responseCode,
            detail=(wire.message or "no reason given")[:200],
        )
    if not _same_name(wire.handle, asked):
        raise InvalidAnswer("The upstream answered about another name than the one asked for.")
    if wire.responseCode != ResponseCode.SUCCESS:
        return Answer(ResponseCode(wire.responseCode))
    given = bytes(wire.values)
    if not given:
        raise InvalidAnswer("The upstream's answer says success and holds no values.")
    # Without insignificant white space; numbers and escapes keep their spelling.
    values = msgspec.json.format(given, indent=-1)
    if not parse_record(values).values:
        return Answer(ResponseCode.VALUES_NOT_FOUND)
    return Answer(ResponseCode.SUCCESS, values)


def _same_name(answered: str | None, asked: str) -> bool:
    if answered is None:
        return False
    given, wanted = fold(answered), fold(asked)
    # A prefix asked for without its slash is the handle 0.NA/<prefix>; servers echo either.
    return given == wanted or ("/" not in wanted and given == "0.NA/" + wanted)
