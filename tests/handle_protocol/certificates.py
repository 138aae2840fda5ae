"""Self-signed certificates, as handle servers make them for their HTTPS interface."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509 import CertificateBuilder, Name, NameAttribute, random_serial_number
from cryptography.x509.oid import NameOID

_NAME = Name([NameAttribute(NameOID.COMMON_NAME, "anonymous")])
#: The dates of the reference server's certificate.
_START = datetime(2000, 1, 1, tzinfo=UTC)
_END = datetime(9999, 12, 31, tzinfo=UTC)


def new_key() -> RSAPrivateKey:
    """A key that is long enough for TLS."""
    return generate_private_key(65_537, 2_048)


def certify(key: RSAPrivateKey, end: datetime = _END) -> bytes:
    """A certificate of a key that the key itself signed (PEM)."""
    builder = CertificateBuilder(_NAME, _NAME, key.public_key(), random_serial_number(), _START, end)
    return builder.sign(key, SHA256()).public_bytes(Encoding.PEM)


def serve_tls(folder: Path, key: RSAPrivateKey, *, is_expired: bool = False) -> ssl.SSLContext:
    """TLS of a server that shows a certificate of a key. The files are written into `folder`."""
    file = folder / "server.pem"
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    file.write_bytes(private + certify(key, _START + timedelta(days=1) if is_expired else _END))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context
