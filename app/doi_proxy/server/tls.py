"""Connections over TLS, which are counted from `accept`.

With `ssl=` of `create_server`, a protocol would not know of a connection before the end of its handshake. Only this
module relies on uvloop internals, the class SSLProtocol, to which `ssl=` leads as well.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from uvloop.loop import SSLProtocol  # type: ignore[attr-defined]

from doi_proxy.errors import ConfigurationError
from doi_proxy.server.connections import Reason
from doi_proxy.server.protocol import ServerProtocol
from doi_proxy.system.check import Finding, Inspection, find_access_problem
from doi_proxy.system.files import require_regular


def load_certificate(certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """The context that serves HTTPS with these files; None if they are not set. Raises ConfigurationError."""
    if (certificate is None) != (key is None):
        raise ConfigurationError("--tls-cert and --tls-key: only one of them is set; set both to serve HTTPS")
    if certificate is None or key is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # A client that resumes gets another ticket. OpenSSL's default, two, costs 0.09 ms more for each handshake.
    context.num_tickets = 1
    try:
        for path in (certificate, key):
            # The largest file of a certificate chain or of a key.
            require_regular(path, 1024 * 1024)
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"--tls-cert {certificate} and --tls-key {key} cannot be used: {error}") from error
    return context


class Certificate:
    """The newest certificate. A connection keeps the one that it began with."""

    def __init__(self, certificate: Path | None, key: Path | None) -> None:
        self.context = load_certificate(certificate, key)

    def replace(self, certificate: Path | None, key: Path | None) -> None:
        """Use this certificate from now on. Raises ConfigurationError and keeps the previous certificate."""
        context = load_certificate(certificate, key)
        if (context is None) != (self.context is None):
            raise ConfigurationError("--tls-cert: a reload cannot switch HTTPS on or off; restart the service")
        if context is not None:
            self.context = context


#: Days before the end of a certificate from which its end is a warning.
_EXPIRY_DAYS: Final = 30.0
_DAY: Final = 86_400.0


def find_certificate_problems(inspection: Inspection) -> Iterator[Finding]:
    """A certificate that cannot serve HTTPS, ends soon, or is for another host."""
    settings = inspection.settings
    certificate, key = settings.tls_cert, settings.tls_key
    name = "tls_cert" if certificate is not None else "tls_key"
    if any(path is not None and find_access_problem(path) for path in (certificate, key)):
        return
    remedy = "use a PEM certificate chain and the key that belongs to it"
    refusals = list(inspection.find_refusal(name, lambda: load_certificate(certificate, key), remedy))
    yield from refusals
    if certificate is not None and not refusals:
        yield from _judge_certificate(inspection, certificate)


def _judge_certificate(inspection: Inspection, certificate: Path) -> Iterator[Finding]:
    # The public part of `ssl` reads only certificates that it has verified.
    fields = ssl._ssl._test_decode_cert(str(certificate))  # type: ignore[attr-defined]
    source = inspection.source("tls_cert")
    days = (ssl.cert_time_to_seconds(fields["notAfter"]) - time.time()) / _DAY
    if days < 0:
        yield Finding("error", source, f"the certificate ended on {fields['notAfter']}", "renew it")
    elif days < _EXPIRY_DAYS:
        yield Finding(
            "warning", source, f"the certificate ends in {days:.0f} days, on {fields['notAfter']}", "renew it"
        )
    host = urlsplit(inspection.settings.public_url or "").hostname
    names = [value.lower() for _, value in fields.get("subjectAltName", ())]
    if host and host not in names and f"*.{host.partition('.')[2]}" not in names:
        yield Finding(
            "warning",
            source,
            f"the certificate is for {', '.join(names) or 'no host'}, and public_url has the host {host}",
            "use a certificate for that host, unless a front proxy serves HTTPS",
        )


class TlsProtocol(ServerProtocol):
    """One connection over TLS. During the handshake, `scheme` is "http" and `transport` is the one below TLS."""

    def accept(self, transport: Any) -> bool:
        """A client has connected. Returns whether its handshake may begin."""
        super().connection_made(transport)
        return not self._ended

    def connection_made(self, transport: Any) -> None:
        """The handshake is complete."""
        self._use(transport, "https")

    def lose_handshake(self, exc: Exception | None) -> None:
        """The connection is closed before the end of its handshake."""
        if isinstance(exc, ssl.SSLError):
            self._reason = Reason.HANDSHAKE
        self.connection_lost(exc)

    def _refuse(self, status: int, text: str, reason: Reason) -> None:
        """Refuse a request. Before the end of the handshake, no answer can be sent."""
        if self.scheme == "https":
            super()._refuse(status, text, reason)
        else:
            self._end(reason)


class TlsLayer(SSLProtocol):  # type: ignore[misc]
    """The TLS of one connection: the protocol of its socket."""

    def __init__(self, certificate: Certificate, **options: Any) -> None:
        """`options` are those of ServerProtocol."""
        protocol = self._connection = TlsProtocol(**options)
        # Seconds until uvloop ends a handshake. The sweep of doi_proxy.server.connections does so much earlier.
        super().__init__(
            protocol.loop, protocol, certificate.context, None, server_side=True, ssl_handshake_timeout=86_400.0
        )

    def connection_made(self, transport: Any) -> None:
        """A client has connected."""
        if self._connection.accept(transport):
            super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Bytes that the layer before this one has read. uvloop itself reads into the buffer."""
        unread = memoryview(data)
        while unread:
            buffer = self.get_buffer(len(unread))
            size = min(len(buffer), len(unread))
            buffer[:size] = unread[:size]
            unread = unread[size:]
            self.buffer_updated(size)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed. uvloop calls this only after a complete handshake."""
        super().connection_lost(exc)
        connection = self._connection
        # It refers to this object. Both, with 256 KiB of buffer, would stay until the next garbage collection.
        del self._connection
        if connection.scheme != "https":
            connection.lose_handshake(exc)
