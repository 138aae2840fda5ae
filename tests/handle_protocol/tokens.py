"""The signed tokens of HS_SIGNATURE and HS_CERT values, as the reference software makes them."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from typing import Any

from cryptography.hazmat.primitives.asymmetric.dsa import DSAPrivateKey
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.hashes import SHA256

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
