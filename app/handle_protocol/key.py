"""What the key of a handle server proves: its signatures, and its certificate. RSA and DSA, by the extra `native`.

Handle servers sign their own certificates, so no authority proves them. With an RSA key, the certificate of an HTTPS
interface holds the key of the server in its site value. A connection whose certificate has that key leads to that
server. With a DSA key, the certificate has another key, and proves nothing.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.dsa import DSAParameterNumbers, DSAPublicKey, DSAPublicNumbers
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey, RSAPublicNumbers
from cryptography.hazmat.primitives.hashes import SHA1, SHA256, HashAlgorithm
from cryptography.x509 import load_der_x509_certificate

from handle_protocol.errors import MalformedMessage, ServerUnreachable, SignatureInvalid
from handle_protocol.wire.message import Signature
from handle_protocol.wire.site_value import RSA, KeyNumbers, decode_public_key


def verify_bytes(signed: bytes, signature: Signature, public_key: bytes) -> None:
    """Check a signature of `signed`. Raises SignatureInvalid, and MalformedMessage for a key that is not one."""
    algorithm = _read_algorithm(signature.digest_name)
    try:
        key = _load_key(public_key)
        if isinstance(key, RSAPublicKey):
            key.verify(signature.signature, signed, PKCS1v15(), algorithm)
        else:
            key.verify(signature.signature, signed, algorithm)
    except InvalidSignature as error:
        raise SignatureInvalid from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise SignatureInvalid(detail=f"{type(error).__name__}: {error}"[:200]) from error


def _read_algorithm(name: bytes) -> HashAlgorithm:
    if name == b"SHA-256":
        return SHA256()
    if name in (b"SHA1", b"SHA-1"):
        return SHA1()  # noqa: S303 - versions below 2.11 sign with it; the caller refuses them or not
    raise SignatureInvalid(detail=f"the digest {name[:40]!r} is not known")


def _load_key(data: bytes) -> RSAPublicKey | DSAPublicKey:
    key = decode_public_key(data)
    numbers = _read_numbers(key)
    # Verification takes time that grows with the cube of the size. Keys in use have 1,024 to 4,096 bits.
    if any(number <= 0 or number.bit_length() > 8_192 for number in numbers):
        raise SignatureInvalid(detail="a number of the public key is negative or too long")
    if key.type == RSA:
        exponent, modulus = numbers
        if exponent.bit_length() > 64:
            raise SignatureInvalid(detail="the exponent of the public key is too long")
        return RSAPublicNumbers(exponent, modulus).public_key()
    q, p, g, y = numbers
    return DSAPublicNumbers(y, DSAParameterNumbers(p, q, g)).public_key()


def _read_numbers(key: KeyNumbers) -> list[int]:
    return [int.from_bytes(number, "big", signed=True) for number in key.numbers]


def compare_certificate(certificate: bytes, public_key: bytes) -> None:
    """Compare the key of a certificate (DER) with the server's key in its site value (the data of an HS_PUBKEY value).

    Its names and its dates do not matter: the key is the server's or it is not. Nothing is compared if the site value
    has no RSA key. Raises ServerUnreachable if the keys differ.
    """
    known = _read_rsa(public_key)
    if known is None:
        return
    try:
        shown = load_der_x509_certificate(certificate).public_key()
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ServerUnreachable(detail=f"the certificate cannot be read: {error}"[:200]) from error
    if not isinstance(shown, RSAPublicKey) or shown.public_numbers() != RSAPublicNumbers(*_read_numbers(known)):
        raise ServerUnreachable(
            "The certificate of the handle server has another key than its site value.",
            detail="look for a machine between here and the server that answers in its place",
        )


def _read_rsa(public_key: bytes) -> KeyNumbers | None:
    try:
        key = decode_public_key(public_key) if public_key else None
    except MalformedMessage:
        # `verify_bytes` refuses it when a signature is checked.
        return None
    return key if key is not None and key.type == RSA else None
