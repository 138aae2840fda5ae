"""The credential of a message: the signature of its sender (RFC 3652)."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final

from app.features.native.wire.fields import U32, FieldReader

SIGNED: Final = b"HS_SIGNED"
_HEAD: Final = Struct(">BBH")
NO_CREDENTIAL: Final = U32.pack(0)


@dataclass(frozen=True, slots=True)
class Credential:
    """A credential. The section of the type HS_SIGNED is a `Signature`."""

    section: bytes
    type: bytes = SIGNED
    signer: bytes = b""
    #: The message's number in a session; 0 without a session.
    counter: int = 0
    version: int = 0
    reserved: int = 0
    flags: int = 0


@dataclass(frozen=True, slots=True)
class Signature:
    """A signature, and the name of the digest that was signed."""

    digest_name: bytes
    signature: bytes


def decode_credential(tail: bytes) -> Credential | None:
    """The credential that follows a body; None if its length is 0. Raises MalformedMessage."""
    reader = FieldReader(tail, "credential")
    length = reader.number(U32)
    if length != reader.remaining:
        raise reader.malformed(f"the length is {length}, and {reader.remaining} bytes remain")
    if not length:
        return None
    version, reserved, flags = reader.numbers(_HEAD)
    signer, counter, kind, section = reader.string(), reader.number(U32), reader.string(), reader.string()
    reader.finish()
    return Credential(section, kind, signer, counter, version, reserved, flags)


def decode_signature(section: bytes) -> Signature:
    """The section of a credential of the type HS_SIGNED. Raises MalformedMessage."""
    reader = FieldReader(section, "signature")
    signature = Signature(reader.string(), reader.string())
    reader.finish()
    return signature
