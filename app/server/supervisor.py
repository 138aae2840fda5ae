"""The processes of a service with several workers: one supervisor, which serves nothing itself.

The supervisor starts the workers, replaces one that ends or falls silent, and forwards a reload and the end through a
pipe to each. Signals alone would not do: systemd and a terminal send them to every process of the service at once, and
a worker could not tell a second request to end from the copy of the first.
"""

from __future__ import annotations

import logging
import multiprocessing
import signal
import socket
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, Final

from app.server.http_server import Events
from app.server.worker import Word

log = logging.getLogger(__name__)

#: Seconds that a worker may be silent, as it is while it starts on a busy machine, before it is replaced.
MOST_SILENCE: Final = 60.0
#: Seconds before a worker is started in place of one that ended before it could answer.
RESTART_PAUSE: Final = 1.0
#: Seconds that workers get beyond the time they were promised to end in, before they are killed.
END_MARGIN: Final = 10.0
_HANDLED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
#: Signals that can wait to be read; more than that many at once say nothing new.
_MOST_SIGNALS: Final = 64


@dataclass(slots=True)
class _Worker:
    """A worker process and this end of its pipe."""

    process: SpawnProcess
    channel: Connection
    #: When it was last heard of, in seconds of the monotonic clock.
    heard: float
    ready: bool = False
    reloading: bool = False


class Supervisor:
    """Runs the workers of a service until it is told to end."""

    def __init__(
        self,
        create: Callable[[Connection], SpawnProcess],
        workers: int,
        listening: socket.socket,
        events: Events,
        *,
        reload: Callable[[], Any],
        seconds_to_end: Callable[[], float],
    ) -> None:
        """`create` makes a process that gets the other end of a pipe; `reload` returns what is sent to each worker.

        `seconds_to_end` is the time in which a worker has promised to end.
        """
        self._create = create
        self._most = workers
        self._listening = listening
        self._events = events
        self._reload = reload
        self._seconds_to_end = seconds_to_end
        self._workers: list[_Worker] = []
        #: Whether all workers answer with the newest settings, and this was reported.
        self._answering = False
        #: Whether all workers have answered once.
        self._started = False
        #: When workers are killed, while the service ends.
        self._deadline: float | None = None
        #: When a worker that ended too early is replaced.
        self._restart_at = 0.0
        self._failed = False

    def run(self) -> bool:
        """Serve until a signal ends the service. Returns False if its workers could not start."""
        with _signals() as arrived:
            self._fill()
            while self._workers or self._deadline is None:
                self._turn(arrived)
        return not self._failed

    def _turn(self, arrived: socket.socket) -> None:
        """Wait for the next thing that happens, and react to it."""
        channels = [worker.channel for worker in self._workers]
        wait([arrived, *channels, *(worker.process.sentinel for worker in self._workers)], RESTART_PAUSE)
        for number in _read_signals(arrived):
            self._handle(signal.Signals(number))
        for worker in self._workers:
            self._listen(worker)
        self._bury()
        self._fill()
        self._announce()

    def _handle(self, number: signal.Signals) -> None:
        if number == signal.SIGHUP:
            if self._deadline is None:
                self._forward_reload()
        elif self._deadline is None:
            self._end()
        else:
            log.warning("%s again: the workers are killed", number.name)
            self._deadline = 0.0

    def _forward_reload(self) -> None:
        settings = self._reload()
        self._answering = False
        for worker in self._workers:
            worker.reloading = _send(worker, settings)

    def _end(self) -> None:
        self._deadline = time.monotonic() + self._seconds_to_end() + END_MARGIN
        self._events.draining()
        # The kernel resets connections that no process has accepted when the last descriptor is closed. The last one
        # to close is to be a worker, which accepts them first.
        self._listening.close()
        for worker in self._workers:
            _send(worker, Word.END)

    def _listen(self, worker: _Worker) -> None:
        """Read what the worker has sent."""
        with suppress(EOFError, OSError):
            while worker.channel.poll():
                word = worker.channel.recv()
                worker.heard = time.monotonic()
                worker.ready = worker.ready or word == Word.READY
                worker.reloading = worker.reloading and word != Word.RELOADED

    def _bury(self) -> None:
        """Forget workers that have ended, and kill those that are silent or late."""
        now = time.monotonic()
        late = self._deadline is not None and now >= self._deadline
        for worker in tuple(self._workers):
            if late or now - worker.heard > MOST_SILENCE:
                worker.process.kill()
                worker.process.join()
            if worker.process.exitcode is not None:
                self._workers.remove(worker)
                worker.channel.close()
                self._judge(worker, now)

    def _judge(self, worker: _Worker, now: float) -> None:
        """Find out what the end of a worker means for the service."""
        if self._deadline is not None:
            return
        log.error("worker %s ended with status %s", worker.process.pid, worker.process.exitcode)
        if worker.ready:
            return
        self._restart_at = now + RESTART_PAUSE
        # A worker that was killed from outside is replaced; one that gives up by itself would do so again.
        if not self._started and (worker.process.exitcode or 0) > 0:
            log.error("a worker could not start; the service ends")
            self._failed = True
            self._end()

    def _fill(self) -> None:
        """Start the workers that are missing."""
        if self._deadline is not None or time.monotonic() < self._restart_at:
            return
        while len(self._workers) < self._most:
            channel, theirs = multiprocessing.Pipe()
            process = self._create(theirs)
            process.start()
            # Its end has to be closed here, or the end of the worker would not be seen.
            theirs.close()
            self._workers.append(_Worker(process, channel, time.monotonic()))

    def _announce(self) -> None:
        """Report once that all workers answer."""
        whole = len(self._workers) == self._most
        if self._answering or self._deadline is not None or not whole:
            return
        if all(worker.ready and not worker.reloading for worker in self._workers):
            self._answering = self._started = True
            log.info("all workers answer")
            self._events.ready()


def _send(worker: _Worker, message: Any) -> bool:
    """Whether a worker that runs was sent the message."""
    try:
        worker.channel.send(message)
    except OSError:
        return False
    return True


@contextmanager
def _signals() -> Generator[socket.socket]:
    """A socket on which the number of each signal arrives as a byte (Python library reference, set_wakeup_fd)."""
    arrived, wakeup = socket.socketpair()
    arrived.setblocking(False)
    wakeup.setblocking(False)
    before = {number: signal.signal(number, lambda *_: None) for number in _HANDLED}
    signal.set_wakeup_fd(wakeup.fileno(), warn_on_full_buffer=False)
    try:
        yield arrived
    finally:
        signal.set_wakeup_fd(-1)
        for number, action in before.items():
            signal.signal(number, action)
        arrived.close()
        wakeup.close()


def _read_signals(arrived: socket.socket) -> Iterable[int]:
    try:
        return [number for number in arrived.recv(_MOST_SIGNALS) if number in _HANDLED]
    except BlockingIOError:
        return ()
