"""The data of HS_PUBKEY, and the public keys in site values: the numbers of an RSA or DSA key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from handle_protocol.wire.fields import U16, FieldReader, encode_string

RSA: Final = b"RSA_PUB_KEY"
DSA: Final = b"DSA_PUB_KEY"
#: RSA: exponent and modulus. DSA: q, p, g and y.
_NUMBERS: Final = {RSA: 2, DSA: 4}
#: The reference software writes four zero bytes after an RSA key. It ignores what follows a key when it reads one.
RSA_PADDING: Final = bytes(4)


@dataclass(frozen=True, slots=True)
class KeyNumbers:
    """A public key. The numbers are two's complement, so most of them begin with a zero byte."""

    type: bytes
    numbers: tuple[bytes, ...]
    flags: int = 0
    #: What follows the numbers. It has no meaning.
    rest: bytes = b""


def decode_public_key(data: bytes) -> KeyNumbers:
    """A public key of a known type. Raises MalformedMessage."""
    reader = FieldReader(data, "public key")
    key_type, flags = reader.string(), reader.number(U16)
    if key_type not in _NUMBERS:
        raise reader.malformed(f"the type {key_type[:40]!r} is not known")
    numbers = tuple(reader.string() for _ in range(_NUMBERS[key_type]))
    return KeyNumbers(key_type, numbers, flags, reader.rest())


def encode_public_key(key: KeyNumbers) -> bytes:
    """The data of an HS_PUBKEY value."""
    numbers = b"".join(map(encode_string, key.numbers))
    return encode_string(key.type) + U16.pack(key.flags) + numbers + key.rest
