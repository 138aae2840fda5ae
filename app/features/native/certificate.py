"""The certificate of an HTTPS interface. Handle servers sign their own, so no authority proves it.

With an RSA key, the certificate of a handle server holds the key of the server in its site value. A connection whose
certificate has that key leads to that server. With a DSA key, the certificate has another key, and proves nothing.
"""

from __future__ import annotations

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.x509 import load_der_x509_certificate

from app.errors import MalformedMessage, UpstreamUnreachable
from app.features.native.wire.public_key import RSA, KeyNumbers, decode_public_key


def compare_certificate(certificate: bytes, public_key: bytes) -> None:
    """Compare the key of a certificate (DER) with the server's key in its site value (the data of an HS_PUBKEY value).

    Its names and its dates do not matter: the key is the server's or it is not. Nothing is compared if the site value
    has no RSA key. Raises UpstreamUnreachable if the keys differ.
    """
    known = _read_rsa(public_key)
    if known is None:
        return
    try:
        shown = load_der_x509_certificate(certificate).public_key()
    except (ValueError, UnsupportedAlgorithm) as error:
        raise UpstreamUnreachable(detail=f"the certificate cannot be read: {error}"[:200]) from error
    if not isinstance(shown, RSAPublicKey) or _numbers(shown) != [_number(one) for one in known.numbers]:
        raise UpstreamUnreachable(
            "The certificate of the handle server has another key than its site value.",
            detail="look for a machine between here and the server that answers in its place",
        )


def _read_rsa(public_key: bytes) -> KeyNumbers | None:
    try:
        key = decode_public_key(public_key) if public_key else None
    except MalformedMessage:
        # `verify` refuses it when a signature is checked.
        return None
    return key if key is not None and key.type == RSA else None


def _number(data: bytes) -> int:
    return int.from_bytes(data, "big", signed=True)


def _numbers(key: RSAPublicKey) -> list[int]:
    numbers = key.public_numbers()
    return [numbers.e, numbers.n]
