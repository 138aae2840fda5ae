"""An identity of the handle system, and how it is proven to a handle server (RFC 3652, section 3.5).

A server that needs an identity sends a challenge: the digest of the query, and a nonce. What is proven is the nonce and
a digest that this program computes from its own query, so a challenge cannot make it sign another request. The proofs
are those of protocol version 2.7 and later. Weaker ones, by MD5 or SHA-1 over the secret itself, are never sent.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from app.errors import ConfigurationError
from app.features.native.wire.fields import I32, U8, U32, encode_string
from app.features.native.wire.query import Query, encode_digested
from app.features.native.wire.response import AnswerText, Response
from app.features.restricted.errors import ChallengeRefused

#: The code of SHA-256 in a request digest.
_SHA256: Final = 3
#: The code of a proof by a secret key: a key is derived by PBKDF2-HMAC-SHA1, and makes an HMAC-SHA1 of the challenge.
_PBKDF2_HMAC_SHA1: Final = 0x22
_SALT_BYTES: Final = 16
_ITERATIONS: Final = 10_000
_KEY_BITS: Final = 160
#: Bytes of a nonce. Servers send 16. A short one could be repeated, a long one could be the start of another message.
_NONCE_BYTES: Final = range(16, 65)
#: Bits of the shortest RSA or DSA key.
MIN_KEY_BITS: Final = 1_024


@dataclass(frozen=True, slots=True)
class Identity:
    """The value of a handle that has the key, and `prove`: the proof for the bytes of a challenge."""

    index: int
    handle: str
    #: HS_SECKEY or HS_PUBKEY.
    type: bytes
    prove: Callable[[bytes], bytes] = field(repr=False, compare=False)

    def __str__(self) -> str:
        return f"{self.index}:{self.handle}"

    async def answer(self, challenge: Response, query: Query) -> bytes:
        """The body of the response to a challenge. Raises ChallengeRefused."""
        digest, body = challenge.digest, challenge.body
        own_digest = hashlib.sha256(encode_digested(query)).digest()
        if digest is None or digest.code != _SHA256 or digest.digest != own_digest:
            raise ChallengeRefused(detail="the digest in the challenge is not the SHA-256 digest of the query")
        nonce = body.text if isinstance(body, AnswerText) and body.text is not None else b""
        if len(nonce) not in _NONCE_BYTES:
            raise ChallengeRefused(detail=f"the nonce of the challenge has {len(nonce)} bytes")
        # A signature by a key of 4,096 bits takes 5 ms.
        proof = await asyncio.to_thread(self.prove, nonce + own_digest)
        return (
            encode_string(self.type) + encode_string(self.handle.encode()) + I32.pack(self.index) + encode_string(proof)
        )


def prove_by_secret(secret: bytes, salt: bytes) -> Callable[[bytes], bytes]:
    """Proofs by a secret key. The derivation of the key takes 5 ms, so it is done once."""
    key = hashlib.pbkdf2_hmac("sha1", secret, salt, _ITERATIONS, _KEY_BITS // 8)
    head = U8.pack(_PBKDF2_HMAC_SHA1) + encode_string(salt) + U32.pack(_ITERATIONS) + U32.pack(_KEY_BITS)
    return lambda content: head + encode_string(hmac.digest(key, content, "sha1"))


def prove_by_private_key(pem: bytes) -> Callable[[bytes], bytes]:
    """Proofs by an RSA or DSA key in PEM without a passphrase. Raises ConfigurationError."""
    # Only an identity with such a key needs the library, which takes 100 ms to import.
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric.dsa import DSAPrivateKey  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey  # noqa: PLC0415
    from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415

    try:
        key = load_pem_private_key(pem, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        # The text of the library could show a part of the file.
        raise ConfigurationError("this is not a private key in PEM without a passphrase") from None
    if not isinstance(key, RSAPrivateKey | DSAPrivateKey) or key.key_size < MIN_KEY_BITS:
        raise ConfigurationError(f"this is not an RSA or DSA key of at least {MIN_KEY_BITS} bits")

    def prove(content: bytes) -> bytes:
        if isinstance(key, RSAPrivateKey):
            signature = key.sign(content, PKCS1v15(), SHA256())
        else:
            signature = key.sign(content, SHA256())
        return encode_string(b"SHA-256") + encode_string(signature)

    return prove
