"""Tells systemd how the service is (sd_notify(3)); does nothing where systemd has not started it."""

from __future__ import annotations

import logging
import socket
import time

log = logging.getLogger(__name__)

#: Names the socket that systemd listens on.
SOCKET_VARIABLE = "NOTIFY_SOCKET"


class Notifier:
    """Sends states to the socket that `NOTIFY_SOCKET` names."""

    def __init__(self, address: str | None) -> None:
        # A leading "@" stands for the zero byte of an abstract address (sd_notify(3), "Notes").
        self._address = "\0" + address[1:] if address and address.startswith("@") else address

    def ready(self, status: str) -> None:
        """The service answers; also said at the end of a reload."""
        self._send("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        """A reload begins. systemd matches the time with the signal that it sent."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self, status: str) -> None:
        """The service drains and ends."""
        self._send("STOPPING=1", f"STATUS={status}")

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notify:
                # A manager that does not read must not stop the service.
                notify.setblocking(False)
                notify.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            log.warning("systemd was not notified of %s: %s", lines[0], error)
