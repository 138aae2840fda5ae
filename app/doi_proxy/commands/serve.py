"""`doi-proxy serve`: opens the sockets, builds the application, and serves it until a signal."""

from __future__ import annotations

import asyncio
import faulthandler
import io
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from doi_proxy.assembly.core import describe_left_file, fitting_bytes
from doi_proxy.assembly.lifecycle import Lifecycle, begin_logging, reload_settings
from doi_proxy.assembly.settings import Settings
from doi_proxy.commands.imports import collect_nothing
from doi_proxy.commands.systemd import SOCKET_VARIABLE, Notifier, read_watchdog, take_socket
from doi_proxy.errors import DoiProxyError
from doi_proxy.main import create
from doi_proxy.server.http_server import GRACE, Events, FurtherListener, HttpServer, ServerOptions
from doi_proxy.server.listening import UNIX, listen, listen_at
from doi_proxy.server.tls import Certificate, find_certificate_problems
from doi_proxy.store.file import find_store_file
from doi_proxy.system.check import Inspection, find_deprecated

_ENDING: Final = (signal.SIGTERM, signal.SIGINT)


class SignalServer(HttpServer):
    """Serves until a signal ends it."""

    def __init__(
        self,
        application: Any,
        options: ServerOptions,
        events: Events,
        reload: Callable[[], None],
        further: Sequence[FurtherListener] = (),
    ) -> None:
        super().__init__(application, options, events, further)
        self._reload = reload

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Handle the signals of the process while it serves."""
        loop = asyncio.get_running_loop()
        for number in _ENDING:
            loop.add_signal_handler(number, self._drain_at_signal)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        yield
        loop.remove_signal_handler(signal.SIGHUP)
        # The default action of SIGHUP would kill the process during its shutdown.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def _drain_at_signal(self) -> None:
        # From now on the kernel kills the process at the next signal, even if the event loop hangs.
        for number in _ENDING:
            asyncio.get_running_loop().remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
        self.drain()


log = logging.getLogger(__name__)

#: The key of the socket of the service.
MAIN: Final = "port"
#: Connections that are accepted in one turn of the event loop: libuv accepts one for each handle of a socket.
ACCEPTED_A_TURN: Final = 8
Sockets = Sequence[tuple[str, socket.socket]]


def serve(load: Callable[[], Settings]) -> int:
    """Serve until a signal ends the process. `load` reads the settings at the start and at each reload.

    Returns the exit status. Raises ConfigurationError for a setting, certificate or store that cannot be used, and
    another DoiProxyError for what can pass by itself, such as a port in use.
    """
    # The default action of SIGHUP would kill a process that has not started its server yet.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    _write_at_once()
    # The stack of each thread is in the log if the program crashes, or is killed by SIGABRT because it hangs.
    with suppress(AttributeError, OSError):  # see _write_at_once
        faulthandler.enable()
    settings = load()
    begin_logging(settings)
    certificate = Certificate(settings.tls_cert, settings.tls_key)
    sockets = _open_sockets(settings)
    notifier = Notifier(os.environ.get(SOCKET_VARIABLE), read_watchdog(os.environ))
    try:
        return 0 if _run(settings, load, sockets, notifier, certificate) else 1
    finally:
        for _, listening in sockets:
            listening.close()


def _write_at_once() -> None:
    """Replace standard output and error by streams without a buffer: what a full disk refuses would stay in it."""
    for name in ("stdout", "stderr"):
        with suppress(AttributeError, OSError):  # None if it was closed, and a test's stream has no descriptor
            raw = io.FileIO(getattr(sys, name).fileno(), "w", closefd=False)
            stream = io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", write_through=True)
            setattr(sys, name, stream)


def _further_addresses(settings: Settings) -> list[tuple[str, str]]:
    """The addresses of further listeners, each with its setting."""
    native = settings.value("native_listen")
    found = [("management_listen", address) for address in settings.management_listen]
    return found if native is None else [*found, ("native_listen", native)]


def _open_sockets(settings: Settings) -> Sockets:
    """The socket of the service, then those of further listeners, each with its setting. Raises DoiProxyError."""
    sockets = [(MAIN, take_socket(os.environ) or listen(settings.host, settings.port))]
    try:
        for name, address in _further_addresses(settings):
            sockets.append((name, listen_at(address)))
    except DoiProxyError:
        for _, listening in sockets:
            listening.close()
        raise
    return sockets


def _run(
    settings: Settings,
    load: Callable[[], Settings],
    sockets: Sockets,
    notifier: Notifier,
    certificate: Certificate,
) -> bool:
    lifecycle = Lifecycle(settings)
    with collect_nothing():
        application = create(settings, lifecycle=lifecycle)
    status = _announce(settings, sockets[0][1])

    def reload() -> None:
        notifier.reloading()
        lifecycle.reload(reload_settings(lifecycle.settings, load))
        log_warnings(lifecycle.settings)
        notifier.ready(status)

    def drain() -> None:
        notifier.stopping()
        lifecycle.start_draining()

    events = Events(lambda: _report_ready(notifier, status), drain, notifier.alive)
    lifecycle.request_reload = reload
    further = [FurtherListener(application.listeners[name], listening) for name, listening in sockets[1:]]
    server = SignalServer(application, server_options(settings, certificate), events, reload, further)
    register(server, lifecycle)
    server.run(sockets=handles_of(sockets[0][1]))
    return server.started


def handles_of(listening: socket.socket) -> list[socket.socket]:
    """The socket, and handles of it."""
    return [listening, *(listening.dup() for _ in range(ACCEPTED_A_TURN - 1))]


def register(server: HttpServer, lifecycle: Lifecycle) -> None:
    """Apply a reload to the server."""
    lifecycle.on_reload(lambda new: server.load_certificate(new.tls_cert, new.tls_key), "tls_cert", "tls_key")
    lifecycle.on_reload(lambda new: server.set_trusted_proxies(new.trusted_proxies), "trusted_proxies")


def server_options(settings: Settings, certificate: Certificate) -> ServerOptions:
    """The settings of the server."""
    return ServerOptions(
        trusted_proxies=settings.trusted_proxies,
        proxy_protocol=settings.proxy_protocol,
        certificate=certificate,
        grace=GRACE,
    )


def _report_ready(notifier: Notifier, status: str) -> None:
    """Report that the service answers: to systemd, and as the last log line of the start."""
    log.info("%s (Ctrl-C stops it)", status)
    notifier.ready(status)


def _name_address(listening: socket.socket, scheme: str) -> str:
    """The address of the socket itself. A socket that a unit passes need not have the address of the settings."""
    name = listening.getsockname()
    if isinstance(name, str):
        return f"{UNIX}{name}"
    host, port = name[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _announce(settings: Settings, listening: socket.socket) -> str:
    """Log the address of the service. Returns the status text for systemd."""
    address = _name_address(listening, "https" if settings.tls_cert else "http")
    instance = f" as instance {settings.instance}" if settings.instance else ""
    log.info("starting on %s%s", address, instance)
    for name, further in _further_addresses(settings):
        log.info("%s: listening on %s", name, further)
    if (left := describe_left_file(settings)) is not None:
        log.warning("%s; name that file in store_url to end this warning", left)
    file = find_store_file(settings.store_url)
    if file is not None and (bytes_used := fitting_bytes(settings, file)) < settings.store_max_bytes:
        log.warning("the store may grow to %.0f MB, to keep half of the free disk space free", bytes_used / 1e6)
    log_warnings(settings)
    if settings.upstream_contact is None and settings.mode == "online":
        log.warning(
            "no contact is set: the upstream cannot write to you before it blocks you; set --upstream-contact to an "
            "e-mail address or a URL"
        )
    return f"serving on {address}{instance}"


def log_warnings(settings: Settings) -> None:
    """Log what is wrong with settings that can be used: those that are deprecated, and a certificate near its end."""
    inspection = Inspection(settings)
    # No client that a certificate keeps away can report it.
    certificate = find_certificate_problems(inspection) if settings.tls_cert is not None else ()
    for finding in (*find_deprecated(inspection), *certificate):
        log.warning("%s", finding)
