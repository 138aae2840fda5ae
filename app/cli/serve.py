"""`doi-proxy serve`: opens the port, then hands it to uvicorn."""

from __future__ import annotations

import errno
import logging
import os
import socket
import ssl
from typing import Any

import uvicorn

from app.errors import ConfigurationError
from app.main import begin_logging, check, create
from app.metrics.workers import FOLDER_VARIABLE, fresh_folder
from app.server.protocol import protocol_class
from app.settings import ENV_PREFIX, Settings

log = logging.getLogger(__name__)

#: Connections that may wait to be accepted.
BACKLOG = 2048
#: Seconds that requests under way get to finish at shutdown.
GRACE = 8
#: Seconds that a worker may be silent, as it is while it starts on a busy machine, before it is replaced.
WORKER_START = 60
#: Longer than the idle time of common front proxies (nginx: 60 s), so that they close first.
KEEP_ALIVE = 75


def serve(settings: Settings) -> int:
    """Serve until told to stop. Raises ConfigurationError for a port, certificate or store that cannot be used."""
    begin_logging(settings)
    _check_certificate(settings)
    listening = listen(settings.host, settings.port)
    try:
        _run(settings, listening)
    finally:
        listening.close()
    return 0


def _run(settings: Settings, listening: socket.socket) -> None:
    options: dict[str, Any] = {
        "http": protocol_class(),
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "proxy_headers": True,
        "forwarded_allow_ips": settings.trusted_proxies,
        "timeout_graceful_shutdown": GRACE,
        "timeout_keep_alive": KEEP_ALIVE,
        "ws": "none",
        "backlog": BACKLOG,
        "ssl_certfile": settings.tls_cert,
        "ssl_keyfile": settings.tls_key,
        "lifespan": "on",
        "timeout_worker_healthcheck": WORKER_START,
    }
    if settings.workers == 1:
        application = create(settings)
        _announce(settings, listening)
        uvicorn.Server(uvicorn.Config(application, **options)).run(sockets=[listening])
        return
    from app.server.supervisor import Supervisor

    check(settings)
    _announce(settings, listening)
    # Worker processes are started anew and read their settings from the environment, where all of them stand now.
    for name in [name for name in os.environ if name.startswith(ENV_PREFIX)]:
        del os.environ[name]
    os.environ.update(settings.as_environment())
    config = uvicorn.Config("app.main:create_from_environment", factory=True, workers=settings.workers, **options)
    with fresh_folder() as folder:
        os.environ[FOLDER_VARIABLE] = str(folder)
        Supervisor(config, sockets=[listening]).run()


def _announce(settings: Settings, listening: socket.socket) -> None:
    scheme = "https" if settings.tls_cert else "http"
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    log.info("starting on %s://%s:%s", scheme, host, listening.getsockname()[1])
    if settings.upstream_contact is None and settings.mode == "online":
        log.warning(
            "no contact is set: give --upstream-contact a URL or mailto: address, so that the upstream can write to "
            "you before it blocks you"
        )


def listen(host: str, port: int) -> socket.socket:
    """A bound socket; uvicorn listens on it when it can answer. Raises ConfigurationError that says what to do."""
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


def _check_certificate(settings: Settings) -> None:
    if (settings.tls_cert is None) != (settings.tls_key is None):
        raise ConfigurationError("to serve HTTPS, give both --tls-cert and --tls-key")
    if settings.tls_cert is None or settings.tls_key is None:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.tls_cert, settings.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"--tls-cert {settings.tls_cert} and --tls-key {settings.tls_key} cannot be used: {error}"
        ) from error
