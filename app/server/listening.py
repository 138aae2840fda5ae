"""The port and the certificate: both are checked before the first worker starts."""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

from app.errors import ConfigurationError


def listen(host: str, port: int) -> socket.socket:
    """Bind a socket. The server listens on it once it can answer. Raises ConfigurationError that says what to do."""
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if host == "::":
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listening.bind((host, port))
        return listening
    except OSError as error:
        listening.close()
        reason = {
            errno.EADDRINUSE: "the port is in use: stop what uses it or choose another by --port",
            errno.EACCES: "this user may not open the port: choose one above 1023",
            errno.EADDRNOTAVAIL: "this machine has no such address",
        }.get(error.errno or 0, str(error))
        raise ConfigurationError(f"cannot listen on {host} port {port}: {reason}") from error


def check_certificate(certificate: Path | None, key: Path | None) -> None:
    """Raises ConfigurationError if HTTPS is asked for and cannot be served with these files."""
    if (certificate is None) != (key is None):
        raise ConfigurationError("to serve HTTPS, give both --tls-cert and --tls-key")
    if certificate is not None and key is not None:
        _load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), certificate, key)


class CertificateReload:
    """Serves the newest certificate to each new connection.

    Loading a second certificate into a live context would replace the first only if their keys are of one type, so
    each certificate gets a context of its own. OpenSSL calls back for each ClientHello, also for one without a server
    name, and a connection may change its context there (Python library reference, `SSLContext.sni_callback`).
    """

    def __init__(self) -> None:
        self._create: Callable[[], ssl.SSLContext] | None = None
        self._newest: ssl.SSLContext | None = None

    def open(self, _config: Any, create: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
        """The context of the port: uvicorn's option `ssl_context_factory`."""
        context = create()
        context.sni_callback = self._take_newest
        self._newest = context
        return context

    def load(self, certificate: Path | None, key: Path | None) -> None:
        """Serve this certificate from now on. Raises ConfigurationError, and then serves the former one."""
        check_certificate(certificate, key)
        if (self._newest is None) != (certificate is None):
            raise ConfigurationError("--tls-cert: HTTPS can be switched on or off only by a restart")
        if certificate is not None and key is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            _load(context, certificate, key)
            self._newest = context

    def _take_newest(self, connection: ssl.SSLObject, _server_name: str | None, _context: ssl.SSLContext) -> None:
        if self._newest is not None:
            connection.context = self._newest


def _load(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"--tls-cert {certificate} and --tls-key {key} cannot be used: {error}") from error
