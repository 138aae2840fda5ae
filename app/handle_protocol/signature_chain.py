"""Whether the HS_SIGNATURE values of a record hold, and whether certificates (HS_CERT) lead from the root to their key.

The rules are those of the reference software: each certificate has the key of the issuer before it, and its permissions
must cover the name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from doi_names.prefix_record import PREFIX_RECORDS
from handle_protocol import value_signature
from handle_protocol.errors import MalformedMessage, SignatureInvalid
from handle_protocol.record import Record

#: Signatures of a record that are verified, certificates of each, and HS_CERT values of a record that are read.
MAX_SIGNATURES: Final = 3
MAX_CERTIFICATES: Final = 5
_MAX_CANDIDATES: Final = 10
#: Digits of an index: those of 2^31 - 1.
_MAX_DIGITS: Final = 10
#: Characters of a signer that are shown.
_MAX_SIGNER: Final = 200
#: The handles whose key is that of the root.
_ROOT_HANDLES: Final = ("0.0/0.0", "0.NA/0.NA")
_ERRORS: Final = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
State = Literal["valid", "partial", "expired", "unproven", "broken"]
#: From the best to the worst. The worst of several signatures counts.
_STATES: Final[tuple[State, ...]] = ("valid", "partial", "expired", "unproven", "broken")


@dataclass(frozen=True, slots=True)
class SignatureVerdict:
    """What the signatures of a record say. `signer` is "300:10.1000/key", `covered` of `total` values are signed."""

    state: State
    signer: str = ""
    covered: int = 0
    total: int = 0
    #: When it may change, in seconds since the epoch: the next end of a signature or a certificate.
    ends: float | None = None


@dataclass(frozen=True, slots=True)
class SignatureChain:
    """A signature of a record and the certificates from its issuer on. `is_whole`: the root issued the last one."""

    signature: value_signature.ValueSignature
    certificates: tuple[value_signature.SignedCertificate, ...] = ()
    is_whole: bool = False


def read_signatures(record: Record) -> list[value_signature.ValueSignature] | None:
    """The signatures of a record. None if one cannot be read."""
    try:
        return [
            value_signature.read_signature(value.text or "")
            for value in record.of_type("HS_SIGNATURE")[:MAX_SIGNATURES]
        ]
    except _ERRORS:
        return None


def is_root(issuer: str) -> bool:
    """Whether the root issued a certificate or a signature."""
    return handle_of(issuer).upper() in _ROOT_HANDLES


def handle_of(reference: str) -> str:
    """The handle of "300:10.1000/key"."""
    index, colon, handle = reference.partition(":")
    return handle if colon and index.isdecimal() else reference


def find_certificate(record: Record, subject: str, place: str) -> value_signature.SignedCertificate | None:
    """The certificate of a subject ("300:10.1000/key") in a record. Others are ignored.

    `place` is one value of the record ("401:10.1000/certs"), or its handle: then the certificate that was issued last.
    """
    index = place.partition(":")[0] if handle_of(place) != place else ""
    candidates = record.of_type("HS_CERT")[:_MAX_CANDIDATES]
    if 0 < len(index) <= _MAX_DIGITS and int(index):
        candidates = tuple(value for value in record.values if value.index == int(index))[:1]
    found: list[value_signature.SignedCertificate] = []
    for value in candidates:
        try:
            certificate = value_signature.read_certificate(value.text or "")
        except _ERRORS:
            continue
        if certificate.subject.upper() == subject.upper():
            found.append(certificate)
    return max(
        found, key=lambda certificate: float("-inf") if certificate.issued is None else certificate.issued, default=None
    )


def judge_signatures(
    handle: str, values: bytes, chains: Sequence[SignatureChain], root_keys: Sequence[bytes], now: float
) -> SignatureVerdict:
    """The verdict about a record, given the JSON array of its values and what was found of each chain."""
    listed: list[dict[str, Any]] = msgspec.json.decode(values)
    by_index = {value["index"]: value for value in listed}
    state, covered = _STATES[0], set[int]()
    for chain in chains:
        found = _judge_chain(handle, by_index, chain, root_keys, now)
        state = max(state, found, key=_STATES.index)
        covered.update(chain.signature.digests)
    if len(by_index) < len(listed):
        # Of two values with one index, the signature does not say which.
        state = "broken"
    signable = {value["index"] for value in listed if value["type"].upper() != "HS_SIGNATURE"}
    covered &= signable
    if state == "valid" and covered != signable:
        state = "partial"
    ends = [
        claim.ends for chain in chains for claim in (chain.signature, *chain.certificates) if claim.ends is not None
    ]
    later = min((end for end in ends if end > now), default=None)
    return SignatureVerdict(state, chains[0].signature.issuer[:_MAX_SIGNER], len(covered), len(signable), later)


def _judge_chain(
    handle: str,
    values: Mapping[int, Mapping[str, Any]],
    chain: SignatureChain,
    root_keys: Sequence[bytes],
    now: float,
) -> State:
    signature, certificates = chain.signature, chain.certificates
    try:
        if signature.subject.upper() != handle.upper() or signature.find_changed(values) is not None:
            return "broken"
        signed: Sequence[value_signature.SignedClaims] = (signature, *certificates)
        for claims, certificate in zip(signed, certificates, strict=False):
            claims.verify(certificate.public_key)
            if not any(_covers(permission, handle) for permission in certificate.permissions):
                return "broken"
        if not chain.is_whole or not root_keys:
            return "unproven"
        if not any(_is_signed_by(signed[-1], key) for key in root_keys):
            return "broken"
    except (*_ERRORS, SignatureInvalid, MalformedMessage):
        return "broken"
    is_current = all((claim.begins or 0) <= now and (claim.ends is None or now < claim.ends) for claim in signed)
    return "valid" if is_current else "expired"


def _is_signed_by(claims: value_signature.SignedClaims, key: bytes) -> bool:
    try:
        claims.verify(key)
    except (SignatureInvalid, MalformedMessage):
        return False
    return True


def _covers(permission: value_signature.CertifiedPermission, handle: str) -> bool:
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
