"""HS_SIGNATURE and HS_CERT: JSON Web Signatures (RFC 7515) over the digests of values, and over a key."""

from __future__ import annotations

import hashlib
from base64 import b64decode, urlsafe_b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from handle_protocol.errors import InvalidRecord
from handle_protocol.json_sites import read_key
from handle_protocol.json_wire import to_wire_value
from handle_protocol.key import verify_bytes
from handle_protocol.value import read_value
from handle_protocol.wire.encoding import encode_value
from handle_protocol.wire.message import Signature
from handle_protocol.wire.value import Value

#: A value begins with its index and its time stamp, which the digest leaves out.
_UNSIGNED_BYTES: Final = 8
_HASHES: Final = {"SHA-256": "sha256", "SHA-384": "sha384", "SHA-512": "sha512"}
#: RSA and DSA with SHA-256, as the reference software signs.
_ALGORITHMS: Final = ("RS256", "DS256")
_PARTS: Final = 3
T = TypeVar("T")


class _Header(msgspec.Struct):
    alg: str


class _Digest(msgspec.Struct):
    index: int
    digest: str


class _Digests(msgspec.Struct):
    alg: str
    digests: list[_Digest]


class _Claims(msgspec.Struct):
    sub: str
    digests: _Digests
    iss: str = ""
    exp: float | None = None
    nbf: float | None = None
    chain: list[str] | None = None


class CertifiedPermission(msgspec.Struct, frozen=True):
    """What a key may sign: everything, thisHandle, derivedPrefixes or handlesUnderThisPrefix, of a handle."""

    perm: str
    handle: str = ""


class _CertificateClaims(msgspec.Struct, rename="camel"):
    sub: str
    iss: str
    public_key: dict[str, str]
    perms: list[CertifiedPermission] = []  # msgspec copies an empty list for each object
    exp: float | None = None
    nbf: float | None = None
    iat: float | None = None
    chain: list[str] | None = None


@dataclass(frozen=True, slots=True)
class SignedClaims:
    """What both kinds claim: who signed them ("300:10.1000/key"), about what, and from when to when.

    `chain` says where the certificates of the issuers are, from the first on: values ("401:10.1000/certs"), or handles.
    """

    subject: str
    issuer: str
    begins: float | None
    ends: float | None
    chain: Sequence[str]
    signed: bytes
    signature: bytes

    def verify(self, public_key: bytes) -> None:
        """Check that a key (the data of an HS_PUBKEY value) signed it. Raises SignatureInvalid, MalformedMessage."""
        verify_bytes(self.signed, Signature(b"SHA-256", self.signature), public_key)


@dataclass(frozen=True, slots=True)
class SignedCertificate(SignedClaims):
    """The key of a subject (the data of an HS_PUBKEY value), and what it may sign."""

    public_key: bytes
    permissions: Sequence[CertifiedPermission]
    #: When it was issued, in seconds since the epoch. None if it does not say so.
    issued: float | None


@dataclass(frozen=True, slots=True)
class ValueSignature(SignedClaims):
    """The digests of the values of a record, by index."""

    algorithm: str
    digests: Mapping[int, str]

    def find_changed(self, values: Mapping[int, Mapping[str, Any]]) -> int | None:
        """The index of the first value that is missing or is not the one that was signed. Raises ValueError."""
        for index, digest in self.digests.items():
            value = values.get(index)
            if value is None or hashlib.new(self.algorithm, encode_signed(value)).digest() != b64decode(digest):
                return index
        return None


def read_signature(text: str) -> ValueSignature:
    """The signature in the data of an HS_SIGNATURE value, in the compact form. Raises ValueError."""
    claims, signed, signature = _read_token(text, _Claims)
    if claims.digests.alg not in _HASHES:
        raise ValueError(f"its digest {claims.digests.alg[:40]!r} is not known")
    digests = {entry.index: entry.digest for entry in claims.digests.digests}
    common = (claims.sub, claims.iss, claims.nbf, claims.exp, claims.chain or (), signed, signature)
    return ValueSignature(*common, _HASHES[claims.digests.alg], digests)


def read_certificate(text: str) -> SignedCertificate:
    """The certificate in the data of an HS_CERT value, in the compact form. Raises ValueError."""
    claims, signed, signature = _read_token(text, _CertificateClaims)
    try:
        public_key = read_key(claims.public_key)
    except KeyError as error:
        raise ValueError("its key is not an RSA or DSA key") from error
    common = (claims.sub, claims.iss, claims.nbf, claims.exp, claims.chain or (), signed, signature)
    return SignedCertificate(*common, public_key, claims.perms, claims.iat)


def _read_token(text: str, claims: type[T]) -> tuple[T, bytes, bytes]:
    """The claims of a token, the bytes that are signed, and the signature. Raises ValueError."""
    parts = text.strip().split(".")
    # RFC 7515, section 7.1: header, payload and signature, with dots between them.
    if len(parts) != _PARTS:
        raise ValueError("it is not a JSON Web Signature of three parts")
    header, payload, signature = parts
    if msgspec.json.decode(_decode(header), type=_Header).alg not in _ALGORITHMS:
        raise ValueError("its algorithm is not RS256 or DS256")
    return msgspec.json.decode(_decode(payload), type=claims), f"{header}.{payload}".encode(), _decode(signature)


def _decode(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def encode_signed(value: Mapping[str, Any]) -> bytes:
    """The part of a value, in the JSON of the handle API, that a digest covers. Raises ValueError."""
    return encode_value(_to_wire(value))[_UNSIGNED_BYTES:]


def read_value_data(value: Mapping[str, Any]) -> bytes:
    """The bytes of the data of a value. Raises ValueError."""
    return _to_wire(value).data


def _to_wire(value: Mapping[str, Any]) -> Value:
    try:
        return to_wire_value(read_value(msgspec.json.encode(value)))
    except InvalidRecord as error:
        raise ValueError(f"a signed value cannot be read: {error.detail or error.message}") from error
