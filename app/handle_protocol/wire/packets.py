"""The UDP packets of one message (RFC 3652, section 2.3).

A packet has at most 512 bytes. Each begins with the envelope, whose message id is the number of the packet.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from handle_protocol.errors import AnswerTooLarge, MalformedMessage
from handle_protocol.wire.message import ENVELOPE_BYTES, decode_envelope, encode_envelope

MAX_PACKET_BYTES: Final = 512
_PAYLOAD_BYTES: Final = MAX_PACKET_BYTES - ENVELOPE_BYTES


def split_message(data: bytes) -> list[bytes]:
    """The packets of a whole message. One packet is the message itself."""
    if len(data) <= MAX_PACKET_BYTES:
        return [data]
    envelope, payload = decode_envelope(data), data[ENVELOPE_BYTES:]
    parts = (payload[start : start + _PAYLOAD_BYTES] for start in range(0, len(payload), _PAYLOAD_BYTES))
    return [
        encode_envelope(replace(envelope, flags=envelope.packet_flags, message_id=number)) + part
        for number, part in enumerate(parts)
    ]


class PacketBuffer:
    """The packets of one answer, in any order. It holds at most `max_bytes` of payload.

    The caller drops packets with another request id. After an error the buffer is not used again.
    """

    __slots__ = ("_length", "_max_bytes", "_parts")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._length: int | None = None
        self._parts: dict[int, bytes] = {}

    def add(self, packet: bytes) -> bytes | None:
        """Add a packet. Returns the message once it is complete. Raises MalformedMessage and AnswerTooLarge.

        A packet that arrived before is ignored, whatever it holds.
        """
        envelope, payload = decode_envelope(packet), packet[ENVELOPE_BYTES:]
        length, number = envelope.message_length, envelope.message_id
        if self._length not in (None, length):
            raise MalformedMessage(detail=f"packet: the message length was {self._length}, now it is {length}")
        if length > self._max_bytes:
            raise AnswerTooLarge.over(self._max_bytes)
        expected = min(_PAYLOAD_BYTES, length - number * _PAYLOAD_BYTES)
        if len(payload) != expected or (not payload and number):
            raise MalformedMessage(detail=f"packet {number} of a message of {length} bytes has {len(payload)} bytes")
        self._length = length
        self._parts.setdefault(number, payload)
        count = max(1, -(-length // _PAYLOAD_BYTES))
        if len(self._parts) < count:
            return None
        return encode_envelope(replace(envelope, message_id=0)) + b"".join(self._parts[part] for part in range(count))
