"""The supervisor of a service with several workers. It serves no requests itself.

The supervisor starts the workers and replaces a worker that ends or hangs. It forwards reload and shutdown to each
worker through a pipe. Signals are not enough: systemd and a terminal send a signal to every process of the service, so
a worker could not distinguish a second SIGTERM from the copy of the first.

A worker is a fork of the supervisor, which has one thread and no event loop. So it starts in the time that its store
takes to open, shares the memory of the imported code, and runs that code even if a newer release was installed since.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from typing import Any, Final

from doi_proxy.commands.worker import PipeMessage
from doi_proxy.server.http_server import Events

log = logging.getLogger(__name__)

#: Seconds without a message after which a worker is replaced. A worker that starts on a busy machine sends none.
MAX_SILENCE: Final = 60.0
#: Seconds in which a worker that is silent can write its stack and end at SIGABRT. One that is stopped cannot.
ABORT_SECONDS: Final = 2.0
#: Seconds before a worker that ended during its start is replaced.
RESTART_PAUSE: Final = 1.0
#: Seconds that workers get beyond their shutdown time before they are killed.
END_MARGIN: Final = 10.0
_HANDLED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
#: The notices of changes that a worker gets between two of its ALIVE messages. A pipe that is full would stop the
#: supervisor, and a worker reads the shared files every second anyway.
MAX_NOTICES: Final = 32
#: Signals that are read in one turn. More of them would only repeat the first ones.
_MAX_SIGNALS: Final = 64
#: What to do about a worker that a signal ended.
_KILLED: Final = 'if the log of the kernel (journalctl -k) says "Out of memory", lower cache_memory_bytes or workers'
_CRASHED: Final = "if no program of yours sent that signal, report it with the stack above"
_FORK: Final = multiprocessing.get_context("fork")


@dataclass(slots=True)
class _Worker:
    """A worker process and this end of its pipe."""

    process: ForkProcess
    channel: Connection
    #: When its last message arrived, in seconds of the monotonic clock.
    heard_at: float
    ready: bool = False
    reloading: bool = False
    #: The notices of changes since its last ALIVE message.
    notices: int = 0
    #: When it got SIGABRT because it was silent.
    aborted_at: float | None = None


class Supervisor:
    """Runs the workers of a service until a signal ends it."""

    def __init__(
        self,
        work: Callable[[Connection], None],
        workers: int,
        listening: Sequence[socket.socket],
        events: Events,
        *,
        reload: Callable[[], Any],
        seconds_to_end: float,
    ) -> None:
        """`work` is what a worker does, given its end of a pipe. `reload` returns the message for each worker.

        `seconds_to_end` is the time in which a worker shuts down.
        """
        self._work = work
        self._worker_count = workers
        self._listening = listening
        self._events = events
        self._reload = reload
        self._seconds_to_end = seconds_to_end
        self._workers: list[_Worker] = []
        #: Whether all workers answer with the newest settings, and this is logged.
        self._answering = False
        #: Whether all workers have answered once.
        self._started = False
        #: During a shutdown, the time at which workers are killed.
        self._deadline: float | None = None
        #: When a worker that ended during its start is replaced.
        self._restart_at = 0.0
        self._failed = False

    def run(self) -> bool:
        """Serve until a signal ends the service. Returns False if its workers could not start."""
        with _Signals() as signals:
            self._start_missing(signals)
            while self._workers or self._deadline is None:
                self._turn(signals)
        return not self._failed

    def _turn(self, signals: _Signals) -> None:
        """Wait for a signal, a message or the end of a worker, and react."""
        channels = [worker.channel for worker in self._workers]
        wait([signals.received, *channels, *(worker.process.sentinel for worker in self._workers)], RESTART_PAUSE)
        self._events.alive()
        for number in signals.read():
            self._handle(number)
        for worker in self._workers:
            self._listen(worker)
        self._remove_ended()
        self._start_missing(signals)
        self._report_ready()

    def _handle(self, number: signal.Signals) -> None:
        if number == signal.SIGHUP:
            if self._deadline is None:
                self._forward_reload()
        elif self._deadline is None:
            self._end()
        else:
            log.warning("second %s: killing the workers", number.name)
            self._deadline = 0.0

    def _forward_reload(self) -> None:
        settings = self._reload()
        self._answering = False
        for worker in self._workers:
            worker.reloading = _send(worker, settings)

    def _end(self) -> None:
        self._deadline = time.monotonic() + self._seconds_to_end + END_MARGIN
        self._events.draining()
        # When the last descriptor of a port is closed, the kernel resets connections that no process has accepted.
        # So the supervisor closes its descriptors first: a worker accepts waiting connections before it closes its own.
        for listening in self._listening:
            listening.close()
        for worker in self._workers:
            _send(worker, PipeMessage.END)

    def _listen(self, worker: _Worker) -> None:
        """Read the messages of a worker."""
        with suppress(EOFError, OSError):
            while worker.channel.poll():
                message = worker.channel.recv()
                worker.heard_at = time.monotonic()
                worker.ready = worker.ready or message == PipeMessage.READY
                worker.reloading = worker.reloading and message != PipeMessage.RELOADED
                if message == PipeMessage.CHANGED:
                    self._announce_change(worker)
                elif message == PipeMessage.ALIVE:
                    worker.notices = 0

    def _announce_change(self, origin: _Worker) -> None:
        for worker in self._workers:
            if worker is not origin and worker.notices < MAX_NOTICES:
                worker.notices += 1
                _send(worker, PipeMessage.CHANGED)

    def _remove_ended(self) -> None:
        """Remove workers that have ended. Kill workers that hang or do not shut down in time."""
        now = time.monotonic()
        late = self._deadline is not None and now >= self._deadline
        for worker in tuple(self._workers):
            if late or (worker.aborted_at is not None and now - worker.aborted_at > ABORT_SECONDS):
                if self._deadline and worker.aborted_at is None:  # 0.0 after a second signal, which is logged
                    text = "%s (process %s) has not ended %.0f s after the signal to end: it is killed"
                    seconds = self._seconds_to_end + END_MARGIN
                    log.warning(text, worker.process.name, worker.process.pid, seconds)
                worker.process.kill()
                worker.process.join()
            elif worker.aborted_at is None and now - worker.heard_at > MAX_SILENCE:
                self._abort(worker, now)
            if worker.process.exitcode is not None:
                self._workers.remove(worker)
                worker.channel.close()
                self._handle_exit(worker, now)

    def _abort(self, worker: _Worker, now: float) -> None:
        """End a worker that hangs. Its handler of SIGABRT writes the stack of each thread to the log."""
        process, worker.aborted_at = worker.process, now
        text = "%s (process %s) has not answered for %.0f s: it is %s; its stack follows if it can run"
        end = "killed and replaced" if self._deadline is None else "killed"
        log.error(text, process.name, process.pid, now - worker.heard_at, end)
        if process.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGABRT)

    def _handle_exit(self, worker: _Worker, now: float) -> None:
        """React to the end of a worker. The service ends if a worker fails before all have answered once."""
        if self._deadline is not None:
            return
        process = worker.process
        status = process.exitcode or 0
        if worker.aborted_at is not None:  # _abort has logged it
            cause, sign = "silent", ""
        elif status < 0:
            cause, sign = "signal", _name_signal(-status)
            text = "%s (process %s) was ended by %s, and another one takes its place; %s"
            remedy = _KILLED if -status == signal.SIGKILL else _CRASHED
            log.error(text, process.name, process.pid, sign, remedy)
        else:
            cause, sign = "status", str(status)
            log.error("%s (process %s) ended with status %s", process.name, process.pid, sign)
        self._events.ended(process.name, cause, sign)
        if worker.ready:
            return
        self._restart_at = now + RESTART_PAUSE
        # A worker that was killed is replaced. A worker that exited by itself would do so again.
        if not self._started and status > 0:
            log.error("a worker could not start; the service ends (the lines above show why)")
            self._failed = True
            self._end()

    def _start_missing(self, signals: _Signals) -> None:
        """Start the workers that are missing."""
        if self._deadline is not None or time.monotonic() < self._restart_at:
            return
        while len(self._workers) < self._worker_count:
            channel, worker_end = multiprocessing.Pipe()
            process = _FORK.Process(
                target=self._run_worker, args=(signals, channel, worker_end), name=self._free_name(), daemon=True
            )
            with signals.blocked():
                process.start()
            # While this process has the worker's end open too, it cannot detect that the worker has closed it.
            worker_end.close()
            self._workers.append(_Worker(process, channel, time.monotonic()))

    def _free_name(self) -> str:
        """The name of a worker in the log. A replacement has that of the worker that ended."""
        taken = {worker.process.name for worker in self._workers}
        names = (f"worker {number}" for number in range(1, self._worker_count + 1))
        return next(name for name in names if name not in taken)

    def _run_worker(self, signals: _Signals, channel: Connection, pipe: Connection) -> None:
        """Run a worker, in its process. It first gives up what belongs to the supervisor.

        A worker that had the supervisor's end of a pipe open could not detect that the supervisor has ended.
        """
        signals.give_up()
        for connection in (channel, *(worker.channel for worker in self._workers)):
            connection.close()
        self._work(pipe)

    def _report_ready(self) -> None:
        """Log once that all workers answer."""
        whole = len(self._workers) == self._worker_count
        if self._answering or self._deadline is not None or not whole:
            return
        if all(worker.ready and not worker.reloading for worker in self._workers):
            self._answering = self._started = True
            log.info("all workers answer")
            self._events.ready()


def _name_signal(number: int) -> str:
    """The name of a signal. Python has none for most real-time signals (signal(7))."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIGRTMIN{number - signal.SIGRTMIN:+}"


def _send(worker: _Worker, message: Any) -> bool:
    """Send a message to a worker. Returns False if the worker has closed its pipe."""
    try:
        worker.channel.send(message)
    except OSError:
        return False
    return True


class _Signals:
    """A socket that receives the number of each signal as a byte (Python library reference, set_wakeup_fd)."""

    def __init__(self) -> None:
        self.received, self._wakeup = socket.socketpair()
        self.received.setblocking(False)
        self._wakeup.setblocking(False)

    def __enter__(self) -> _Signals:
        self._before = {number: signal.signal(number, lambda *_: None) for number in _HANDLED}
        signal.set_wakeup_fd(self._wakeup.fileno(), warn_on_full_buffer=False)
        return self

    def __exit__(self, *_: object) -> None:
        self._close()
        for number, action in self._before.items():
            signal.signal(number, action)

    def read(self) -> Iterable[signal.Signals]:
        """The signals since the last call."""
        try:
            return [signal.Signals(number) for number in self.received.recv(_MAX_SIGNALS) if number in _HANDLED]
        except BlockingIOError:
            return ()

    @contextmanager
    def blocked(self) -> Generator[None]:
        """Keep signals waiting. A new process would write its own into the socket of this one."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)

    def give_up(self) -> None:
        """In a new process: SIGTERM ends it, and what a terminal sends is left to the supervisor."""
        self._close()
        for number in _HANDLED:
            signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)

    def _close(self) -> None:
        signal.set_wakeup_fd(-1)
        self.received.close()
        self._wakeup.close()
