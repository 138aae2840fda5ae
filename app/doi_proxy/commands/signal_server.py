"""The server of `doi-proxy serve`: SIGTERM and SIGINT drain it, SIGHUP reloads its settings."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from doi_proxy.server.http_server import Events, FurtherListener, HttpServer, ServerOptions

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


def ignore_hangup() -> None:
    """Ignore SIGHUP. Its default action would kill a process that has not started its server yet."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
