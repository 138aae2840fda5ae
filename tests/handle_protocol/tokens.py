"""The signed tokens of HS_SIGNATURE and HS_CERT values, as the reference software makes them."""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode, urlsafe_b64encode
from typing import Any, Final

import msgspec
from cryptography.hazmat.primitives.asymmetric.dsa import DSAPrivateKey
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.hashes import SHA256

from handle_protocol.signature_chain import encode_signed
from handle_protocol.value import read_value

#: The handle whose values are signed, its prefix, and the key that signs them: "index:HANDLE".
NAME: Final = "10.5555/signed"
PREFIX: Final = "0.NA/10.5555"
SIGNER: Final = f"300:{PREFIX}"
ROOT: Final = "300:0.0/0.0"

Key = RSAPrivateKey | DSAPrivateKey
Json = dict[str, Any]


def base64url(data: bytes) -> str:
    """Base64 for URLs, without padding (RFC 7515, section 2)."""
    return urlsafe_b64encode(data).decode().rstrip("=")


def token(claims: Json, key: Key) -> str:
    """A JSON Web Signature in its compact form."""
    head = {"alg": "RS256" if isinstance(key, RSAPrivateKey) else "DS256"}
    signed = f"{base64url(json.dumps(head).encode())}.{base64url(json.dumps(claims).encode())}"
    if isinstance(key, RSAPrivateKey):
        return f"{signed}.{base64url(key.sign(signed.encode(), PKCS1v15(), SHA256()))}"
    return f"{signed}.{base64url(key.sign(signed.encode(), SHA256()))}"


def _number(number: int) -> str:
    return base64url(number.to_bytes((number.bit_length() + 7) // 8, "big"))


def jwk(key: Key) -> Json:
    """The public key as a JSON Web Key."""
    if isinstance(key, RSAPrivateKey):
        rsa = key.public_key().public_numbers()
        return {"kty": "RSA", "n": _number(rsa.n), "e": _number(rsa.e)}
    dsa = key.public_key().public_numbers()
    group = dsa.parameter_numbers
    return {"kty": "DSA", "y": _number(dsa.y), "p": _number(group.p), "q": _number(group.q), "g": _number(group.g)}


def text(index: int, kind: str, content: str) -> Json:
    """A value whose data is a string."""
    return {"index": index, "type": kind, "data": {"format": "string", "value": content}, "ttl": 86400}


def signature(values: list[Json], key: Key, **changes: Any) -> Json:
    """An HS_SIGNATURE value over other values."""
    signed = {value["index"]: encode_signed(read_value(msgspec.json.encode(value))) for value in values}
    digests = [
        {"index": index, "digest": b64encode(hashlib.sha256(part).digest()).decode()} for index, part in signed.items()
    ]
    claims = {"digests": {"alg": "SHA-256", "digests": digests}, "iss": SIGNER, "sub": NAME, **changes}
    return text(400, "HS_SIGNATURE", token(claims, key))


def certificate(key: Key, issuer: Key, **changes: Any) -> Json:
    """An HS_CERT value for a key."""
    perms = [{"handle": PREFIX, "perm": "handlesUnderThisPrefix"}]
    claims = {"sub": SIGNER, "iss": ROOT, "publicKey": jwk(key), "perms": perms, **changes}
    return text(401, "HS_CERT", token(claims, issuer))
