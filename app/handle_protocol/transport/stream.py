"""What transports share, and messages over TCP."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from handle_protocol import errors
from handle_protocol.errors import ServerUnreachable
from handle_protocol.site import Candidate
from handle_protocol.wire.message import ENVELOPE_BYTES, decode_envelope

#: Where the request id is in an envelope.
REQUEST_ID: Final = slice(8, 12)
#: The media type of messages in the HTTP tunnel.
MESSAGE: Final = "application/x-hdl-message"


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
    return errors.ServerUnreachable(detail=f"{type(error).__name__}: {error}"[:200])


class TcpTransport:
    """A connection for each message: most servers close it after the answer. `connect_timeout` is in seconds."""

    def __init__(self, *, connect_timeout: float, max_bytes: int) -> None:
        self._connect_timeout = connect_timeout
        self._max_bytes = max_bytes

    async def exchange(self, candidate: Candidate, handle: bytes, message: bytes) -> bytes:
        """See Transport."""
        endpoint = candidate.endpoint
        try:
            async with asyncio.timeout(self._connect_timeout):
                reader, writer = await asyncio.open_connection(str(endpoint.address), endpoint.port)
        except OSError as error:
            raise translate_socket_error(error) from error
        try:
            writer.write(message)
            head = await reader.readexactly(ENVELOPE_BYTES)
            refuse_long(head, message, self._max_bytes)
            return head + await reader.readexactly(measure_message(head) - ENVELOPE_BYTES)
        except asyncio.IncompleteReadError as error:
            raise ServerUnreachable(detail=f"closed after {len(error.partial)} bytes of a part") from error
        except OSError as error:
            raise translate_socket_error(error) from error
        finally:
            writer.transport.abort()

    async def aclose(self) -> None:
        """See Transport."""
