"""The interface of the transports, and the errors that they have in common."""

from __future__ import annotations

from typing import Final, Protocol

from handle_protocol import errors
from handle_protocol.site import Candidate
from handle_protocol.wire.message import ENVELOPE_BYTES, decode_envelope

_MAX_DETAIL: Final = 200
#: Where the request id is in an envelope.
REQUEST_ID: Final = slice(8, 12)


class Transport(Protocol):
    """Sends one message and receives one. The caller limits the time."""

    async def exchange(self, candidate: Candidate, handle: bytes, message: bytes) -> bytes:
        """The whole answer to a message about `handle`. Nothing in it is checked but its length.

        Raises HandleProtocolError. Cancelling it closes what it opened.
        """

    async def aclose(self) -> None:
        """Close the connections. The transport is not used afterwards."""


def has_id_of(message: bytes, answer: bytes) -> bool:
    """Whether an answer has the request id of a message."""
    return answer[REQUEST_ID] == message[REQUEST_ID]


def measure_message(head: bytes | bytearray) -> int:
    """The bytes of the whole message that begins with `head`, an envelope at least."""
    return ENVELOPE_BYTES + decode_envelope(bytes(head[:ENVELOPE_BYTES])).message_length


def refuse_long(answer: bytes, message: bytes, max_bytes: int) -> None:
    """Raise AnswerTooLarge if the answer to a message announces more than `max_bytes` after its envelope.

    Without the id of the message, the bytes are those of another protocol: MalformedMessage.
    """
    length = measure_message(answer) - ENVELOPE_BYTES
    if length <= max_bytes:
        return
    if has_id_of(message, answer):
        raise errors.AnswerTooLarge.over(max_bytes)
    raise errors.MalformedMessage(detail=f"envelope: the message length is {length}; the limit is {max_bytes}")


def translate_socket_error(error: Exception) -> errors.HandleProtocolError:
    """Translate the error of a socket."""
    if isinstance(error, TimeoutError):
        return errors.ServerTimeout("The handle server did not answer in time.")
    return errors.ServerUnreachable(detail=f"{type(error).__name__}: {error}"[:_MAX_DETAIL])
