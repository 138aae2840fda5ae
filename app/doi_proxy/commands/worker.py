"""The server of a worker process. Its supervisor sends it reload and shutdown through a pipe."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from multiprocessing.connection import Connection
from typing import Any, Final

from doi_proxy.assembly.lifecycle import Lifecycle
from doi_proxy.server.http_server import Events, FurtherListener, HttpServer, ServerOptions

log = logging.getLogger(__name__)

#: Seconds between two ALIVE messages, which the event loop of a worker sends.
ALIVE_INTERVAL: Final = 5.0


class PipeMessage(Enum):
    """The messages between a supervisor and a worker.

    Any other message to a worker is its new settings, or None if they cannot be used; see Lifecycle.reload.
    """

    READY = "ready"
    RELOADED = "reloaded"
    ALIVE = "alive"
    #: A worker has changed a file that all workers share. The supervisor sends it on to the others.
    CHANGED = "changed"
    END = "end"


class WorkerServer(HttpServer):
    """Serves until the supervisor sends END or has ended itself."""

    def __init__(
        self,
        application: Any,
        options: ServerOptions,
        pipe: Connection,
        lifecycle: Lifecycle,
        further: Sequence[FurtherListener] = (),
    ) -> None:
        """`lifecycle` gets what the supervisor sends: settings, and notices of changes by other workers."""
        events = Events(ready=lambda: self._send(PipeMessage.READY), draining=lifecycle.start_draining)
        super().__init__(application, options, events, further)
        self._pipe = pipe
        self._lifecycle = lifecycle

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Listen to the supervisor. Ignore the signals of a terminal, which the supervisor handles."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.drain)
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        loop.add_reader(self._pipe.fileno(), self._listen)
        self._send_alive()
        yield

    def _send_alive(self) -> None:
        self._send(PipeMessage.ALIVE)
        asyncio.get_running_loop().call_later(ALIVE_INTERVAL, self._send_alive)

    def send_change(self) -> None:
        """Let the other workers read the files that all share."""
        self._send(PipeMessage.CHANGED)

    def _send(self, word: PipeMessage) -> None:
        # `_listen` notices that the supervisor has ended.
        with suppress(OSError):
            self._pipe.send(word)

    def _listen(self) -> None:
        try:
            message = self._pipe.recv()
        except (EOFError, OSError):
            # This worker keeps the port open, and no other process would end it.
            log.error("the supervisor process has ended; this worker shuts down")
            asyncio.get_running_loop().remove_reader(self._pipe.fileno())
            message = PipeMessage.END
        if message == PipeMessage.END:
            self.drain()
        elif message == PipeMessage.CHANGED:
            self._lifecycle.follow()
        else:
            self._lifecycle.reload(message)
            self._send(PipeMessage.RELOADED)
