"""The port and the certificate: both are checked before the first worker starts."""

from __future__ import annotations

import errno
import logging
import socket
import ssl
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from app.errors import ConfigurationError

log = logging.getLogger(__name__)

#: The beginning of the address of a Unix socket.
_UNIX: Final = "unix:"
#: The owner and the group of the service may connect to a Unix socket.
_SOCKET_MODE: Final = 0o660


def listen(host: str, port: int) -> socket.socket:
    """Bind a socket. The server starts to listen on it when it can answer. Raises ConfigurationError."""
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
            errno.EADDRINUSE: "the port is in use; stop the program that uses it, or choose another port with --port",
            errno.EACCES: "this user may not open the port; choose a port above 1023 with --port",
            errno.EADDRNOTAVAIL: "this machine does not have this address; choose one of its addresses with --host",
        }.get(error.errno or 0, str(error))
        raise ConfigurationError(f"cannot listen on {host} port {port}: {reason}") from error


def listen_at(address: str) -> socket.socket:
    """Bind a socket to `host:port` or `unix:path`. Raises ConfigurationError."""
    if not address.startswith(_UNIX):
        host, _, port = address.rpartition(":")
        return listen(host.strip("[]"), int(port))
    path = Path(address.removeprefix(_UNIX))
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_abandoned(path)
        listening.bind(str(path))
        # No process can connect before the server listens.
        path.chmod(_SOCKET_MODE)
        return listening
    except OSError as error:
        listening.close()
        reason = {
            errno.EADDRINUSE: "another program uses it; stop that program, or choose another path",
            errno.ENOENT: "its folder does not exist; create it for the user of the service",
        }.get(error.errno or 0, str(error))
        raise ConfigurationError(f"cannot listen on {address}: {reason}") from error


def _remove_abandoned(path: Path) -> None:
    """Remove a socket on which no process listens. A service that has ended leaves its socket behind."""
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as attempt:
            # A full backlog must not keep the start waiting.
            attempt.setblocking(False)
            if attempt.connect_ex(str(path)) == errno.ECONNREFUSED:
                path.unlink()


def check_own_certificate(certificate: Path | None, key: Path | None) -> None:
    """Check that the files can serve HTTPS, if they are set. Raises ConfigurationError."""
    if (certificate is None) != (key is None):
        raise ConfigurationError("--tls-cert and --tls-key: only one of them is set; set both to serve HTTPS")
    if certificate is not None and key is not None:
        _load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), certificate, key)


class CertificateReload:
    """Serves the newest certificate to each new connection.

    A second certificate in the same context replaces the first only if both keys have the same type. So each
    certificate gets a context of its own. OpenSSL calls `sni_callback` for each ClientHello, even without a server
    name. The callback may change the connection's context (Python library reference, `SSLContext.sni_callback`).
    """

    def __init__(self) -> None:
        self._create: Callable[[], ssl.SSLContext] | None = None
        self._newest: ssl.SSLContext | None = None

    def open(self, _config: Any, create: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
        """Create the context of the port. This is uvicorn's option `ssl_context_factory`."""
        context = create()
        context.sni_callback = self._take_newest
        self._newest = context
        return context

    def load(self, certificate: Path | None, key: Path | None) -> None:
        """Use this certificate from now on. Raises ConfigurationError and keeps the previous certificate."""
        check_own_certificate(certificate, key)
        if (self._newest is None) != (certificate is None):
            raise ConfigurationError("--tls-cert: a reload cannot switch HTTPS on or off; restart the service")
        if certificate is not None and key is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            _load(context, certificate, key)
            self._newest = context
            log.info("new connections get the certificate in %s", certificate)

    def _take_newest(self, connection: ssl.SSLObject, _server_name: str | None, _context: ssl.SSLContext) -> None:
        if self._newest is not None:
            connection.context = self._newest


def _load(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"--tls-cert {certificate} and --tls-key {key} cannot be used: {error}") from error
