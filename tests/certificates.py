"""Certificates for tests: one that is its own authority, and an authority with those that it signs."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from ipaddress import ip_address
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509 import (
    AuthorityKeyIdentifier,
    BasicConstraints,
    CertificateBuilder,
    DNSName,
    ExtensionType,
    GeneralName,
    IPAddress,
    KeyUsage,
    Name,
    NameAttribute,
    SubjectAlternativeName,
    SubjectKeyIdentifier,
    random_serial_number,
)
from cryptography.x509.oid import NameOID

LOOPBACK: Final = "127.0.0.1"
#: TLS has a clock of its own, which is never that of a test.
START: Final = datetime(2000, 1, 1, tzinfo=UTC)
END: Final = datetime(9999, 12, 31, tzinfo=UTC)
#: The end of a certificate that has ended.
PAST: Final = datetime(2001, 1, 1, tzinfo=UTC)
#: The use of the key of an authority: `key_cert_sign` and `crl_sign`.
_SIGNS: Final = KeyUsage(False, False, False, False, False, True, True, False, False)

#: A name and its key.
_Named = tuple[str, EllipticCurvePrivateKey]


class Pair(NamedTuple):
    """The files of a certificate and of its key."""

    certificate: Path
    key: Path

    @property
    def context(self) -> ssl.SSLContext:
        """TLS of a server with it."""
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.load_cert_chain(*self)
        return made


def self_signed(folder: Path, *names: str, end: datetime = END) -> Pair:
    """A certificate for hosts, by default for loopback, that is its own authority."""
    return _write(folder / "cert", ("localhost", generate_private_key(SECP256R1())), _alternative(names), end)


class Authority:
    """An authority, with its files in a folder. `file` is what trusts it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = count()
        self._self: _Named = "authority", generate_private_key(SECP256R1())
        self.file = _write(folder / "authority", self._self, _SIGNS, END).certificate

    def issue(self, *names: str, end: datetime = END) -> Pair:
        """A certificate for hosts, by default for loopback."""
        stem, subject = self._folder / f"issued{next(self._numbers)}", ("server", generate_private_key(SECP256R1()))
        return _write(stem, subject, _alternative(names), end, self._self)


def _alternative(names: tuple[str, ...]) -> SubjectAlternativeName:
    return SubjectAlternativeName(list(map(_general, names or (LOOPBACK,))))


def _general(name: str) -> GeneralName:
    try:
        return IPAddress(ip_address(name))
    except ValueError:
        return DNSName(name)


def _write(stem: Path, subject: _Named, extension: ExtensionType, end: datetime, issuer: _Named | None = None) -> Pair:
    """The files of a certificate with an extension. Without an issuer, it is its own."""
    (_, key), (_, issuer_key) = subject, issuer or subject
    name, issuer_name = (Name([NameAttribute(NameOID.COMMON_NAME, it)]) for it, _ in (subject, issuer or subject))
    builder = CertificateBuilder(issuer_name, name, key.public_key(), random_serial_number(), START, end)
    for each, is_critical in (
        (BasicConstraints(ca=issuer is None, path_length=None), True),
        (SubjectKeyIdentifier.from_public_key(key.public_key()), False),
        (AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), False),
        (extension, extension is _SIGNS),
    ):
        builder = builder.add_extension(each, is_critical)
    made = Pair(stem.with_suffix(".pem"), stem.with_suffix(".key"))
    made.certificate.write_bytes(builder.sign(issuer_key, SHA256()).public_bytes(Encoding.PEM))
    made.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return made
