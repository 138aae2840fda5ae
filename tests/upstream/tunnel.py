"""An egress proxy that opens tunnels (RFC 9110, section 9.3.6), and a certificate for a server behind it."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final, Self

from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509 import (
    AuthorityKeyIdentifier,
    BasicConstraints,
    CertificateBuilder,
    IPAddress,
    Name,
    NameAttribute,
    SubjectAlternativeName,
    SubjectKeyIdentifier,
    random_serial_number,
)
from cryptography.x509.oid import NameOID

from tests.accepting import accept_into, close_server

#: TLS has a clock of its own, which is never that of a test.
_START: Final = datetime(2000, 1, 1, tzinfo=UTC)
_END: Final = datetime(9999, 12, 31, tzinfo=UTC)


def self_signed(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """TLS of a server at 127.0.0.1, and the file of its certificate, which is its own authority."""
    key, file = generate_private_key(SECP256R1()), folder / "cert.pem"
    name = Name([NameAttribute(NameOID.COMMON_NAME, "localhost")])
    builder = CertificateBuilder(name, name, key.public_key(), random_serial_number(), _START, _END)
    extensions = (
        SubjectAlternativeName([IPAddress(IPv4Address("127.0.0.1"))]),
        BasicConstraints(ca=True, path_length=None),
        SubjectKeyIdentifier.from_public_key(key.public_key()),
        AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()),
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=isinstance(extension, BasicConstraints))
    file.write_bytes(builder.sign(key, SHA256()).public_bytes(Encoding.PEM))
    private = folder / "key.pem"
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(file, private)
    return context, file


class Tunnel:
    """An HTTP proxy on loopback that serves only CONNECT. `targets` are the requested hosts."""

    def __init__(self) -> None:
        self.targets: list[str] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(accept_into(self._tasks, self._writers, self._serve), "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        await close_server(self._server, self._tasks, self._writers)

    @property
    def url(self) -> str:
        """The base URL."""
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        method, target, _ = head.decode("ascii").split(" ", 2)
        assert method == "CONNECT"
        self.targets.append(target)
        host, _, port = target.rpartition(":")
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        try:
            await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
        finally:
            far_writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    writer.close()
