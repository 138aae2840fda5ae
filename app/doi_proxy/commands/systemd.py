"""Notifies systemd of the state of the service (sd_notify(3)), and takes the socket of a unit (sd_listen_fds(3)).

Nothing happens if systemd did not start the service.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import suppress
from math import inf
from typing import Final

from doi_proxy.errors import ConfigurationError

log = logging.getLogger(__name__)

#: The environment variable with the socket of systemd.
SOCKET_VARIABLE: Final = "NOTIFY_SOCKET"


def take_socket(environment: MutableMapping[str, str]) -> socket.socket | None:
    """The listening socket that a socket unit passes to this process. None without one. Raises ConfigurationError.

    The variables are removed: they are not for the processes that this one starts.
    """
    process, count, _ = (environment.pop(name, "") for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"))
    if process != str(os.getpid()) or count in ("", "0"):
        return None
    if count != "1":
        raise ConfigurationError(f"the socket unit passes {count[:20]} sockets; keep one ListenStream= in it")
    try:
        # The first descriptor that systemd passes, and the variables about them (sd_listen_fds(3)).
        passed = socket.socket(fileno=3)
        is_listening = bool(passed.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    except OSError as error:
        raise ConfigurationError(f"the descriptor of the socket unit cannot be used: {error.strerror}") from error
    if passed.type != socket.SOCK_STREAM or not is_listening:
        raise ConfigurationError("the socket unit passes a socket that does not listen; name it in ListenStream=")
    # The name of an abstract Unix socket is bytes, and the server would not take its peers for local ones.
    if passed.family not in (socket.AF_INET, socket.AF_INET6) and not isinstance(passed.getsockname(), str):
        raise ConfigurationError("the socket unit passes neither a port nor a path; name one of them in ListenStream=")
    # Other instances share the socket, and with it O_NONBLOCK, which a duplicate sets again. In blocking
    # mode, the event loop of another instance would wait in accept for a connection that this one has taken.
    passed.setblocking(False)
    passed.set_inheritable(False)
    return passed


class Notifier:
    """Sends states to the socket of systemd."""

    def __init__(self, address: str | None, watchdog: float = inf, timer: Callable[[], float] = time.monotonic) -> None:
        """`watchdog` is the time without a message after which systemd kills the service, in seconds of `timer`."""
        self._timer = timer
        # The messages in the time after which systemd kills a service that has sent none (sd_watchdog_enabled(3): two).
        self._interval = watchdog / 3
        self._alive_at = -inf
        # A leading "@" stands for the zero byte of an abstract address (sd_notify(3), "Notes").
        self._address = "\0" + address[1:] if address and address.startswith("@") else address

    def ready(self, status: str) -> None:
        """Report that the service answers, after its start or a reload."""
        self._send("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        """Report that a reload begins. systemd compares the time with that of its signal."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self) -> None:
        """Report that the service drains and will end."""
        self._send("STOPPING=1", "STATUS=draining")

    def alive(self) -> None:
        """Report that the service does not hang. Called at least every second. Few of the calls send a message."""
        now = self._timer()
        if now - self._alive_at > self._interval:  # never, if the interval is infinite
            self._alive_at = now
            self._send("WATCHDOG=1")

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notify:
                # The service must not block if systemd does not read.
                notify.setblocking(False)
                notify.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            log.warning("systemd was not notified of %s: %s", lines[0], error)


def read_watchdog(environment: Mapping[str, str]) -> float:
    """The time of `WatchdogSec=` in seconds (sd_watchdog_enabled(3)). Infinity without one for this process."""
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return inf
    with suppress(ValueError):
        return int(environment.get("WATCHDOG_USEC", "")) / 1e6 or inf
    return inf
