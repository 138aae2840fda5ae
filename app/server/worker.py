"""The server of a worker process: its supervisor tells it through a pipe what signals tell a process alone."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from enum import Enum
from multiprocessing.connection import Connection
from typing import Any, Final

from app.server.http_server import Events, HttpServer, ServerOptions

log = logging.getLogger(__name__)

#: Seconds between two signs of life from the event loop of a worker.
ALIVE_INTERVAL: Final = 5.0


class Word(Enum):
    """What a supervisor and a worker say to each other; everything else that a worker receives are settings."""

    READY = "ready"
    RELOADED = "reloaded"
    ALIVE = "alive"
    END = "end"


class WorkerServer(HttpServer):
    """Serves until the supervisor says END, or is gone."""

    def __init__(
        self,
        application: Any,
        options: ServerOptions,
        draining: Callable[[], None],
        pipe: Connection,
        reload: Callable[[Any], None],
    ) -> None:
        """`reload` is called with what the supervisor sends."""
        super().__init__(application, options, Events(ready=lambda: self._say(Word.READY), draining=draining))
        self._pipe = pipe
        self._reload = reload

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Listen to the supervisor. The signals of a terminal are the supervisor's affair."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.drain)
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        loop.add_reader(self._pipe.fileno(), self._listen)
        self._show_life()
        yield

    def _show_life(self) -> None:
        self._say(Word.ALIVE)
        asyncio.get_running_loop().call_later(ALIVE_INTERVAL, self._show_life)

    def _say(self, word: Word) -> None:
        # A supervisor that is gone is noticed where its messages are read.
        with suppress(OSError):
            self._pipe.send(word)

    def _listen(self) -> None:
        try:
            message = self._pipe.recv()
        except (EOFError, OSError):
            # No other process would end this one, and it holds the port.
            log.error("the supervising process is gone; this worker ends")
            asyncio.get_running_loop().remove_reader(self._pipe.fileno())
            message = Word.END
        if message == Word.END:
            self.drain()
        else:
            self._reload(message)
            self._say(Word.RELOADED)
