"""Whether the HS_SIGNATURE values of a record hold, and whether certificates (HS_CERT) lead from the root to their key.

The proxy verifies a signature only of a dump. For other programs, docs/handle-protocol.md has a recipe.

The rules are those of the reference software: each certificate has the key of the issuer before it, and its permissions
must cover the name.
"""

from __future__ import annotations

import hashlib
from base64 import b64decode, urlsafe_b64decode
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final, Literal, TypeVar

import msgspec

from doi_names.name import PREFIX_RECORDS
from handle_protocol.errors import (
    InvalidRecord,
    MalformedMessage,
    SignatureInvalid,
    UnusableAnswer,
)
from handle_protocol.json_sites import read_key, to_wire_value
from handle_protocol.key import verify_bytes
from handle_protocol.referral import ROOT_HANDLE, HandleService, read_lead
from handle_protocol.signature import oldest_version, verify_signature
from handle_protocol.value import HandleValue, Record
from handle_protocol.wire import message
from handle_protocol.wire.site_value import encode_site

#: Answers of one chain: how often all keys of the root can be replaced before the operator gets a new file.
MAX_ANSWERS: Final = 16


def fingerprint(root: HandleService) -> str:
    """The SHA-256 of a root's sites, in hexadecimal. It says with which file of the operator a chain began."""
    return sha256(b"".join(map(encode_site, root.sites))).hexdigest()


def follow_chain(root: HandleService, answers: Sequence[bytes]) -> HandleService:
    """The root at the end of a chain. Raises UnusableAnswer if a link is not an answer that the root before signed."""
    if len(answers) > MAX_ANSWERS:
        raise UnusableAnswer(f"the chain has over {MAX_ANSWERS} answers")
    for answer in answers:
        root = _read_link(root, answer)
    return root


def extend_chain(root: HandleService, answers: Sequence[bytes], response: message.Response) -> tuple[bytes, ...]:
    """The shortest chain that ends with this answer. Raises UnusableAnswer if the chain is too long, or broken."""
    answer = response.data
    for count, link in enumerate(answers):
        try:
            _read_link(root, answer)
        except SignatureInvalid:
            root = _read_link(root, link)
        else:
            return (*answers[:count], answer)
    _read_link(root, answer)
    if len(answers) >= MAX_ANSWERS:
        raise UnusableAnswer(f"the chain would have over {MAX_ANSWERS} answers")
    return (*answers, answer)


def _read_link(root: HandleService, answer: bytes) -> HandleService:
    """The root that an answer describes. Raises UnusableAnswer, and SignatureInvalid if the signature is wrong."""
    response = message.decode_response(answer, digest_requested=True)
    body = response.body
    if response.header.op_code != message.OpCode.RESOLUTION or response.code != message.ResponseStatus.SUCCESS:
        raise UnusableAnswer("an answer is not about a record")
    if not isinstance(body, message.Values) or body.handle.upper() != ROOT_HANDLE:
        raise UnusableAnswer("an answer is not about the root")
    _verify(response, root)
    # The TTL of a kept root does not count: it is refreshed at once.
    lead = read_lead(body.values, now=0.0)
    if lead is None or not lead.sites:
        raise UnusableAnswer("an answer has no sites of the root")
    return HandleService(lead.sites, is_verified=True)


def _verify(response: message.Response, root: HandleService) -> None:
    pairs = [(server.public_key, site) for site in root.sites for server in site.servers if server.public_key]
    # Keys of one root that are tried. The root has fewer than ten servers.
    for key, site in list(dict(pairs).items())[:64]:
        try:
            verify_signature(response, key, oldest_version=oldest_version((site.major, site.minor)))
        except SignatureInvalid:
            continue
        return
    raise SignatureInvalid("no key of the root before signed an answer")


_HASHES: Final = {"SHA-256": "sha256", "SHA-384": "sha384", "SHA-512": "sha512"}
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
        verify_bytes(self.signed, message.Signature(b"SHA-256", self.signature), public_key)


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

    def find_changed(self, values: Mapping[int, HandleValue]) -> int | None:
        """The index of the first value that is missing or is not the one that was signed. Raises SIGNATURE_ERRORS."""
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
    if len(parts) != 3:
        raise ValueError("it is not a JSON Web Signature of three parts")
    header, payload, signature = parts
    # RSA and DSA with SHA-256, as the reference software signs.
    if msgspec.json.decode(_decode(header), type=_Header).alg not in ("RS256", "DS256"):
        raise ValueError("its algorithm is not RS256 or DS256")
    return msgspec.json.decode(_decode(payload), type=claims), f"{header}.{payload}".encode(), _decode(signature)


def _decode(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def encode_signed(value: HandleValue) -> bytes:
    """The part of a value that a digest covers. Raises InvalidRecord."""
    # A value begins with its index and its time stamp, which the digest leaves out.
    return message.encode_value(to_wire_value(value))[8:]


#: What the reading of a signature raises, and the comparison with its values.
SIGNATURE_ERRORS: Final = (ValueError, KeyError, TypeError, AttributeError, RecursionError, InvalidRecord)
State = Literal["valid", "partial", "expired", "unproven", "broken"]
#: From the best to the worst. The worst of several signatures counts.
_STATES: Final[tuple[State, ...]] = ("valid", "partial", "expired", "unproven", "broken")


@dataclass(frozen=True, slots=True)
class SignatureVerdict:
    """What the signatures of a record say. `signer` is "300:10.1000/key", `covered` of `total` values are signed.

    docs/handle-protocol.md says what each state means.
    """

    state: State
    signer: str = ""
    covered: int = 0
    total: int = 0
    #: When it may change, in seconds since the epoch: the next end of a signature or a certificate.
    ends: float | None = None
    #: The handles of issuers whose records are needed to say more.
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Chain:
    """A signature of a record and the certificates from its issuer on.

    `is_whole`: the root issued the last one. `missing` is the handle whose record is needed to go on.
    """

    signature: ValueSignature
    certificates: tuple[SignedCertificate, ...] = ()
    is_whole: bool = False
    missing: str | None = None


def judge_signatures(
    handle: str,
    record: Record,
    issuers: Mapping[str, Record | None],
    *,
    root_keys: Sequence[bytes],
    now: float,
) -> SignatureVerdict | None:
    """The verdict about a record with all of its values. None if it has no signature.

    `issuers` has the records with certificates by their handles, None for one that cannot be had. The verdict names
    those that it lacks: look them up, and ask again. `root_keys` are data of HS_PUBKEY values, of which one
    must have signed the last certificate. `now` is in seconds since the epoch.
    """
    # Signatures of a record that are verified.
    values = record.of_type("HS_SIGNATURE")[:3]
    if not values:
        return None
    try:
        signatures = [read_signature(value.text or "") for value in values]
    except SIGNATURE_ERRORS:
        return SignatureVerdict("broken")
    chains = [_follow(signature, issuers) for signature in signatures]
    by_index = {value.index: value for value in record.values}
    state, covered = _STATES[0], set[int]()
    for chain in chains:
        found = _judge_chain(handle, by_index, chain, root_keys, now)
        state = max(state, found, key=_STATES.index)
        covered.update(chain.signature.digests)
    if len(by_index) < len(record.values):
        # Of two values with one index, the signature does not say which.
        state = "broken"
    signable = {value.index for value in record.values if value.folded_type != "HS_SIGNATURE"}
    covered &= signable
    if state == "valid" and covered != signable:
        state = "partial"
    ends = [
        claim.ends for chain in chains for claim in (chain.signature, *chain.certificates) if claim.ends is not None
    ]
    later = min((end for end in ends if end > now), default=None)
    missing = tuple(dict.fromkeys(chain.missing for chain in chains if chain.missing is not None))
    # Characters of a signer that are shown.
    return SignatureVerdict(state, chains[0].signature.issuer[:200], len(covered), len(signable), later, missing)


def _follow(signature: ValueSignature, issuers: Mapping[str, Record | None]) -> _Chain:
    """A signature with the certificates of its issuers, as far as their records are known."""
    chain, places = _Chain(signature), deque[str]()
    # Certificates of one signature.
    most = 5
    for _ in range(most):
        claims = (chain.certificates or (signature,))[-1]
        if _is_root(claims.issuer):
            break
        # As the reference software: the chain of one token also leads on from the certificates after it.
        places = places or deque(claims.chain[:most] or (_handle_of(claims.issuer),))
        place = places.popleft()
        if _handle_of(place) not in issuers:
            return replace(chain, missing=_handle_of(place))
        record = issuers[_handle_of(place)]
        certificate = None if record is None else _find_certificate(record, claims.issuer, place)
        if certificate is None:
            return chain
        chain = replace(chain, certificates=(*chain.certificates, certificate))
    return replace(chain, is_whole=_is_root((chain.certificates or (signature,))[-1].issuer))


def _is_root(issuer: str) -> bool:
    """Whether the root issued a certificate or a signature."""
    return _handle_of(issuer).upper() in ("0.0/0.0", "0.NA/0.NA")


def _handle_of(reference: str) -> str:
    """The handle of "300:10.1000/key"."""
    index, colon, handle = reference.partition(":")
    return handle if colon and index.isdecimal() else reference


def _find_certificate(record: Record, subject: str, place: str) -> SignedCertificate | None:
    """The certificate of a subject ("300:10.1000/key") in a record. Others are ignored.

    `place` is one value of the record ("401:10.1000/certs"), or its handle: then the certificate that was issued last.
    """
    index = place.partition(":")[0] if _handle_of(place) != place else ""
    # HS_CERT values of a record that are read.
    candidates = record.of_type("HS_CERT")[:10]
    # Digits of an index: those of 2^31 - 1.
    if 0 < len(index) <= 10 and int(index):
        candidates = tuple(value for value in record.values if value.index == int(index))[:1]
    found: list[SignedCertificate] = []
    for value in candidates:
        try:
            certificate = read_certificate(value.text or "")
        except SIGNATURE_ERRORS:
            continue
        if certificate.subject.upper() == subject.upper():
            found.append(certificate)
    return max(
        found, key=lambda certificate: float("-inf") if certificate.issued is None else certificate.issued, default=None
    )


def _judge_chain(
    handle: str,
    values: Mapping[int, HandleValue],
    chain: _Chain,
    root_keys: Sequence[bytes],
    now: float,
) -> State:
    signature, certificates = chain.signature, chain.certificates
    try:
        if signature.subject.upper() != handle.upper() or signature.find_changed(values) is not None:
            return "broken"
        signed: Sequence[SignedClaims] = (signature, *certificates)
        for claims, certificate in zip(signed, certificates, strict=False):
            claims.verify(certificate.public_key)
            if not any(_covers(permission, handle) for permission in certificate.permissions):
                return "broken"
        if not chain.is_whole or not root_keys:
            return "unproven"
        if not any(_is_signed_by(signed[-1], key) for key in root_keys):
            return "broken"
    except (*SIGNATURE_ERRORS, SignatureInvalid, MalformedMessage):
        return "broken"
    is_current = all((claim.begins or 0) <= now and (claim.ends is None or now < claim.ends) for claim in signed)
    return "valid" if is_current else "expired"


def _is_signed_by(claims: SignedClaims, key: bytes) -> bool:
    try:
        claims.verify(key)
    except (SignatureInvalid, MalformedMessage):
        return False
    return True


def _covers(permission: CertifiedPermission, handle: str) -> bool:
    """Whether a key with this permission may sign the values of a handle."""
    own, named = handle.upper(), permission.handle.upper()
    home = PREFIX_RECORDS + own.partition("/")[0]
    match permission.perm:
        case "everything":
            return True
        case "thisHandle":
            return own == named
        case "derivedPrefixes":
            return own.startswith(f"{named}.") or home.startswith(f"{named}.")
        case "handlesUnderThisPrefix":
            return home == named
    return False
