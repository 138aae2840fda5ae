"""Reads the replies of a server that may be broken: with limits, and in the shape that a command's reply has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from redis._parsers import _AsyncRESP2Parser
from redis.exceptions import InvalidResponse, ResponseError

Result = TypeVar("Result")

#: Elements of all arrays of one reply, and bytes of all its texts.
_MAX_ELEMENTS: Final = 100_000
_MAX_BYTES: Final = 64 * 1024 * 1024
_ARRAY: Final = b"*"
_TEXT: Final = b"$"


class WrongShape(ResponseError):
    """The server answers, but not this command. Like every error reply, that is not an outage."""


class LimitedParser(_AsyncRESP2Parser):
    """Refuses a reply by the lengths that it announces, before it is read.

    hiredis makes room for all elements at once: `*2000000000` took 6 s of processor time in one turn of the event loop.
    A look-up takes 191 us with this parser, and 184 us with hiredis.
    """

    async def read_response(self, disable_decoding: bool = False) -> Any:
        """See the base class. Raises InvalidResponse."""
        self._elements_left, self._bytes_left = _MAX_ELEMENTS, _MAX_BYTES
        return await super().read_response(disable_decoding)

    async def _readline(self) -> bytes:
        line: bytes = await super()._readline()
        kind = line[:1]
        if kind == _ARRAY:
            self._elements_left -= int(line[1:])
        elif kind == _TEXT:
            self._bytes_left -= int(line[1:])
        if self._elements_left < 0 or self._bytes_left < 0:
            raise InvalidResponse(f"Its reply is too long: {line[:20]!r}")
        return line


def interpret(read: Callable[[Any], Result], reply: Any) -> Result:
    """What `read` makes of a reply. Raises WrongShape."""
    try:
        return read(reply)
    except (TypeError, ValueError, AttributeError, LookupError) as error:
        raise WrongShape(f"its reply to this command has another shape: {str(reply)[:80]}") from error


def read_anything(reply: Any) -> Any:
    """A reply that is not used, or whose user expects any shape."""
    return reply


def read_data(reply: Any) -> bytes | None:
    """The value of a key, None if there is none."""
    if reply is None or isinstance(reply, bytes):
        return reply
    raise TypeError


def read_number(reply: Any) -> int:
    """A number, also as text."""
    return int(reply)
