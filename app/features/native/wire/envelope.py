"""The envelope: the first 20 bytes of every message and of every UDP packet (RFC 3652)."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final

from app.features.native.wire.fields import FieldReader

#: The version that this program speaks. The server answers in the version that the request suggests.
VERSION: Final = (2, 11)
#: The server sends this id in errors about requests that it could not read.
NO_REQUEST_ID: Final = 0xFFFF_FFFF

_LAYOUT: Final = Struct(">BBBBIIII")
ENVELOPE_BYTES: Final = _LAYOUT.size
# RFC 3652 has two bytes of flags. Servers use one, with the suggested major version in its low bits.
_TRUNCATED: Final = 0x20
_SUGGESTED_MAJOR: Final = 0x03


@dataclass(frozen=True, slots=True)
class Envelope:
    """The envelope of a message. `message_length` counts all bytes after the envelope, in all packets."""

    request_id: int
    message_length: int = 0
    major: int = VERSION[0]
    minor: int = VERSION[1]
    #: 0x80 compressed, 0x40 encrypted, 0x20 part of several packets, 0x03 the suggested major version.
    flags: int = VERSION[0]
    suggested_minor: int = VERSION[1]
    session_id: int = 0
    #: The number of the packet, from 0.
    message_id: int = 0

    @property
    def version(self) -> tuple[int, int]:
        """The version of the message."""
        return self.major, self.minor

    @property
    def suggested_major(self) -> int:
        """The major version that the sender suggests for the answer."""
        return self.flags & _SUGGESTED_MAJOR

    @property
    def packet_flags(self) -> int:
        """The flags of an envelope whose message is split into packets."""
        return self.flags | _TRUNCATED


def decode_envelope(data: bytes) -> Envelope:
    """The envelope at the start of a message or packet. Raises MalformedMessage."""
    layout = FieldReader(data[:ENVELOPE_BYTES], "envelope").numbers(_LAYOUT)
    major, minor, flags, suggested_minor, session_id, request_id, message_id, message_length = layout
    return Envelope(request_id, message_length, major, minor, flags, suggested_minor, session_id, message_id)


def encode_envelope(envelope: Envelope, message_length: int | None = None) -> bytes:
    """The bytes of an envelope, with another message length if one is passed."""
    return _LAYOUT.pack(
        envelope.major,
        envelope.minor,
        envelope.flags,
        envelope.suggested_minor,
        envelope.session_id,
        envelope.request_id,
        envelope.message_id,
        envelope.message_length if message_length is None else message_length,
    )
