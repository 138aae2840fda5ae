"""Keys for tests that sign answers as a handle server does. They are small, and were made for this purpose."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Final

from cryptography.hazmat.primitives.asymmetric.dsa import (
    DSAParameterNumbers,
    DSAPrivateKey,
    DSAPrivateNumbers,
    DSAPublicNumbers,
)
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPrivateNumbers, RSAPublicNumbers
from cryptography.hazmat.primitives.asymmetric.rsa import rsa_crt_dmp1 as crt_p
from cryptography.hazmat.primitives.asymmetric.rsa import rsa_crt_dmq1 as crt_q
from cryptography.hazmat.primitives.asymmetric.rsa import rsa_crt_iqmp as crt_inverse
from cryptography.hazmat.primitives.hashes import SHA256

from handle_protocol.wire.message import Credential, Envelope, Response, Signature
from handle_protocol.wire.site_value import DSA, RSA, RSA_PADDING, U32, KeyNumbers, encode_public_key
from tests.handle_protocol.encoder import as_received, encode_content, encode_signature

_P: Final = int(
    "fcce3b83e903d816aae7c19c7efd888748d1f1d4b358525b7cb31d2b030968b1"
    "05937751e7a26f103ebb64ec8961334fb3a6a039b233a4d45850cdf0d3824581",
    16,
)
_Q: Final = int(
    "c92a931a7e6afef84530cb8f8a612cc310dc404b8e752a9988211cf265c96b93"
    "06540e9a8be4d539f19dcbcbaa9a61954a3cf1bf5f856e324ab3a4debda95aab",
    16,
)
_E: Final = 65_537
_D: Final = pow(_E, -1, (_P - 1) * (_Q - 1))

_DSA_P: Final = int(
    "b8feb38e4b312118e3657136e8e5a47f820eb7f3c46fe5df75a97627b795dc3aaee12fe3bf9d59ff9ab38ad5358eb088"
    "21a702e7c9b5d5590ae82f91853ad24d928c40f543f0847ceee2847653050bf0440098ca37938b173a20b0593cc246e2"
    "8f1b73b9d92a80fbc761a1443880d7fd291b2f9db1c1669b00758de417792023",
    16,
)
_DSA_Q: Final = int("a6f2459b5681bd8a8df64a35acc805ff55043155", 16)
_DSA_G: Final = int(
    "b7dcad06e39af1bddc396670b546dfaa8eeb5e191e82538ece5c8325f08568600e9325c5c1b3cce12d2665bf506db715"
    "38bc8ca083d52bc92f0ddaf70fa523043c52b28657f23ec2fbf75c56470d4cd5feeb3142f0005346044e4783a4bf609e"
    "83a7d733f1ea85f6b6c43aca3e92fe64688304ad11b386ca2458f205ac17a371",
    16,
)
_DSA_X: Final = int("92aa739eaa2bc5e8e976efb146d530c747140d22", 16)


@cache
def rsa_key() -> RSAPrivateKey:
    """An RSA key of 1,024 bits."""
    numbers = RSAPrivateNumbers(
        _P, _Q, _D, crt_p(_D, _P), crt_q(_D, _Q), crt_inverse(_P, _Q), RSAPublicNumbers(_E, _P * _Q)
    )
    return numbers.private_key()


@cache
def dsa_key() -> DSAPrivateKey:
    """A DSA key of 1,024 bits."""
    return _make_dsa_key(_DSA_X)


@cache
def other_dsa_key() -> DSAPrivateKey:
    """Another DSA key."""
    return _make_dsa_key(_DSA_X // 3)


def _make_dsa_key(number: int) -> DSAPrivateKey:
    public = DSAPublicNumbers(pow(_DSA_G, number, _DSA_P), DSAParameterNumbers(_DSA_P, _DSA_Q, _DSA_G))
    return DSAPrivateNumbers(number, public).private_key()


def public_bytes(key: RSAPrivateKey | DSAPrivateKey) -> bytes:
    """The public key as it stands in a site value."""
    if isinstance(key, RSAPrivateKey):
        rsa = key.public_key().public_numbers()
        return encode_public_key(KeyNumbers(RSA, (_signed(rsa.e), _signed(rsa.n)), rest=RSA_PADDING))
    dsa = key.public_key().public_numbers()
    group = dsa.parameter_numbers
    return encode_public_key(KeyNumbers(DSA, tuple(map(_signed, (group.q, group.p, group.g, dsa.y)))))


def _signed(number: int) -> bytes:
    return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)


def sign(response: Response, key: RSAPrivateKey | DSAPrivateKey) -> Response:
    """The answer with a credential, signed as in version 2.11."""
    signed = _signed_envelope(response.envelope) + U32.pack(0) + encode_content(response)
    digest = SHA256()
    signature = key.sign(signed, PKCS1v15(), digest) if isinstance(key, RSAPrivateKey) else key.sign(signed, digest)
    credential = Credential(encode_signature(Signature(b"SHA-256", signature)))
    return as_received(replace(response, credential=credential))


def _signed_envelope(envelope: Envelope) -> bytes:
    versions = bytes((envelope.major, envelope.minor, envelope.suggested_major, envelope.suggested_minor))
    return versions + U32.pack(envelope.session_id) + U32.pack(envelope.request_id)
